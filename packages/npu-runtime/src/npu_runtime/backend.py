"""The interface through which every device comes in.

A plugin returns instances from the hook ``npu_backends``. The executor asks a backend about each node
(`Backend.supports`); consecutive nodes that it takes become a graph of their own, which is lowered and
prepared once and then run per call. What a backend refuses, ATen runs.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from npu_ir import Graph, OpNode, TensorType, Value


@dataclass(frozen=True, slots=True)
class BackendOp:
    """One op of a backend: what `Backend.lower` makes of a node, or of several.

    Attributes:
        kind: The backend's name of the op.
        inputs: Values of the lowered graph that it reads.
        outputs: Values of the lowered graph that it makes.
        nodes: What it stands for.
        kernel: The kernel that is meant; empty where the backend chooses when it is run.
        schema_id: Says how ``attrs`` is to be read; 0 stands for the defaults of the op.
        attrs: The attributes, packed.
    """

    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[OpNode, ...]
    kernel: str = ""
    schema_id: int = 0
    attrs: bytes = b""


@dataclass(frozen=True, slots=True)
class Captured:
    """A program tied to fixed memory.

    Attributes:
        program: What was captured.
        inputs: Write the next inputs into these, in place.
        outputs: `Backend.replay` leaves the results here.
        recording: What the backend needs to replay it.
    """

    program: Any
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    recording: Any = None


class Backend(abc.ABC):
    """Runs nodes of graphs. One instance serves many graphs, from many threads at once.

    A subclass states ``name`` and implements the abstract methods; the others have a meaning that fits
    devices of PyTorch. ``npu_runtime.testing.BackendContract`` tests whether it keeps to what is said here.

    Attributes:
        name: Unique among all plugins, in kebab-case.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def devices(self) -> Sequence[torch.device]:
        """Return the devices that tensors may be on, the one to choose by default first; none if it cannot run here."""

    @abc.abstractmethod
    def supports(self, node: OpNode) -> str | None:
        """Return why this backend cannot run ``node``, in a few words; None if it can.

        Depends on nothing but the node: its op, attributes, and the types of its inputs and outputs.
        """

    @abc.abstractmethod
    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        """Return the ops that compute ``graph``, in the order in which they run.

        Args:
            graph: Supported nodes only, without weights: everything from outside is an input.
        """

    def allocate(self, type: TensorType, device: torch.device) -> torch.Tensor:
        """Return a tensor of this type with any content."""
        return torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device=device)

    @abc.abstractmethod
    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:
        """Return what `run` needs to compute ``graph``: kernels chosen, attributes bound, memory planned."""

    @abc.abstractmethod
    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs of a prepared graph, each of the type that it states.

        The inputs are of the types that the graph states and stay as they are. The outputs are the caller's: no
        later call writes into them. May be called from many threads at once.
        """

    def capture(self, program: Any, inputs: Sequence[torch.Tensor]) -> Captured:
        """Tie a program to fixed memory, such that `replay` needs no arguments.

        Args:
            program: What `prepare` returned.
            inputs: Example inputs; they are copied.
        """
        fixed = tuple(item.clone() for item in inputs)
        return Captured(program, fixed, tuple(item.clone() for item in self.run(program, fixed)))

    def replay(self, captured: Captured) -> None:
        """Compute ``captured.outputs`` from what ``captured.inputs`` hold now."""
        for fixed, item in zip(captured.outputs, self.run(captured.program, captured.inputs), strict=True):
            fixed.copy_(item)
