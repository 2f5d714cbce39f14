"""What a capture needs of CUDA, as one small interface: the order of its calls is tested without a device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch


class GraphDevice(Protocol):
    """A device that records what is launched and launches it again."""

    def is_capturing(self) -> bool:
        """Return whether the current stream is being captured by somebody."""

    def open_pool(self) -> Any:
        """Return memory of its own for one graph."""

    def side_stream(self) -> contextlib.AbstractContextManager[None]:
        """Return a block on a stream of its own, which waits for the current one; that waits for it at the end."""

    def in_pool(self, pool: Any) -> contextlib.AbstractContextManager[None]:
        """Return a block whose allocations come out of a pool."""

    def synchronize(self) -> None:
        """Wait for everything that was launched."""

    def make_graph(self, generators: Sequence[torch.Generator]) -> Any:
        """Return an empty graph, which advances these generators at each replay, besides the default one."""

    def begin(self, graph: Any, pool: Any) -> None:
        """Record from now on what this thread launches on the current stream; others are not disturbed."""

    def end(self, graph: Any) -> None:
        """Stop recording."""

    def discard(self, graph: Any) -> None:
        """Free what a graph holds; one that is still recording stops."""

    def replay(self, graph: Any) -> None:
        """Launch everything again, on the current stream."""


class TorchCuda:
    """CUDA as PyTorch has it.

    Args:
        device: With its index.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def open_pool(self) -> Any:
        return torch.cuda.MemPool()

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        outer = torch.cuda.current_stream(self.device)
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(outer)
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            outer.wait_stream(stream)

    def in_pool(self, pool: Any) -> contextlib.AbstractContextManager[None]:
        block: contextlib.AbstractContextManager[None] = torch.cuda.use_mem_pool(pool, self.device)
        return block

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def make_graph(self, generators: Sequence[torch.Generator]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        return graph

    def begin(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        # Other threads may allocate and synchronize meanwhile: only this one is held to the rules of capture.
        graph.capture_begin(pool=pool.id, capture_error_mode="thread_local")

    def end(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.capture_end()

    def discard(self, graph: torch.cuda.CUDAGraph) -> None:
        if torch.cuda.is_current_stream_capturing():
            # The capture was made invalid by what failed in it: ending it says so again.
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
        graph.reset()

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.replay()
