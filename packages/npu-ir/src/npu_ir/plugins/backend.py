"""The interface through which every device comes in.

A plugin returns instances from the hook ``npu_backends``. The executor asks a backend about each node
(`Backend.supports`); consecutive nodes that it takes become a graph of their own, which is lowered and
prepared once and then run per call. What a backend refuses, ATen runs.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch

from npu_ir._torch import negated_view
from npu_ir.core.node import OpNode, Value
from npu_ir.core.types import TensorType

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Temporary:
    """A tensor between two ops of a backend that the graph does not have: a node became several ops.

    Two of them are equal only when they are the same object.

    Attributes:
        name: For people to read.
        type: Of what is to be allocated.
    """

    name: str
    type: TensorType


Operand: TypeAlias = "Value | Temporary"


@dataclass(frozen=True, slots=True)
class BackendOp:
    """One op of a backend: what `Backend.lower` makes of a node, of several, or of a part of one.

    Attributes:
        kind: The backend's name of the op.
        inputs: What it reads: values of the lowered graph, and temporaries that ops before it make.
        outputs: What it makes: outputs of its nodes, and temporaries.
        nodes: The nodes that it computes, or takes part in computing; at least one.
        kernel: The kernel that is meant; empty where the backend chooses when it is run.
        schema_id: Says how ``attrs`` is to be read; 0 stands for the defaults of the op.
        attrs: The attributes, packed.
    """

    kind: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    nodes: tuple[OpNode, ...]
    kernel: str = ""
    schema_id: int = 0
    attrs: bytes = b""


@dataclass(frozen=True, slots=True)
class Captured:
    """A program tied to fixed memory.

    Attributes:
        program: What was captured.
        inputs: Write the next tensors into these, in place. A number is what it was: the program is captured for it.
        outputs: `Backend.replay` leaves the results here.
        recording: What the backend needs to replay it.
    """

    program: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    recording: Any = None


class Backend(abc.ABC):
    """Runs nodes of graphs. One instance serves many graphs, from many threads at once.

    A subclass states ``name`` and implements the abstract methods; the others have a meaning that fits
    devices of PyTorch. `IRExecutor` calls `supports`, `lower`, `prepare` and `run`; `allocate`, `capture` and `replay` are
    for those who run over fixed memory. ``npu_runtime.testing.BackendContract`` tests whether it keeps to what is said here.

    Attributes:
        name: Unique among all plugins, in kebab-case.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def devices(self) -> Sequence[torch.device]:
        """Return the devices that tensors may be on, the one to choose by default first; none if it cannot run here."""

    def absence(self) -> str:
        """Return why `devices` returns none here, in a few words: no driver, no such device, not built for it."""
        return "it finds no device"

    @abc.abstractmethod
    def supports(self, node: OpNode) -> str | None:
        """Return why this backend cannot run ``node``, in a few words; None if it can.

        Depends on nothing but the node: its op, attributes, and the types of its inputs and outputs; not on where
        it stands, nor on what it is called. Any node may be asked about, of any op and with symbolic sizes: an
        answer is always given, and nothing is raised.
        """

    @abc.abstractmethod
    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        """Return the ops that compute ``graph``, in the order in which they run.

        Each node is in an op, each result that is no input is made by one, and nothing is made twice or read before
        it is made. What only the nodes of one op pass on to each other need not be made. The graph stays as it is.

        Args:
            graph: Supported nodes only, without weights: everything from outside is an input.
        """

    def allocate(self, type: TensorType, device: torch.device) -> torch.Tensor:
        """Return a tensor of this type with any content."""
        return torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device=device)

    @abc.abstractmethod
    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:
        """Return what `run` needs to compute ``graph``: kernels chosen, attributes bound, memory planned.

        Programs have nothing in common: many may be run in turns, those of the same graph, too. Graph and ops stay
        as they are.

        Args:
            graph: As for `lower`.
            ops: What `lower` made of it.
            device: One of `devices`; all tensors will be there.
        """

    @abc.abstractmethod
    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs of a prepared graph, each of the type that it states, strides included.

        May be called from many threads at once; the same inputs give the same bits. On a device with streams, work is
        put on the current stream of the caller, and need not be done when this returns.

        Args:
            program: What `prepare` returned.
            inputs: In the order of ``graph.inputs``, of the types that they state, strides included but where these
                let elements share memory; they stay as they are. They may start anywhere in their storage, so their addresses are multiples of the item
                size and no more. One tensor may be passed for several, and some may be parameters; the caller has
                switched off the recording of gradients.

        Returns:
            In the order of ``graph.outputs``. They belong to the caller, and no later call writes into them. They share
            memory with inputs, or with each other, at most where all ops between are views, as their schemas say
            (`npu_ir.ops.effects.is_view`).

        Raises:
            BackendError: The inputs are not as many as those of the graph, or the device fails. The program can be
                run again.
        """

    def bind(self, program: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None]:
        """Return what computes ``outputs`` from what ``inputs`` hold whenever it is called; no tensor moves.

        It is called by one thread at a time. Where a call fails, the outputs may hold anything.

        Args:
            program: What `prepare` returned; it can be run, and bound to other memory, as before.
            inputs: As for `run`; they belong to the caller, who changes what they hold between calls.
            outputs: A tensor for each output, of the type that it states, strides included. They share no memory with
                the inputs, nor with each other.
        """

        def compute() -> None:
            for fixed, item in zip(outputs, self.run(program, inputs), strict=True):
                if isinstance(fixed, torch.Tensor):
                    copy_memory(item, fixed)

        return compute

    def capture(self, program: Any, inputs: Sequence[Any]) -> Captured:
        """Tie a program to fixed memory, such that `replay` needs no arguments.

        The memory belongs to what is returned: not to the caller, to the program, or to another capture.

        Args:
            program: What `prepare` returned.
            inputs: Example inputs; they are copied.
        """
        fixed = tuple(map(copied, inputs))
        return Captured(program, fixed, tuple(map(copied, self.run(program, fixed))))

    def replay(self, captured: Captured) -> None:
        """Compute ``captured.outputs`` from what ``captured.inputs`` hold now; no tensor moves.

        Not from two threads at once: they would share the memory.
        """
        for fixed, item in zip(captured.outputs, self.run(captured.program, captured.inputs), strict=True):
            if isinstance(fixed, torch.Tensor):
                copy_memory(item, fixed)


def copied(item: Any) -> Any:
    """Return a copy of a tensor in memory of its own, with the same strides; anything else as it is."""
    if not isinstance(item, torch.Tensor):
        return item
    return _memory(item).clone().as_strided(item.shape, item.stride(), 0)


def copy_memory(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy a tensor into another one of the same type and strides, whose elements may overlap."""
    _memory(target).copy_(_memory(source))


def _memory(item: torch.Tensor) -> torch.Tensor:
    """Return all that a tensor spans as a row, gaps included: ``copy_`` refuses tensors whose elements overlap."""
    plain = item.detach()
    # Resolving would lay out anew what has gaps or overlaps.
    if plain.is_conj():
        return _memory(plain.conj()).conj()
    if plain.is_neg():
        return negated_view(_memory(negated_view(plain)))
    reach = sum((size - 1) * step for size, step in zip(plain.shape, plain.stride(), strict=True))
    return plain.as_strided((reach + 1 if plain.numel() else 0,), (1,))
