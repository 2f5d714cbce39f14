"""CUDA graphs: a planned program is warmed up, recorded once, and launched as a whole at each replay.

The interface of a device is small, so that tests can check the order of its calls without one.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from npu_ir import NpuError
from npu_runtime._torch.state import end_allocations
from npu_runtime.errors import CaptureError
from npu_runtime.training.capture.capture_state import activity, require_outside_capture
from npu_runtime.training.capture.snapshots import Warmable, warmup_capture_safe


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
    """CUDA graphs of PyTorch (`torch.cuda.CUDAGraph`), on a CUDA device with its index."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._generators: Sequence[torch.Generator] = ()  # of the last graph
        self._pool_id: Any = None  # of the graph that is recorded

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
        self._generators = generators
        return graph

    def begin(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        # "thread_local": other threads may allocate and synchronize meanwhile, which "global" would fail on.
        self._pool_id = pool.id
        graph.capture_begin(pool=pool.id, capture_error_mode="thread_local")

    def end(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.capture_end()
        self._pool_id = None

    def discard(self, graph: torch.cuda.CUDAGraph) -> None:
        if self._pool_id is not None:
            # A failure inside has invalidated the capture: capture_end() raises because of that, before it
            # has told the allocator and the generators, which would refuse to draw from then on.
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            with contextlib.suppress(RuntimeError):
                end_allocations(self.device, self._pool_id)
            self._pool_id = None
            self._end_capture_of_generators()
        graph.reset()

    def _end_capture_of_generators(self) -> None:
        """Have the generators draw outside of captures again, by an empty capture that succeeds."""
        empty = self.make_graph(self._generators)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is empty
            empty.capture_begin(capture_error_mode="thread_local")
            empty.capture_end()

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.replay()


def require_free_stream(device: GraphDevice) -> None:
    """Raise if somebody else captures the current stream.

    Raises:
        CaptureError: That is so.
    """
    if device.is_capturing():
        raise CaptureError(
            "the current stream is being captured already: captures do not nest",
            where="compile_and_capture",
            fix="capture the step before the other capture begins",
        )


class GraphCapture:
    """A planned program whose launches have been recorded on a device.

    Its memory is fixed: batch and hyperparameters are written into the program's inputs before a replay, and
    results are read from its outputs after it.

    Args:
        program: The planned program; its inputs hold some batch.
        device: The device that records.
        numbers: The numbers that the program takes; the recording holds for these alone.
        warmup_runs: The number of runs before, on the stream and in the memory pool of the capture.
        generators: Further generators that the step draws from, besides the device's default one.

    Raises:
        CaptureError: A capture is active already; or the step cannot be recorded. All state is as before.
    """

    def __init__(
        self,
        program: Warmable,
        device: GraphDevice,
        numbers: Sequence[Any] = (),
        *,
        warmup_runs: int = 2,
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        require_outside_capture("a capture")
        require_free_stream(device)
        self._device = device
        self._pool = device.open_pool()
        self._graph = device.make_graph(generators)
        with device.side_stream():
            # Workspaces of kernels come from the graph's own pool, in which the capture reuses their memory.
            with device.in_pool(self._pool):
                warmup_capture_safe(program, warmup_runs, numbers=numbers, generators=generators)
            device.synchronize()
            self._record(program, numbers)

    def _record(self, program: Warmable, numbers: Sequence[Any]) -> None:
        """Record a step; recording does not execute it, so no state changes."""
        try:
            with activity("capture"):
                self._device.begin(self._graph, self._pool)
                program.run(*numbers)
                self._device.end(self._graph)
        except BaseException as error:
            self._device.discard(self._graph)
            if isinstance(error, NpuError) or not isinstance(error, Exception):
                raise
            raise CaptureError(
                f"the step cannot be captured: {type(error).__name__}: {error}",
                where=getattr(error, "where", None) or "the recording of its launches",
                fix="check_capture(graph) names the ops that read results on the host, or allocate by data;"
                ' capture="prefer" runs the planned program instead',
            ) from error

    def replay(self) -> None:
        """Launch the step on the current contents of its inputs."""
        self._device.replay(self._graph)
