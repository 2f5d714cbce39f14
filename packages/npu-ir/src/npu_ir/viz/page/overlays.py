"""Overlays: what other commands measured of a graph, read from their JSON and placed on its nodes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from npu_ir.core.node import OpNode
from npu_ir.errors import SerializationError, VisualizationError
from npu_ir.serial.strict_json import read_json
from npu_ir.viz.captions import make_printable
from npu_ir.viz.page.document import GraphDocument

_Reading: TypeAlias = tuple[float | str, str]
_Readings: TypeAlias = "tuple[tuple[Overlay, ...], ...]"
# In place of infinity and nan, which JSON does not have.
_INFINITE = 1e300
_FIX = "give a file that npu profile, npu compare or npu explain wrote with --json"


@dataclass(frozen=True, slots=True)
class Overlay:
    """One quantity of the nodes of a graph.

    Attributes:
        name: The quantity, as the page lists it.
        rule: The value of a group: ``sum``, ``max``, or ``most`` for the most frequent word.
        unit: ``s``, ``bytes``, or "" for a plain number or a word.
        values: A number or a word, and a remark, for each node or, of ``max``, for each value it computes.
    """

    name: str
    rule: str
    unit: str
    values: Mapping[str, _Reading]


@dataclass(frozen=True, slots=True)
class OverlayFile:
    """The overlays of one file.

    Attributes:
        where: The file.
        readings: The overlays, once for each graph that names in it may be of: the two sides of a comparison.
    """

    where: str
    readings: tuple[tuple[Overlay, ...], ...]


def read_overlays(item: str | os.PathLike[str] | Mapping[str, Any]) -> OverlayFile:
    """Return the overlays of a file, or of the same as plain data.

    Raises:
        VisualizationError: It cannot be read, or is none that a command writes.
    """
    where, data = ("plain data", item) if isinstance(item, Mapping) else (str(item), _read(Path(item)))
    for keys, read in _READERS:
        if isinstance(data, Mapping) and keys <= data.keys():
            try:
                readings = read(data)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise VisualizationError(
                    f"it has the keys {', '.join(sorted(keys))}, but not the content: {error!r}"[:300],
                    where=where,
                    fix=f"{_FIX}, of this version",
                ) from error
            return OverlayFile(where, readings)
    found = (
        f"an object with the keys {', '.join(list(data)[:6])}" if isinstance(data, Mapping) else "no object"
    )
    raise VisualizationError(f"it is not an overlay: {found}", where=where, fix=_FIX)


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except SerializationError as error:
        raise VisualizationError(error.message, where=str(path), fix=_FIX) from error


def _profile(data: Mapping[str, Any]) -> _Readings:
    times: dict[str, _Reading] = {}
    traffic: dict[str, _Reading] = {}
    for step in data["steps"]:
        for name in step["nodes"]:
            times[name] = traffic[name] = 0.0, f"computed with {step['name']}"
        times[step["name"]] = _number(step["seconds"]), _kernel(step)
        traffic[step["name"]] = float(step["bytes_read"] + step["bytes_written"]), _kernel(step)
    return ((Overlay("time", "sum", "s", times), Overlay("memory traffic", "sum", "bytes", traffic)),)


def _number(item: Any) -> float:
    number = float(item)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a time")
    return number


def _kernel(record: Mapping[str, Any]) -> str:
    return ", ".join(str(part) for part in (record["backend"], record["kernel"]) if part)


def _comparison(data: Mapping[str, Any]) -> _Readings:
    rows = [row for row in data["rows"] if row["kind"] == "value"]
    return tuple(
        (Overlay("difference", "max", "", {str(row[side]): _difference(row) for row in rows}),)
        for side in ("name", "counterpart")
    )


def _difference(row: Mapping[str, Any]) -> _Reading:
    number = float(row["max_abs"])  # "nan" and "inf" are strings
    remark = f"differs: {row['problem']}" if row["diverges"] else "within tolerance or rounding"
    return (number if math.isfinite(number) else _INFINITE), remark


def _explanation(data: Mapping[str, Any]) -> _Readings:
    nodes = data["nodes"]
    backends = {node["name"]: (str(node["backend"]), _reasons(node)) for node in nodes}
    overlays = [Overlay("backend", "most", "", backends)]
    if nodes and all(node["seconds"] is not None for node in nodes):
        times = {node["name"]: (_number(node["seconds"]), _kernel(node)) for node in nodes}
        overlays.append(Overlay("time by backend", "sum", "s", times))
    return (tuple(overlays),)


def _reasons(node: Mapping[str, Any]) -> str:
    refused = [f"not {backend}: {reason}" for backend, reason in node["reasons"].items()]
    return "; ".join([*([str(node["kernel"])] if node["kernel"] else []), *refused])


def _memory_plan(data: Mapping[str, Any]) -> _Readings:
    live = zip(data["instructions"], data["live_bytes"], strict=True)
    return ((Overlay("memory in use", "max", "bytes", {name: (float(size), "") for name, size in live}),),)


# The keys that tell the forms of data apart.
_READERS: tuple[tuple[frozenset[str], Callable[[Mapping[str, Any]], _Readings]], ...] = (
    (frozenset({"steps", "call_seconds"}), _profile),
    (frozenset({"rows", "values_a"}), _comparison),
    (frozenset({"nodes", "backends"}), _explanation),
    (frozenset({"instructions", "live_bytes"}), _memory_plan),
)


def place_overlays(
    documents: Sequence[GraphDocument], files: Sequence[OverlayFile]
) -> list[list[dict[str, Any]]]:
    """Return, for each document, the overlays that fit it, by the positions of its boxes.

    Raises:
        VisualizationError: A file fits none of them: fewer than half of its nodes are in a graph.
    """
    places = [_names(document) for document in documents]
    placed: list[list[dict[str, Any]]] = [[] for _ in documents]
    for file in files:
        fitting = [_fitting(file, place) for place in places]
        if not any(fitting):
            raise _misfit(documents, file, places)
        for place, overlays, found in zip(places, fitting, placed, strict=True):
            found += [_place(overlay, place) for overlay in overlays]
    return placed


def _fitting(file: OverlayFile, places: Mapping[str, int]) -> tuple[Overlay, ...]:
    """Return the reading with the most names that are in a graph; () if that is fewer than half of them."""
    best = max(file.readings, key=lambda reading: len(reading[0].values.keys() & places.keys()))
    known, names = len(best[0].values.keys() & places.keys()), len(best[0].values)
    return best if names and 2 * known >= names else ()


def _misfit(
    documents: Sequence[GraphDocument], file: OverlayFile, places: Sequence[Mapping[str, int]]
) -> VisualizationError:
    names = file.readings[0][0].values
    graphs = " or ".join(repr(make_printable(document.graph.name)) for document in documents)
    if not names:
        return VisualizationError("it has no nodes", where=file.where, fix=_FIX)
    strangers = [make_printable(name) for name in names if not any(name in place for place in places)]
    return VisualizationError(
        f"{len(strangers)} of its {len(names)} nodes are not in {graphs}: {', '.join(strangers[:3])}",
        where=file.where,
        fix="measure this graph: passes rename nodes, so save what they make (npu opt -o) and measure that "
        "with --passes none",
    )


def _names(document: GraphDocument) -> dict[str, int]:
    """Return the box of each name of a node or of a value that a node computes."""
    nodes = [(node, at) for node, at in document.position.items() if isinstance(node, OpNode)]
    nodes = [(node, at) for node, at in nodes if node.graph is document.graph]
    values = {value.name: at for node, at in nodes for value in node.outputs}
    return {**values, **{node.name: at for node, at in nodes}}


def _place(overlay: Overlay, places: Mapping[str, int]) -> dict[str, Any]:
    values: dict[int, _Reading] = {}
    for name, (value, remark) in overlay.values.items():
        at = places.get(name)
        if at is not None and (at not in values or _is_more(value, values[at][0])):
            values[at] = value, make_printable(remark, 300)
    missing = len(overlay.values.keys() - places.keys())
    return {
        "name": overlay.name,
        "rule": overlay.rule,
        "unit": overlay.unit,
        "missing": missing,
        "values": [[at, value, remark] for at, (value, remark) in sorted(values.items())],
    }


def _is_more(value: float | str, other: float | str) -> bool:
    return not isinstance(value, str) and not isinstance(other, str) and value > other
