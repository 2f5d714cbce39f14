"""Instructions of a generated function: each calls one Python callable."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import ExecutionError, OpNode, Value
from npu_ir.ops.calls import Binding
from npu_ir.ops.execution import describe, location_of
from npu_ir.plugins.backend import Backend


class Returns(enum.Enum):
    """The return convention of an instruction's callable."""

    ONE = enum.auto()  # the output itself
    SEQUENCE = enum.auto()  # a list or tuple with one entry per output
    NOTHING = enum.auto()


@dataclass(frozen=True, slots=True)
class PreparedPartition:
    """A partition compiled by a backend."""

    backend: Backend
    program: Any


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction: a callable, its operands and its results.

    Attributes:
        nodes: The nodes that it computes; several for a partition of a backend, or for fused views.
        backend: The name of the backend that runs it.
        kernel: The name of the callable.
        function: The callable.
        binding: The arguments; a slot stands for one of ``inputs``.
        inputs: The values that it reads.
        outputs: The values that it defines.
        returns: The return convention of the callable.
        overwrites: The input whose memory the output takes over; None without in-place reuse.
        needs_symbols: Whether the callable takes the values of the symbols as its first argument.
        is_segment: Whether it is a partition, run by a backend in one call.
        prepared: The compiled partition; None for ATen.
    """

    nodes: tuple[OpNode, ...]
    backend: str
    kernel: str
    function: Callable[..., Any]
    binding: Binding
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    returns: Returns = Returns.ONE
    overwrites: Value | None = None
    needs_symbols: bool = False
    is_partition: bool = False
    prepared: PreparedPartition | None = None

    @property
    def node(self) -> OpNode:
        """The node that defines its outputs; the last one of several."""
        return self.nodes[-1]


def run_instruction(
    step: Instruction, values: Mapping[Value, Any], symbols: Any, device: torch.device
) -> Sequence[Any]:
    """Run an instruction; return one item per value of ``step.outputs``."""
    args, kwargs = step.binding.arguments([values[value] for value in step.inputs], device)
    result = step.function(symbols, *args, **kwargs) if step.needs_symbols else step.function(*args, **kwargs)
    if step.returns is Returns.ONE:
        return [result]
    return [] if step.returns is Returns.NOTHING else list(result)


def failure_of(step: Instruction, error: Exception, inputs: Sequence[Any]) -> ExecutionError:
    """Return the error for a failed instruction, which names the node, its source line and the inputs."""
    given = ", ".join(map(describe, inputs))
    if step.is_partition:
        return ExecutionError(
            f"the backend {step.backend!r} failed: {type(error).__name__}: {error}",
            where=" to ".join(dict.fromkeys(map(location_of, (step.nodes[0], step.nodes[-1])))),
            fix=f"it was called on {given}; leave backend= out to run on ATen",
        )
    return ExecutionError(
        f"{step.node.op_type} failed: {type(error).__name__}: {error}",
        where=location_of(step.node),
        fix=f"{step.kernel} was called on {given}",
    )
