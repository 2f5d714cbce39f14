"""A device that records nothing but the order in which it is asked, and fails where a test wants it to."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch


class FakeGraphs:
    """Keeps the order of calls, and runs nothing: a replay calls what was recorded."""

    def __init__(self, *, is_capturing: bool = False, fails_at: str = "") -> None:
        self.calls: list[str] = []
        self._is_capturing = is_capturing
        self._fails_at = fails_at

    def is_capturing(self) -> bool:
        return self._is_capturing

    def open_pool(self) -> Any:
        self._note("open_pool")
        return "pool"

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        self._note("side_stream")
        try:
            yield
        finally:
            self._note("join")

    @contextlib.contextmanager
    def in_pool(self, pool: Any) -> Iterator[None]:
        assert pool == "pool"
        self._note("in_pool")
        try:
            yield
        finally:
            self._note("out_of_pool")

    def synchronize(self) -> None:
        self._note("synchronize")

    def make_graph(self, generators: Sequence[torch.Generator]) -> Any:
        self._note(f"make_graph({len(generators)} generators)")
        return "graph"

    def begin(self, graph: Any, pool: Any) -> None:
        assert (graph, pool) == ("graph", "pool")
        self._note("begin")

    def end(self, graph: Any) -> None:
        self._note("end")

    def discard(self, graph: Any) -> None:
        self._note("discard")

    def replay(self, graph: Any) -> None:
        self._note("replay")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self._fails_at:
            raise RuntimeError("operation not permitted when stream is capturing")
