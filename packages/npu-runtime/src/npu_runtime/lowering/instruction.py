"""Steps: what a program does one after another, each a call of one Python callable."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import ExecutionError, OpNode, Value
from npu_ir.ops.calls import Binding
from npu_ir.ops.execution import described, place_of
from npu_ir.plugins.backend import Backend


class Returns(enum.Enum):
    """How the outputs of a step come out of its callable."""

    ONE = enum.auto()  # the output itself
    SEQUENCE = enum.auto()  # a list or tuple with one entry per output
    NOTHING = enum.auto()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program of a backend, and the backend."""

    backend: Backend
    program: Any


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One call, and the values between which it stands.

    Attributes:
        nodes: What it computes; several where a backend runs them at once, or where views became one.
        backend: The name of the backend that runs it.
        kernel: What is called, in words.
        function: What is called.
        binding: With which arguments; a slot stands for one of ``inputs``.
        inputs: The values it reads.
        outputs: The values it makes.
        returns: How they come out.
        overwrites: The value whose memory the output takes over; None mostly.
        needs_symbols: The callable takes the values of the symbols first.
        is_segment: Its nodes are run by a backend, all at once.
        prepared: What the backend made of the nodes of a segment.
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
    is_segment: bool = False
    prepared: Prepared | None = None

    @property
    def node(self) -> OpNode:
        """The node that makes its outputs; the last one of several."""
        return self.nodes[-1]


def run_step(step: Step, values: Mapping[Value, Any], symbols: Any, device: torch.device) -> Sequence[Any]:
    """Return the outputs of a step, one per value of ``step.outputs``."""
    args, kwargs = step.binding.arguments([values[value] for value in step.inputs], device)
    result = step.function(symbols, *args, **kwargs) if step.needs_symbols else step.function(*args, **kwargs)
    if step.returns is Returns.ONE:
        return [result]
    return [] if step.returns is Returns.NOTHING else list(result)


def failure_of(step: Step, error: Exception, inputs: Sequence[Any]) -> ExecutionError:
    """Return what to tell the user of an error that a step raised on these inputs."""
    given = ", ".join(map(described, inputs))
    if step.is_segment:
        return ExecutionError(
            f"the backend {step.backend!r} failed: {type(error).__name__}: {error}",
            where=" to ".join(dict.fromkeys(map(place_of, (step.nodes[0], step.nodes[-1])))),
            fix=f"it was called on {given}; leave backend= out to run on ATen",
        )
    return ExecutionError(
        f"{step.node.op_type} failed: {type(error).__name__}: {error}",
        where=place_of(step.node),
        fix=f"{step.kernel} was called on {given}",
    )
