"""Instructions: each calls one Python callable, with known operands, results and call traits."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import ExecutionError, OpNode, Value
from npu_ir.ops.calls import Binding
from npu_ir.ops.execution import describe, location_of
from npu_runtime.backends.partition import ATEN
from npu_runtime.lowering.partition_call import PartitionCall
from npu_runtime.probing.call_traits import CallTraits


class Returns(enum.Enum):
    """The return convention of an instruction's callable."""

    ONE = enum.auto()  # the output itself
    SEQUENCE = enum.auto()  # a list or tuple with one entry per output
    NOTHING = enum.auto()


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
        partition: The call of a partition of another backend; None for ATen.
        traits: The call traits of ``nodes``, in-place reuse aside; None if they could not be observed.
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
    partition: PartitionCall | None = None
    traits: CallTraits | None = None

    @property
    def is_partition(self) -> bool:
        """True if it is a partition, which another backend runs in one call."""
        return self.partition is not None

    @property
    def updates_in_place(self) -> bool:
        """True if it is a partition that can update tensors in place."""
        return self.partition is not None and self.partition.updates_in_place

    @property
    def node(self) -> OpNode:
        """The node that defines its outputs; the last one of several."""
        return self.nodes[-1]

    @property
    def shares(self) -> Sequence[frozenset[int]]:
        """For each output the inputs, by number, whose memory it may share."""
        if self.traits is not None:
            return self.traits.shares
        every = frozenset(range(len(self.inputs)))
        return [every] * len(self.outputs)

    @property
    def is_certain(self) -> bool:
        """True if the outputs are known to share memory with exactly those inputs."""
        return self.traits is not None and self.traits.is_certain


def run_instruction(
    instruction: Instruction, values: Mapping[Value, Any], symbols: Any, device: torch.device
) -> Sequence[Any]:
    """Run an instruction; return one item per value of ``instruction.outputs``."""
    args, kwargs = instruction.binding.arguments([values[value] for value in instruction.inputs], device)
    result = (
        instruction.function(symbols, *args, **kwargs)
        if instruction.needs_symbols
        else instruction.function(*args, **kwargs)
    )
    if instruction.returns is Returns.ONE:
        return [result]
    return [] if instruction.returns is Returns.NOTHING else list(result)


def _named(nodes: Sequence[OpNode]) -> str:
    return "it" if len(nodes) == 1 else f"these {len(nodes)} nodes"


def failure_of(instruction: Instruction, error: Exception, inputs: Sequence[Any]) -> ExecutionError:
    """Return the error for a failed instruction, which names the node, its source line and the inputs."""
    given = ", ".join(map(describe, inputs))
    if instruction.is_partition:
        notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))  # of kernels in Python
        return ExecutionError(
            f"the backend {instruction.backend!r} failed: {type(error).__name__}: {error}{notes}",
            where=" to ".join(dict.fromkeys(map(location_of, (instruction.nodes[0], instruction.nodes[-1])))),
            fix=f"it was called on {given}; backend={ATEN!r} runs {_named(instruction.nodes)} on ATen",
        )
    return ExecutionError(
        f"{instruction.node.op_type} failed: {type(error).__name__}: {error}",
        where=location_of(instruction.node),
        fix=f"{instruction.kernel} was called on {given}",
    )
