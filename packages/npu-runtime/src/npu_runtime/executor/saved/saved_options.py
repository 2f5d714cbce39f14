"""The options of a saved executor: they are checked as those of a new one are."""

from __future__ import annotations

from typing import Any

from npu_ir import Graph
from npu_ir.serial.strict_json import Location, RecordKeys, read_as, read_record
from npu_runtime.executor.input_updates import InputUpdates
from npu_runtime.executor.options import require_threads
from npu_runtime.executor.overwritten_inputs import resolve_donated
from npu_runtime.executor.saved.file_errors import named_place

_KEYS = RecordKeys(frozenset({"threads", "updates", "donate"}))


def read_options(data: Any, graph: Graph, place: Location) -> dict[str, Any]:
    """Return ``threads``, ``updates`` and ``donate`` of an executor of a graph.

    Raises:
        SerializationError: They are not those of an executor of this graph.
    """
    options = read_record(data, _KEYS, place)
    donate = read_as(dict, options["donate"], place, "donate")
    with named_place(str(place)):
        require_threads(options["threads"])
        InputUpdates(graph, options["updates"])
        return {**options, "donate": resolve_donated(graph, donate)}
