"""Facts about a graph, as data for JSON and as lines for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from npu_ir.cli.quantities import count_text, size_text
from npu_ir.core.node import Value
from npu_ir.core.types import TensorType, dtype_name
from npu_ir.graph.graph import Graph
from npu_ir.ops.execution import is_executable
from npu_ir.serial.load import companion_file_name, read_document
from npu_ir.serial.strict_json import Location
from npu_ir.symbolic.constraints import Range

_TOP_OPS = 12
_TOP_UPDATES = 12
_TENSORS = ("parameters", "buffers", "optimizer_state", "constants")


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Return the types, sizes and ops of ``graph``, as JSON data."""
    structure, leaves = graph.results
    nodes = [node for part in graph.graphs() for node in part.nodes]
    return {
        "name": graph.name,
        "symbols": {name: [range.low, range.high] for name, range in graph.symbols.items()},
        "constraints": [str(constraint) for constraint in graph.constraints],
        "inputs": [{"name": value.name, "type": str(value.type)} for value in graph.inputs],
        "outputs": [
            {"path": path, "type": str(leaf.type) if isinstance(leaf, Value) else f"always {leaf!r}"}
            for path, leaf in zip(structure.leaf_paths("result"), leaves, strict=True)
        ],
        "updates": [target.name for target in graph.updates],
        **{kind: _tensor_facts(getattr(graph, kind).values()) for kind in _TENSORS},
        "nodes": len(nodes),
        "regions": sum(len(node.regions) for node in nodes),
        "nodes_in_regions": len(nodes) - len(graph),
        "nodes_in_prologue": len(graph.prologue),
        "ops": dict(Counter(node.op_type for node in nodes).most_common()),
        "unknown_ops": [op for op in dict.fromkeys(node.op_type for node in nodes) if not is_executable(op)],
    }


def file_facts(path: Path) -> dict[str, Any]:
    """Return the files of the graph saved at ``path`` with their sizes, its format and its torch version.

    Raises:
        SerializationError: The file is not a graph.
    """
    document = read_document(path)
    place = Location(str(path))
    others = [companion_file_name(document[key], place.at(key)) for key in ("tensors", "weights")]
    files = [path, *(path.with_name(name) for name in others if name is not None)]
    sizes = {file.name: file.stat().st_size if file.exists() else None for file in files}
    return {"format": document["version"], "torch": document["torch"], "files": sizes}


def _tensor_facts(values: Iterable[Value]) -> dict[str, Any]:
    types = [value.type for value in values if isinstance(value.type, TensorType)]
    bytes_by_dtype: Counter[str] = Counter()
    for type in types:
        bytes_by_dtype[dtype_name(type.dtype)] += math.prod(type.static_shape) * type.dtype.itemsize
    return {
        "count": len(types),
        "elements": sum(math.prod(type.static_shape) for type in types),
        "bytes": bytes_by_dtype.total(),
        "bytes_by_dtype": dict(bytes_by_dtype.most_common()),
    }


def graph_lines(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the result of `graph_facts` as lines to print, by their captions."""
    lines = {
        "graph": facts["name"],
        "symbols": "\n".join(f"{name} in {Range(*ends)}" for name, ends in facts["symbols"].items()),
        "constraints": "\n".join(facts["constraints"]),
        "inputs": "\n".join(f"{item['name']}: {item['type']}" for item in facts["inputs"]) or "none",
        "outputs": "\n".join(f"{item['path']}: {item['type']}" for item in facts["outputs"]) or "none",
        "updates": ", ".join(_first_of(facts["updates"], _TOP_UPDATES)),
        **{kind.replace("_", " "): _tensors_line(facts[kind]) for kind in _TENSORS},
        "nodes": _nodes_line(facts),
    }
    return {caption: line for caption, line in lines.items() if line}


def _first_of(names: Sequence[str], limit: int) -> list[str]:
    left_out = [f"... and {len(names) - limit:,} more"] if len(names) > limit else []
    return [*names[:limit], *left_out]


def _nodes_line(facts: Mapping[str, Any]) -> str:
    line = f"{count_text(facts['nodes'], 'node')} of {count_text(len(facts['ops']), 'op')}"
    places = []
    if facts["nodes_in_prologue"]:
        places.append(f"{facts['nodes_in_prologue']:,} of them in the prologue")
    if facts["regions"]:
        places.append(f"{facts['nodes_in_regions']:,} of them in {count_text(facts['regions'], 'region')}")
    return ", ".join([line, *places])


def ops_text(ops: Mapping[str, int]) -> str:
    """Return the most frequent ops, one per line with its count."""
    top = list(ops.items())[:_TOP_OPS]
    width = max((len(f"{count:,}") for _, count in top), default=0)
    lines = [f"{count:{width},}  {op}" for op, count in top]
    left_out = len(ops) - len(top)
    return "\n".join([*lines, *([f"... and {count_text(left_out, 'other op')}"] if left_out else [])])


def unknown_ops_text(ops: Sequence[str]) -> str:
    """Return the number of ops that cannot run here, and the first of them."""
    head = f"{count_text(len(ops), 'op')} that neither PyTorch nor a plugin has here:"
    return "\n".join([head, *_first_of(ops, _TOP_OPS)])


def files_text(sizes: Mapping[str, int | None]) -> str:
    """Return each file with its size, one per line."""
    texts = {name: "missing" if size is None else size_text(size) for name, size in sizes.items()}
    return "\n".join(f"{name}, {text}" for name, text in texts.items())


def _tensors_line(facts: Mapping[str, Any]) -> str:
    if not facts["count"]:
        return ""
    dtypes = facts["bytes_by_dtype"]
    sizes = ", ".join(f"{size_text(size)} {dtype}" for dtype, size in dtypes.items())
    return f"{count_text(facts['count'], 'tensor')}, {count_text(facts['elements'], 'element')}, {sizes}"
