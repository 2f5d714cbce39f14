"""The interface of a device that records graphs, and its implementation by CUDA graphs of PyTorch.

The interface is small, so that tests can check the order of its calls without a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch


class GraphDevice(Protocol):
    """A device that records launches and replays them."""

    def is_capturing(self) -> bool:
        """Return whether the current stream is being captured."""

    def open_pool(self) -> Any:
        """Return a private memory pool for one graph."""

    def side_stream(self) -> contextlib.AbstractContextManager[None]:
        """Return a context with a new current stream, synchronized with the outer one at both ends."""

    def in_pool(self, pool: Any) -> contextlib.AbstractContextManager[None]:
        """Return a context whose allocations come from a pool."""

    def synchronize(self) -> None:
        """Wait for all launches to complete."""

    def make_graph(self, generators: Sequence[torch.Generator]) -> Any:
        """Return an empty graph, whose replays advance these generators and the default one."""

    def begin(self, graph: Any, pool: Any) -> None:
        """Start to record the launches of this thread on the current stream, unaffected by other threads."""

    def end(self, graph: Any) -> None:
        """Stop recording."""

    def discard(self, graph: Any) -> None:
        """Stop a graph that is still recording, and free its resources."""

    def replay(self, graph: Any) -> None:
        """Launch the recorded work on the current stream."""


class TorchCuda:
    """CUDA graphs of PyTorch (`torch.cuda.CUDAGraph`).

    Args:
        device: A CUDA device with its index.
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
        # "thread_local": other threads may allocate and synchronize meanwhile, which "global" would fail on.
        graph.capture_begin(pool=pool.id, capture_error_mode="thread_local")

    def end(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.capture_end()

    def discard(self, graph: torch.cuda.CUDAGraph) -> None:
        if torch.cuda.is_current_stream_capturing():
            # A failure inside has invalidated the capture, and capture_end() raises because of that.
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
        graph.reset()

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.replay()
