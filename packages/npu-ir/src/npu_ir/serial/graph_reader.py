"""Construction of a graph from the data of a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from npu_ir.core.node import NO_PROVENANCE, Argument, InputKind, OpNode, Origin, Provenance, Value
from npu_ir.core.structure import Structure
from npu_ir.core.types import TensorType, Type
from npu_ir.graph.graph import Graph
from npu_ir.graph.rules.edits import MAX_REGION_DEPTH
from npu_ir.serial.strict_json import (
    UPGRADE,
    Location,
    RecordKeys,
    read_as,
    read_pair,
    read_record,
    read_texts,
    short_repr,
)
from npu_ir.serial.tensor_layout import unstorable_reason
from npu_ir.serial.value_json import read_literal, read_number, read_tree, read_type, read_value
from npu_ir.symbolic.constraints import RELATIONS, Constraint, Range

_ARGUMENT = RecordKeys(
    frozenset({"kind", "name", "target", "type"}), frozenset({"aliases", "persistent", "overlaps", "data"})
)
_DATA = RecordKeys(frozenset({"tensor", "sha256"}))
_NODE = RecordKeys(
    frozenset({"name", "op", "inputs", "operands", "attrs", "outputs"}), frozenset({"provenance", "regions"})
)
REGION_KEYS = RecordKeys(frozenset({"name", "arguments", "call", "nodes", "results"}))
_PROVENANCE = RecordKeys(frozenset(), frozenset({"module", "source", "fused_from", "phase", "origins"}))
_KINDS: Mapping[str, InputKind] = {kind.value: kind for kind in InputKind}


class TensorReader(Protocol):
    """Source of the data of constants and buffers: a `TensorFile`, for example."""

    def read(self, name: str, type: TensorType, sha256: str) -> torch.Tensor:
        """Return the tensor called ``name``, which is of this type and has this hash."""


class GraphReader:
    """Builder of the graph or region at ``place``, inside ``depth`` regions, with data from ``tensors``."""

    def __init__(self, name: str, place: Location, tensors: TensorReader | None, depth: int = 0) -> None:
        self._graph = Graph(name)
        self._place = place
        self._tensors = tensors
        self._depth = depth
        self._values: dict[str, Value] = {}
        self._has_origins = False

    def read(self, data: Mapping[str, Any]) -> Graph:
        """Return the graph that a document with these entries describes.

        Raises:
            SerializationError: The entries are invalid; says where.
            GraphError: The graph breaks a rule of the IR.
        """
        for name, row in read_as(dict, data.get("symbols", {}), self._place, "symbols").items():
            self._symbol(name, row, self._place.at("symbols", name))
        for index, row in enumerate(read_as(list, data.get("constraints", []), self._place, "constraints")):
            self._constraint(row, self._place.at("constraints", index))
        for index, row in enumerate(read_as(list, data["arguments"], self._place, "arguments")):
            self._argument(row, self._place.at("arguments", index))
        for index, row in enumerate(read_as(list, data["nodes"], self._place, "nodes")):
            self._node(row, self._place.at("nodes", index))
        if "prologue" in data:
            self._prologue(data["prologue"], self._place.at("prologue"))
        if data["call"] is not None:
            structure, leaves = self._tree(data["call"], "call")
            with self._place.translate_errors("call"):
                self._graph.set_call_structure(structure, leaves)
        self._graph.set_results(*self._tree(data["results"], "results"))
        for index, row in enumerate(read_as(list, data.get("updates", []), self._place, "updates")):
            self._update(row, self._place.at("updates", index))
        if self._has_origins:
            self._graph.track_origins()
        return self._graph

    def _symbol(self, name: str, data: Any, place: Location) -> None:
        low, high = read_pair(data, place)
        if not all(end is None or type(end) is int for end in (low, high)):
            raise place.error(
                f"expected a pair of integers, or null for an open end, found {short_repr(data)}"
            )
        with place.translate_errors():
            self._graph.add_symbol(name, Range(low, high))

    def _constraint(self, data: Any, place: Location) -> None:
        items = read_as(list, data, place)
        if len(items) != 3 or type(items[1]) is not str or items[1] not in RELATIONS:
            raise place.error(
                f"expected two expressions with a relation between them, found {short_repr(data)}"
            )
        constraint = Constraint(read_number(items[0], place, 0), items[1], read_number(items[2], place, 2))
        with place.translate_errors():
            self._graph.add_constraint(constraint)

    def _argument(self, data: Any, place: Location) -> None:
        row = read_record(data, _ARGUMENT, place)
        kind = _KINDS.get(read_as(str, row["kind"], place, "kind"))
        if kind is None:
            problem = f"{short_repr(row['kind'])} is not one of {', '.join(_KINDS)}"
            raise place.at("kind").error(problem, UPGRADE)
        type = read_type(row["type"], place, "type")
        argument = Argument(
            kind,
            read_as(str, row["target"], place, "target"),
            tuple(read_texts(row.get("aliases", []), place, "aliases")),
            read_as(bool, row.get("persistent", True), place, "persistent"),
            self._data(row["data"], type, place.at("data")) if "data" in row else None,
            _read_overlap(row["overlaps"], place.at("overlaps")) if "overlaps" in row else None,
        )
        _require_consistent(argument, type, place)
        name = self._new_name(row["name"], place, "name")
        with place.translate_errors("target"):
            self._values[name] = self._graph._add_argument(name, type, argument)

    def _data(self, data: Any, type: Type, place: Location) -> torch.Tensor:
        row = read_record(data, _DATA, place)
        if not isinstance(type, TensorType):
            raise place.error(f"a value of type {type} has no data")
        reason = unstorable_reason(type)
        if reason is not None:
            raise place.error(reason)
        if self._tensors is None:
            raise place.error("the document names no file with tensors")
        return self._tensors.read(
            read_as(str, row["tensor"], place, "tensor"), type, read_as(str, row["sha256"], place, "sha256")
        )

    def _node(self, data: Any, place: Location) -> None:
        row = read_record(data, _NODE, place)
        name = read_as(str, row["name"], place, "name")
        attrs = read_as(dict, row["attrs"], place, "attrs")
        outputs = read_as(list, row["outputs"], place, "outputs")
        names, types = [], []
        for index, item in enumerate(outputs):
            output, output_type = read_pair(item, place, "outputs", index)
            names.append(self._new_name(output, place, "outputs", index, 0))
            types.append(read_type(output_type, place, "outputs", index, 1))
        with place.translate_errors():
            node = self._graph.insert(
                read_as(str, row["op"], place, "op"),
                [
                    read_value(self._values, item, place, "inputs", index)
                    for index, item in enumerate(read_as(list, row["inputs"], place, "inputs"))
                ],
                {key: read_literal(item, place, "attrs", key) for key, item in attrs.items()},
                types=types,
                operands=None if row["operands"] is None else read_texts(row["operands"], place, "operands"),
                regions=self._regions(row.get("regions", {}), place.at("regions")),
                name=name,
                output_names=names,
                provenance=_read_provenance(row["provenance"], place)
                if "provenance" in row
                else NO_PROVENANCE,
            )
        if node.name != name:
            raise place.at("name").error(f"{short_repr(name)} is the name of another node")
        if "origins" in row.get("provenance", {}):
            self._origins(node, row["provenance"]["origins"], place.at("provenance", "origins"))
        for index, value in enumerate(node.outputs):
            self._values[self._new_name(names[index], place, "outputs", index, 0)] = value

    def _origins(self, node: OpNode, data: Any, place: Location) -> None:
        rows = read_as(list, data, place)
        if len(rows) != len(node.outputs):
            count = len(node.outputs)
            raise place.error(f"expected a list for each of {count} outputs, found {short_repr(rows)}")
        for index, value in enumerate(node.outputs):
            value._origins = tuple(
                _read_origin(item, place.at(index, number))
                for number, item in enumerate(read_as(list, rows[index], place, index))
            )
        self._has_origins = True

    def _prologue(self, data: Any, place: Location) -> None:
        nodes = self._graph.nodes
        if type(data) is not int or not 0 <= data <= len(nodes):
            raise place.error(f"expected a number of nodes, at most {len(nodes)}, found {short_repr(data)}")
        for index, node in enumerate(nodes[:data]):
            with self._place.translate_errors("nodes", index):
                self._graph.move_to_prologue(node)

    def _regions(self, data: Any, place: Location) -> dict[str, Graph]:
        regions = {}
        if data and self._depth >= MAX_REGION_DEPTH:
            raise place.error(f"regions nested deeper than {MAX_REGION_DEPTH}")
        for argument, row in read_as(dict, data, place).items():
            inner = place.at(argument)
            record = read_record(row, REGION_KEYS, inner)
            name = read_as(str, record["name"], inner, "name")
            regions[argument] = GraphReader(name, inner, self._tensors, self._depth + 1).read(record)
        return regions

    def _new_name(self, data: Any, place: Location, *steps: str | int) -> str:
        name = read_as(str, data, place, *steps)
        if name in self._values:
            raise place.at(*steps).error(f"another value is called {short_repr(name)}")
        return name

    def _tree(self, data: Any, key: str) -> tuple[Structure, list[Any]]:
        leaves: list[Any] = []
        return read_tree(data, self._place.at(key), self._values, leaves), leaves

    def _update(self, data: Any, place: Location) -> None:
        names, stated = (data[:2], data[2:]) if isinstance(data, list) and len(data) == 3 else (data, [])
        target, value = (
            read_value(self._values, name, place, index) for index, name in enumerate(read_pair(names, place))
        )
        if stated and read_type(stated[0], place, 2) != value.type:
            raise place.at(2).error(f"%{value.name} is {value.type}, not {short_repr(stated[0])}")
        if target in self._graph.updates:
            raise place.at(0).error(f"{short_repr(target.name)} is updated twice")
        with place.translate_errors():
            self._graph.set_update(target, value, replaces=bool(stated))


def _read_overlap(data: Any, place: Location) -> tuple[str, int]:
    target, offset = read_pair(data, place)
    if type(offset) is not int:
        raise place.at(1).error(f"expected an integer, found {short_repr(offset)}")
    return read_as(str, target, place, 0), offset


def _require_consistent(argument: Argument, type: Type, place: Location) -> None:
    kind = argument.kind
    if kind is not InputKind.INPUT and not isinstance(type, TensorType):
        raise place.at("type").error(f"a {kind.value} is a tensor, not {type}")
    if argument.aliases and kind not in (InputKind.PARAMETER, InputKind.BUFFER):
        raise place.at("aliases").error(f"a {kind.value} has no aliases")
    if not argument.persistent and kind is not InputKind.BUFFER:
        raise place.at("persistent").error("only a buffer can be left out of the state_dict")
    if argument.overlaps is not None and kind is not InputKind.INPUT:
        raise place.at("overlaps").error("only inputs overlap")
    if argument.data is None and kind is InputKind.CONSTANT:
        raise place.error("a constant has no data")
    if argument.data is not None and argument.persistent and kind is not InputKind.CONSTANT:
        raise place.at("data").error(
            f"a {kind.value} has no data: it comes with the weights or from the user"
        )


def _read_origin(data: Any, place: Location) -> Origin:
    texts = read_texts(data, place)
    if len(texts) != 3:
        raise place.error(f"expected a name, a module and a line, found {short_repr(data)}")
    return Origin(*texts)


def _read_provenance(data: Any, place: Location) -> Provenance:
    row = read_record(data, _PROVENANCE, place, "provenance")
    return Provenance(
        read_as(str, row.get("module", ""), place, "provenance", "module"),
        read_as(str, row.get("source", ""), place, "provenance", "source"),
        tuple(read_texts(row.get("fused_from", []), place, "provenance", "fused_from")),
        read_as(str, row.get("phase", ""), place, "provenance", "phase"),
    )
