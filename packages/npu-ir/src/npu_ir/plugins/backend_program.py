"""The parts of a backend's program: ops of a lowered graph, a program on fixed memory, a loop of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from npu_ir.core.node import OpNode, Value
from npu_ir.core.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Temporary:
    """An intermediate tensor between backend ops that the graph lacks: one node was lowered to several ops.

    Compared by identity.

    Attributes:
        name: For people to read.
        type: The type of the tensor to allocate.
    """

    name: str
    type: TensorType


Operand: TypeAlias = "Value | Temporary"


@dataclass(frozen=True, slots=True)
class BackendOp:
    """One backend op: `Backend.lower` returns one for a node, for several nodes, or for a part of a node.

    Attributes:
        kind: The backend's name of the op.
        inputs: Its operands: values of the lowered graph, and temporaries that earlier ops write.
        outputs: Its results: outputs of its nodes, and temporaries.
        nodes: The nodes that it computes, entirely or in part; at least one.
        kernel: The name of the kernel; empty if the backend selects one at run time.
        schema_id: The encoding of ``attrs``; 0 stands for the defaults of the op.
        attrs: The attributes, packed.
        overwrites: The inputs of the lowered graph whose memory it overwrites, each of them overwritable
            (`PartitionGraph.overwritable_inputs`) and read by no later op.
    """

    kind: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    nodes: tuple[OpNode, ...]
    kernel: str = ""
    schema_id: int = 0
    attrs: bytes = b""
    overwrites: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Captured:
    """A prepared program captured on fixed memory.

    Attributes:
        program: The captured program, as `Backend.prepare` returned it.
        inputs: The fixed inputs: write the next tensors into these, in place. A number is constant: the
            program is captured for it.
        outputs: The fixed outputs: `Backend.replay` writes the results here.
        recording: The state that the backend needs for a replay.
    """

    program: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    recording: Any = None


class StepLoop(Protocol):
    """The interface of a loop that takes steps on batches which another thread copies into a few slots.

    The threads wait for each other. The one that fills calls `reserve`, writes into that slot, calls `push`,
    and after the last one `end`. The other one calls `run` until it returns True.
    """

    def reserve(self) -> int:
        """Wait until a slot is free, and return its number, the next one in turn; -1 after `close`."""

    def push(self) -> None:
        """Mark the slot of `reserve` as full."""

    def end(self) -> None:
        """Announce that no more slots will be filled."""

    def close(self) -> None:
        """Announce that no more steps will be taken."""

    def run(self, rows: list[torch.Tensor], limit: int, seconds: float) -> bool:
        """Take steps; return whether `end` was called and no slot is full.

        A step that fails raises its error. It is not counted.

        Args:
            rows: A tensor for each result, of ``limit`` rows: the first step fills the first one.
            limit: The maximum number of steps.
            seconds: The time after which it returns, be it while it waits.
        """

    @property
    def steps_taken(self) -> int:
        """The number of steps that all calls of `run` have taken."""


class RowLoop(Protocol):
    """The interface of a loop that takes steps over fixed memory, each with a row of some tensors."""

    def run(self, limit: int, seconds: float) -> bool:
        """Take steps after those that are taken; return whether there will be no more.

        A step that fails raises its error. It is not counted, and state that it wrote to in place is as it
        was before.

        Args:
            limit: The maximum number of steps of this call.
            seconds: The time after which it returns.
        """

    @property
    def steps_taken(self) -> int:
        """The number of steps that all calls of `run` have taken."""
