"""State that an executor holds: buffers and other tensors that its calls advance, one call at a time."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from npu_ir import ExecutionError, Graph, Value
from npu_ir.core.node import external_names
from npu_ir.ops.execution import describe
from npu_runtime.codegen.compiler import mutated_state
from npu_runtime.executor.initial_state import fresh_copy
from npu_runtime.executor.turn import Turn
from npu_runtime.lowering.partition_call import UndoLog

_T = TypeVar("_T")


class _Turn(Turn):
    """The turn of all executors that share the state.

    Attributes:
        resets: The number of times that one of them gave up the content for the initial one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resets = 0


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that can be written to outside of inference mode, too."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def _fresh(content: torch.Tensor, value: Value) -> torch.Tensor:
    return _writable(fresh_copy(content, value.type))


def _require_same_state(graph: Graph, other: Graph) -> None:
    """Refuse graphs of which one writes to what the other only reads, or knows by other names.

    Raises:
        ExecutionError: It names the state.
    """
    for one, two in ((graph, other), (other, graph)):
        written = [external_names(value) for value in mutated_state(two)]
        by_name = {name: names for names in written for name in names}
        own = set(map(external_names, mutated_state(one)))
        for value in one.arguments:
            names = external_names(value)
            name = next((name for name in names if by_name.get(name, names) != names), names[0])
            if value.use_count and name in by_name and (by_name[name] != names or names not in own):
                raise ExecutionError(
                    f"graph {two.name!r} writes to {name!r}, which graph {one.name!r} only reads, or knows by"
                    " other names",
                    where="share=",
                    fix="share executors of graphs that both write to it, under the same names",
                )


class HeldState:
    """The mutated state of a graph.

    Args:
        graph: The graph.
        contents: A tensor for each of its `mutated_state`, which is copied.
        share: Other state: tensors of the same name are taken from it.

    Attributes:
        tensors: The current content.

    Raises:
        ExecutionError: Tensors of the same name are of other types.
    """

    def __init__(
        self, graph: Graph, contents: Sequence[torch.Tensor], share: HeldState | None = None
    ) -> None:
        self._graph = graph
        self._turn: _Turn = _Turn() if share is None else share._turn
        self._is_shared = self._is_fixed = share is not None
        known = {} if share is None else self._known_by(share)
        self.tensors = tuple(
            known[names] if (names := external_names(value)) in known else _fresh(content, value)
            for value, content in zip(mutated_state(graph), contents, strict=True)
        )
        if share is not None:
            share._is_shared = share._is_fixed = True
            self._require_same_types(contents)

    def _known_by(self, share: HeldState) -> dict[tuple[str, ...], torch.Tensor]:
        _require_same_state(self._graph, share._graph)
        names = map(external_names, mutated_state(share._graph))
        return dict(zip(names, share.tensors, strict=True))

    def _require_same_types(self, contents: Sequence[torch.Tensor]) -> None:
        for value, shared, content in zip(mutated_state(self._graph), self.tensors, contents, strict=True):
            name, own = external_names(value), _fresh(content.to("meta"), value)
            if (shared.dtype, shared.shape, shared.stride()) != (own.dtype, own.shape, own.stride()):
                raise ExecutionError(
                    f"the state {name[0]!r} is {describe(own)} here,"
                    f" and {describe(shared)} in the executor that shares it",
                    where=f"graph {self._graph.name!r}",
                    fix="capture both graphs with the same buffers, or leave share= out",
                )

    @property
    def lock(self) -> threading.RLock:
        """Held by whoever changes the content."""
        return self._turn.lock

    @property
    def is_shared(self) -> bool:
        """True if another executor has, or had, the same state."""
        return self._is_shared

    @property
    def resets(self) -> int:
        """The number of times that any executor which shares it gave up the content for the initial one."""
        return self._turn.resets

    def fix_memory(self) -> None:
        """Keep the tensors from now on: a new content is copied into their memory."""
        self._is_fixed = True

    def set(self, contents: Sequence[torch.Tensor], log: UndoLog | None = None) -> None:
        """Make these the content: their memory, or what is in it where the tensors are fixed.

        Args:
            contents: One tensor for each.
            log: Where to add what undoes it.
        """
        if not self._is_fixed:
            self.tensors = tuple(map(_writable, contents))
            return
        for tensor, content in zip(self.tensors, contents, strict=True):
            if content is not tensor:
                if log is not None:
                    log.entries.append(functools.partial(tensor.copy_, tensor.clone()))
                tensor.copy_(content)

    def reset(self, contents: Sequence[torch.Tensor]) -> None:
        """Make copies of these the content; see `set`. The caller holds the lock, and no call is running."""
        self._turn.resets += 1
        self._turn.is_taken = True
        try:
            if self._is_fixed:
                self.set(contents)
            else:
                self.tensors = tuple(map(_fresh, contents, mutated_state(self._graph)))
            self._turn.is_torn = False
        finally:
            self._turn.is_taken = False

    def copy(self) -> HeldState:
        """Return state with the same content in memory of its own, which takes turns with this one."""
        copied = copy.copy(self)
        copied.tensors, copied._is_shared, copied._is_fixed = self.clones(), False, False
        return copied

    def clones(self) -> tuple[torch.Tensor, ...]:
        """Return the content in memory that no call writes to.

        Raises:
            ExecutionError: See `require_whole`.
        """
        self.require_whole()
        return tuple(map(torch.clone, self.tensors))

    def snapshot(self, *, is_overwritten: bool) -> tuple[torch.Tensor, ...]:
        """Return the content; calls that overwrite it, or other executors, do not change what is returned.

        Raises:
            ExecutionError: See `require_whole`.
        """
        self.require_whole()
        return self.clones() if is_overwritten or self._is_fixed else self.tensors

    def in_turn(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function that changes the content.

        Raises:
            ExecutionError: This thread is changing it; or see `require_whole`.
        """
        turn = self._turn
        with turn.lock:
            if turn.is_taken or turn.is_torn:
                self.require_idle()
                self.require_whole()
            try:
                turn.is_taken = True
                return function(*arguments)
            finally:
                turn.is_taken = False

    def require_idle(self) -> None:
        """Refuse a change while this thread makes one."""
        if self._turn.is_taken:
            raise ExecutionError(
                "the executor is called from within one of its own calls, and both would change its buffers",
                where=f"graph {self._graph.name!r}",
                fix="make an executor of its own for that",
            )

    def require_whole(self) -> None:
        """Refuse to read content that may be half-written.

        Raises:
            ExecutionError: This process was forked while another thread of its parent changed the content.
        """
        if self._turn.is_torn and self.tensors:
            raise ExecutionError(
                "this process was forked while another thread changed the buffers of the executor, which are"
                " half-written here",
                where=f"graph {self._graph.name!r}",
                fix="call reset() or load_state_dict(), or fork while no call is in progress",
            )
