"""Profiles in the trace-event format: one track of modules, with their instructions nested inside.

The format is described in "Trace Event Format" of the Chromium project; complete events (``"ph": "X"``) carry
their start and duration in microseconds, and those of one track nest by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_TRACK = {"pid": 1, "tid": 1}


def chrome_trace(
    graph: str,
    names: Sequence[tuple[str, str]],
    facts: Sequence[Mapping[str, Any]],
    readings: Sequence[float],
) -> dict[str, Any]:
    """Return the events of one run, with durations that include the overhead of the clocks.

    Each instruction has a name and module, further facts, and two readings: before and after it, in seconds.
    """
    times = [(reading - readings[0]) * 1e6 for reading in readings]
    spans = list(zip(times[::2], times[1::2], strict=True))
    modules = _module_events([module for _, module in names], spans)
    titles = (("process_name", graph), ("thread_name", "program"))
    events: list[dict[str, Any]] = [
        {"name": what, "ph": "M", **_TRACK, "args": {"name": name}} for what, name in titles
    ]
    events += sorted(modules, key=lambda event: (event["ts"], -event["dur"]))
    for (name, _), given, (start, end) in zip(names, facts, spans, strict=True):
        events.append({**_event(name, "step", start, end), "args": given})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _event(name: str, category: str, start: float, end: float) -> dict[str, Any]:
    return {"name": name, "cat": category, "ph": "X", "ts": start, "dur": end - start, **_TRACK}


def _module_events(modules: Sequence[str], spans: Sequence[tuple[float, float]]) -> Iterator[dict[str, Any]]:
    """Yield one event per run of consecutive instructions of a module, its submodules included."""
    opened: list[tuple[str, float]] = []  # path and start, from the outermost on
    end = 0.0
    for module, (start, step_end) in [*zip(modules, spans, strict=True), ("", (0.0, 0.0))]:
        paths = module_paths(module)[1:]
        common = 0  # length of the common prefix with the modules that are open
        while common < min(len(opened), len(paths)) and opened[common][0] == paths[common]:
            common += 1
        yield from (_event(path, "module", begun, end) for path, begun in opened[common:])
        opened = [*opened[:common], *((path, start) for path in paths[common:])]
        end = step_end


def module_paths(module: str) -> list[str]:
    """Return the paths of a module and its parents, the outermost first: ``["", "a", "a.b"]``."""
    parts = module.split(".") if module else []
    return ["", *(".".join(parts[: count + 1]) for count in range(len(parts)))]
