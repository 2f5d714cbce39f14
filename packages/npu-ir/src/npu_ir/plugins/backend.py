"""The backend interface: how a device runs partitions of a graph.

A plugin returns instances from the hook ``npu_backends``. The executor asks a backend about each node
(`Backend.supports`, `Backend.cost`); consecutive nodes of one backend form a partition, a graph of its own,
which is lowered and prepared once and then run at each call. ATen runs the nodes that no backend supports.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from npu_ir.core.node import OpNode
from npu_ir.core.storage import copy_memory, copy_with_strides
from npu_ir.core.types import TensorType
from npu_ir.errors import BackendError
from npu_ir.plugins.backend_program import BackendOp, Captured, Operand, RowLoop, StepLoop, Temporary

if TYPE_CHECKING:
    from npu_ir.graph.partition import PartitionGraph

__all__ = ["Backend", "BackendOp", "Captured", "Operand", "RowLoop", "StepLoop", "Temporary"]


class Backend(abc.ABC):
    """An execution backend of graph nodes; one instance serves many graphs, from many threads at once.

    A subclass defines ``name`` and implements the abstract methods; the defaults of the others suit PyTorch
    devices. `IRExecutor` calls `supports`, `lower`, `prepare` and `run`; `allocate`, `capture` and `replay`
    are for callers that run on fixed memory. ``npu_runtime.testing.BackendContract`` tests a backend
    against the contract stated here.

    Attributes:
        name: Unique among all plugins, in kebab-case.
        call_overhead: The seconds that a call of `run` takes besides the `cost` of its nodes.
    """

    name: ClassVar[str]
    call_overhead: ClassVar[float] = 0.0

    @abc.abstractmethod
    def devices(self) -> Sequence[torch.device]:
        """Return the devices that tensors may be on, the default one first; none if it cannot run here."""

    def absence(self) -> str:
        """Return why `devices` is empty here, in a few words: no driver, no such device, not built for it."""
        return "it finds no device"

    @abc.abstractmethod
    def supports(self, node: OpNode) -> str | None:
        """Return why this backend cannot run ``node``, in a few words; None if it can.

        Depends only on the op of the node, its attributes, and the types of its inputs and outputs; not on
        its position or its name. Accepts any node, of any op and with symbolic sizes, and never raises.
        """

    def cost(self, node: OpNode) -> float | None:  # noqa: ARG002 - for subclasses
        """Return the seconds that a supported ``node`` takes in a call; None to take it at any cost.

        A node goes to the first backend that supports it, unless that one states a cost: then the costs that
        are stated decide, `call_overhead` of each partition included. Depends on the same as `supports`.
        """
        return None

    def is_free(self, node: OpNode) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether a supported ``node`` adds nothing to the time of a call, as a view of memory does.

        A partition does not end with such nodes, nor consist of them alone: ATen runs them there. Depends on
        the same as `supports`.
        """
        return False

    def updates_in_place(self, node: OpNode) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether a supported ``node``, such as the step of an optimizer, can update tensors in place.

        Then it has a partition of its own in planned programs, for which `bind` may be given an input as an
        output: each output may be an input of its type whose new content it is. Once bound, such a node must
        not fail: state is written only after everything that can. Depends on the same as `supports`.
        """
        return False

    def overwrites_rows(self, node: OpNode) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether a supported ``node`` can write what it overwrites into its first input.

        It keeps the rest of that input: ``index_copy``, ``index_put``, ``slice_scatter`` and others do so
        (`npu_ir.ops.effects.overwrites_part`). Where that input is state, such as a cache that the executor
        holds, the graph of the partition has the node in its ``in_place``: then it writes to the memory of
        the state. A run that fails must leave all state as it was, and `undo` must restore it. Depends on the
        same as `supports`.
        """
        return False

    def undo(self, program: Any, inputs: Sequence[Any]) -> None:
        """Restore the state that the last run of a program has written to, if that run had these inputs.

        It may be called where the run has not begun, was interrupted, or has restored the state by itself.

        Args:
            program: What was run: the result of `prepare` or `bind_constants`.
            inputs: The very list that the run was given.
        """
        raise NotImplementedError(f"the backend {self.name!r} writes to no state")

    def passed_over(self, node: OpNode) -> Sequence[str]:  # noqa: ARG002 - for subclasses
        """Return why what users added to this backend does not compute a supported ``node``, for ``explain``.

        Each reason is of a rule or kernel that was asked before the one which computes the node.
        """
        return ()

    def by_cost(self) -> Backend | None:
        """Return what ``backend="auto"`` considers for this backend: one that states costs; None for nothing.

        A backend that someone names takes what it supports; among several, costs are to decide.
        """
        return None

    def pipeline(self, device: torch.device) -> str:  # noqa: ARG002 - for subclasses
        """Return the name of the pipeline that ``passes="auto"`` runs where this backend comes first."""
        return "default"

    def training_pipeline(self, device: torch.device) -> str:  # noqa: ARG002 - for subclasses
        """Return the same for training steps."""
        return "train"

    @abc.abstractmethod
    def lower(self, graph: PartitionGraph) -> Sequence[BackendOp]:
        """Return the ops that compute ``graph``, in execution order.

        Each node belongs to at least one op; each result that is not an input is written by an op; nothing
        is written twice, or read before it is written. A value that only nodes of the same op read need not
        be materialized. The graph is not modified.

        Args:
            graph: Supported nodes only, without weights: everything from outside is an input. It says which
                inputs are constant, and which may be overwritten.
        """

    def allocate(self, type: TensorType, device: torch.device) -> torch.Tensor:
        """Return an uninitialized tensor of this type."""
        return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=device)

    @abc.abstractmethod
    def prepare(self, graph: PartitionGraph, ops: Sequence[BackendOp], device: torch.device) -> Any:
        """Prepare ``graph`` for `run`: choose kernels, bind attributes, plan memory; return the program.

        Programs share no state: runs of several may alternate, even of the same graph. Graph and ops are
        not modified.

        Args:
            graph: As for `lower`.
            ops: The result of `lower` for it.
            device: One of `devices`; all tensors will be there.
        """

    def memory_bytes(self, program: Any) -> int:  # noqa: ARG002 - for subclasses
        """Return the memory that a program keeps for itself between its ops; 0 if it is not known.

        Args:
            program: The result of `prepare`.
        """
        return 0

    def timed_ops(
        self,
        program: Any,  # noqa: ARG002 - for subclasses
    ) -> contextlib.AbstractContextManager[list[float]] | None:
        """Return a context in which the caller runs a program once; None if single ops cannot be timed.

        After the block, the list has the seconds of each op, in the order of `lower`; 0.0 for an op that only
        describes memory. It is empty if other programs ran in the block, too.

        Args:
            program: The result of `prepare`. What runs may be a result of `bind_constants` for it.
        """
        return None

    @abc.abstractmethod
    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs of a prepared graph, each of the type that the graph states, strides included.

        May be called from many threads at once; equal inputs give bitwise equal outputs. On a device with
        streams, work is enqueued on the caller's current stream and may still be running on return.

        Args:
            program: The result of `prepare`.
            inputs: In the order of ``graph.inputs``, of the types that these state, strides included except
                where a type lets elements overlap; they are not modified, except those that an op of the
                program overwrites, which share memory with no other. They may start anywhere in their
                storage, so their addresses are aligned to the item size only. One tensor may be passed for
                several inputs, and some may be parameters; the caller has disabled gradient recording.

        Returns:
            In the order of ``graph.outputs``. They belong to the caller, and no later call writes into them.
            They share memory with inputs, or with each other, only where all ops in between are views
            according to their schemas (`npu_ir.ops.effects.is_view`).

        Raises:
            BackendError: The number of inputs differs from that of the graph, or the device fails. The
                program can be run again.
        """

    def bind_constants(
        self,
        program: Any,  # noqa: ARG002 - for subclasses, like the next one
        constants: Mapping[int, Any],  # noqa: ARG002
    ) -> Any | None:
        """Return a program with some inputs bound for good; None if each run is to have all of them.

        `run` of that program takes the other inputs, in their order.

        Args:
            program: The result of `prepare`; it can still be run.
            constants: Inputs by number, each as `run` takes it. Their content may change between runs.
        """
        return None

    def make_quick_run(self, program: Any) -> Callable[[list[Any]], Sequence[Any] | None] | None:  # noqa: ARG002
        """Return a function that does for usual inputs what `run` does, in less time; None if there is none.

        It takes inputs in any strides, without lazy conj/neg bits, and returns outputs of exactly the types
        that the graph states; or None, having done nothing, for inputs that are not exactly as it needs them.
        These go to `run`, after they were copied into the strides that are stated.

        Args:
            program: The result of `prepare` or `bind_constants`.
        """
        return None

    def bind(self, program: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None]:
        """Return a function that computes ``outputs`` from the content of ``inputs`` at each call, in place.

        It is called by one thread at a time. If a call fails, the content of the outputs is undefined.

        Args:
            program: The result of `prepare`; it can still be run, and bound to other memory.
            inputs: As for `run`; they belong to the caller, who changes their content between calls.
            outputs: One tensor for each output, of the type that the graph states, strides included. They
                share no memory with the inputs or with each other.
        """

        def compute() -> None:
            for fixed, item in zip(outputs, self.run(program, inputs), strict=True):
                self._store(item, fixed)

        return compute

    def make_loop(
        self,
        runs: Sequence[Callable[[], None]],  # noqa: ARG002 - for subclasses, like the next ones
        copies: Sequence[tuple[torch.Tensor, torch.Tensor]],  # noqa: ARG002
        inputs: Sequence[torch.Tensor],  # noqa: ARG002
        slots: Sequence[Sequence[torch.Tensor]],  # noqa: ARG002
        results: Sequence[torch.Tensor],  # noqa: ARG002
    ) -> StepLoop | None:
        """Return a loop that takes steps without Python; None if there is none.

        Args:
            runs: What `bind` has returned: a step calls each of them, in order. Nobody else does meanwhile.
            copies: Fixed tensors, and others of their shapes and dtypes that they are copied into after that.
            inputs: Fixed tensors that the functions read: a step begins by copying a slot into them.
            slots: A tensor for each input in each slot, of the same type, strides included.
            results: Fixed tensors, whose content after each step is kept.
        """
        return None

    def make_row_loop(
        self,
        runs: Sequence[Callable[[], None]],  # noqa: ARG002 - for subclasses, like the next ones
        inputs: Sequence[tuple[torch.Tensor, torch.Tensor]],  # noqa: ARG002
        results: Sequence[tuple[torch.Tensor, torch.Tensor]],  # noqa: ARG002
        stop: tuple[Sequence[int], torch.Tensor] | None = None,  # noqa: ARG002
    ) -> RowLoop | None:
        """Return a loop without Python whose steps read what the one before has left; None if there is none.

        Args:
            runs: What `bind` has returned, of partitions that share memory: a step calls each of them, in
                order. Nobody else does meanwhile.
            inputs: Fixed tensors that the functions read, each with one that has a row for each step: the
                step begins by copying its row into the fixed one. All are contiguous.
            results: Fixed tensors, each with one that has a row for each step, into which the step ends by
                copying it.
            stop: Numbers, and a truth value for each element of the first result, int64. Steps set it once
                the element is one of the numbers, and there are no more steps once all are true.
        """
        return None

    def capture(self, program: Any, inputs: Sequence[Any]) -> Captured:
        """Capture a program on fixed memory, such that `replay` takes no arguments.

        The memory is owned by the returned capture: not by the caller, the program, or another capture.

        Args:
            program: The result of `prepare`.
            inputs: Example inputs; they are copied.
        """
        fixed = tuple(map(copy_with_strides, inputs))
        return Captured(program, fixed, tuple(map(copy_with_strides, self.run(program, fixed))))

    def replay(self, captured: Captured) -> None:
        """Compute ``captured.outputs`` from the content of ``captured.inputs``, in place.

        Not thread-safe: replays of one capture share its memory.
        """
        for fixed, item in zip(captured.outputs, self.run(captured.program, captured.inputs), strict=True):
            self._store(item, fixed)

    def _store(self, item: Any, fixed: Any) -> None:
        """Copy an output of `run` into a tensor of the stated type; anything else needs no copy."""
        if not isinstance(fixed, torch.Tensor):
            return
        if not isinstance(item, torch.Tensor) or (item.dtype, item.shape) != (fixed.dtype, fixed.shape):
            returned = TensorType.of(item) if isinstance(item, torch.Tensor) else type(item).__name__
            raise BackendError(
                f"the backend {self.name!r} returned {returned} in place of {TensorType.of(fixed)}"
            )
        if item.stride() == fixed.stride():
            copy_memory(item, fixed)
        else:
            fixed.copy_(item)
