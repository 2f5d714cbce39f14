"""Capture of a planned program: warmed up, recorded once, and launched as a whole at each replay."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from npu_ir import NpuError
from npu_runtime.errors import CaptureError
from npu_runtime.training.capture.capture_state import activity, require_outside_capture
from npu_runtime.training.capture.cuda_graphs import GraphDevice
from npu_runtime.training.capture.warmup import Warmable, warmup_capture_safe


class GraphCapture:
    """A planned program whose launches have been recorded on a device.

    Its memory is fixed: batch and hyperparameters are written into the program's inputs before a replay, and
    results are read from its outputs after it.

    Args:
        program: The planned program; its inputs hold some batch, and its numbers are tensors among them.
        device: The device that records.
        warmup_runs: The number of runs before, on the stream and in the memory pool of the capture.
        generators: Further generators that the step draws from, besides the device's default one.

    Raises:
        CaptureError: A capture is active already; or the step cannot be recorded. All state is as before.
    """

    def __init__(
        self,
        program: Warmable,
        device: GraphDevice,
        *,
        warmup_runs: int = 2,
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        require_outside_capture("a capture")
        if device.is_capturing():
            raise CaptureError(
                "the current stream is being captured already: captures do not nest",
                where="compile_and_capture",
                fix="capture the step before the other capture begins",
            )
        self._device = device
        self._pool = device.open_pool()
        self._graph = device.make_graph(generators)
        with device.side_stream():
            # Workspaces of kernels come from the graph's own pool, in which the capture reuses their memory.
            with device.in_pool(self._pool):
                warmup_capture_safe(program, warmup_runs, generators=generators)
            device.synchronize()
            self._record(program)

    def _record(self, program: Warmable) -> None:
        """Record a step; recording does not execute it, so no state changes."""
        try:
            with activity("capture"):
                self._device.begin(self._graph, self._pool)
                program.run()
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

    def close(self) -> None:
        """Free the graph and its memory; it cannot be replayed afterwards.

        Raises:
            CaptureError: This thread is capturing or replaying.
        """
        require_outside_capture("closing a capture")
        self._device.synchronize()
        self._device.discard(self._graph)
