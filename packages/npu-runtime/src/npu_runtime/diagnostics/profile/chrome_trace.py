"""Profiles in the trace-event format: one track of modules, with their instructions nested inside.

The format is described in "Trace Event Format" of the Chromium project; complete events (``"ph": "X"``) carry
their start and duration in microseconds, and those of one track nest by time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_runtime.diagnostics.profile.report import module_paths

if TYPE_CHECKING:
    from npu_runtime.diagnostics.profile.report import Profile, StepTime

_TRACK = {"pid": 1, "tid": 1}


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """Return the events of one typical run, with durations that include the overhead of the clocks."""
    zero = profile.readings[0] if profile.readings else 0.0
    readings = [(reading - zero) * 1e6 for reading in profile.readings]
    spans = list(zip(readings[::2], readings[1::2], strict=True))
    events = [_metadata_event("process_name", profile.graph), _metadata_event("thread_name", "program")]
    events += _module_events(profile, spans)
    events += [_instruction_event(step, *span) for step, span in zip(profile.steps, spans, strict=True)]
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


def _module_events(profile: Profile, spans: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """Return one event per run of consecutive instructions of a module, outer modules before inner ones."""
    events = []
    opened: list[tuple[str, float]] = []  # path and start, from the outermost on
    end = 0.0
    for step, (start, step_end) in zip(profile.steps, spans, strict=True):
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
