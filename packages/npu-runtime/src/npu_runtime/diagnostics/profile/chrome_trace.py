"""Profiles in the trace-event format: one track of modules, with their instructions nested inside.

The format is described in "Trace Event Format" of the Chromium project; complete events (``"ph": "X"``) carry
their start and duration in microseconds, and those of one track nest by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npu_runtime.diagnostics.profile.step_times import StepTime, module_paths

_TRACK = {"pid": 1, "tid": 1}


def chrome_trace(graph: str, steps: Sequence[StepTime], readings: Sequence[float]) -> dict[str, Any]:
    """Return the events of one run, with durations that include the overhead of the clocks.

    Args:
        graph: Name of the graph.
        steps: The instructions, in order.
        readings: The clock before and after each instruction, in seconds.
    """
    times = [(reading - readings[0]) * 1e6 for reading in readings]
    spans = list(zip(times[::2], times[1::2], strict=True))
    events = [_metadata_event("process_name", graph), _metadata_event("thread_name", "program")]
    events += _module_events(steps, spans)
    events += [_instruction_event(step, *span) for step, span in zip(steps, spans, strict=True)]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _metadata_event(what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", **_TRACK, "args": {"name": name}}


def _instruction_event(step: StepTime, start: float, end: float) -> dict[str, Any]:
    facts = {
        "op": step.op_type,
        "kernel": step.kernel,
        "backend": step.backend,
        "nodes": list(step.nodes),
        "source": step.source,
        "median_us": step.seconds * 1e6,
        "flops": step.flops,
        "bytes_read": step.bytes_read,
        "bytes_written": step.bytes_written,
    }
    return {
        "name": step.name,
        "cat": "step",
        "ph": "X",
        "ts": start,
        "dur": end - start,
        **_TRACK,
        "args": facts,
    }


def _module_events(steps: Sequence[StepTime], spans: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """Return one event per run of consecutive instructions of a module, outer modules before inner ones."""
    events = []
    opened: list[tuple[str, float]] = []  # path and start, from the outermost on
    end = 0.0
    for step, (start, step_end) in zip(steps, spans, strict=True):
        paths = module_paths(step.module)[1:]
        common = 0  # length of the common prefix with the modules that are open
        while common < min(len(opened), len(paths)) and opened[common][0] == paths[common]:
            common += 1
        events += [_module_event(path, begun, end) for path, begun in opened[common:]]
        opened = [*opened[:common], *((path, start) for path in paths[common:])]
        end = step_end
    events += [_module_event(path, begun, end) for path, begun in opened]
    return sorted(events, key=lambda event: (event["ts"], -event["dur"]))


def _module_event(path: str, start: float, end: float) -> dict[str, Any]:
    return {"name": path, "cat": "module", "ph": "X", "ts": start, "dur": end - start, **_TRACK}
