"""A profile in the trace-event format: one track with the modules, and in them the steps.

The format is described in "Trace Event Format" of the Chromium project; complete events (``"ph": "X"``) carry their start
and duration in microseconds, and those of one track nest by time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_runtime.diagnostics.profile.report import module_paths

if TYPE_CHECKING:
    from npu_runtime.diagnostics.profile.report import Profile, StepTime

_TRACK = {"pid": 1, "tid": 1}


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """Return the events of one typical run. Durations are as read: what the clocks take is still in them."""
    zero = profile.readings[0] if profile.readings else 0.0
    readings = [(reading - zero) * 1e6 for reading in profile.readings]
    spans = list(zip(readings[::2], readings[1::2], strict=True))
    events = [_named("process_name", profile.graph), _named("thread_name", "program")]
    events += _modules(profile, spans)
    events += [_step(step, *span) for step, span in zip(profile.steps, spans, strict=True)]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _named(what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", **_TRACK, "args": {"name": name}}


def _step(step: StepTime, start: float, end: float) -> dict[str, Any]:
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


def _modules(profile: Profile, spans: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """Return one event per module and stretch of steps that come from it, outer ones before those inside."""
    events = []
    opened: list[tuple[str, float]] = []  # path and start, from the outermost on
    end = 0.0
    for step, (start, step_end) in zip(profile.steps, spans, strict=True):
        paths = module_paths(step.module)[1:]
        kept = 0
        while kept < min(len(opened), len(paths)) and opened[kept][0] == paths[kept]:
            kept += 1
        events += [_module(path, begun, end) for path, begun in opened[kept:]]
        opened = [*opened[:kept], *((path, start) for path in paths[kept:])]
        end = step_end
    events += [_module(path, begun, end) for path, begun in opened]
    return sorted(events, key=lambda event: (event["ts"], -event["dur"]))


def _module(path: str, start: float, end: float) -> dict[str, Any]:
    return {"name": path, "cat": "module", "ph": "X", "ts": start, "dur": end - start, **_TRACK}
