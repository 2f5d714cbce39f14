"""From the data of a checked JSON document to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from npu_ir.errors import GraphError
from npu_ir.graph import Graph
from npu_ir.node import NO_PROVENANCE, Argument, InputKind, Provenance, Value
from npu_ir.serial.place import (
    UPGRADE,
    Place,
    read_flag,
    read_items,
    read_pair,
    read_record,
    read_text,
    read_texts,
    shown,
)
from npu_ir.serial.tensor_file import TensorFile
from npu_ir.serial.tensor_layout import check_supported
from npu_ir.serial.trees import read_literal, read_tree, read_value
from npu_ir.serial.written_types import read_type
from npu_ir.structure import Structure
from npu_ir.types import TensorType, Type

_ARGUMENT = frozenset({"kind", "name", "target", "type"})
_ARGUMENT_MORE = frozenset({"aliases", "persistent", "data"})
_DATA = frozenset({"tensor", "sha256"})
_NODE = frozenset({"name", "op", "inputs", "operands", "attrs", "outputs"})
_NODE_MORE = frozenset({"provenance"})
_PROVENANCE = frozenset({"module", "source", "fused_from"})
_KINDS: Mapping[Any, InputKind] = {kind.value: kind for kind in InputKind}


class GraphReader:
    """Builds one graph.

    Args:
        name: Of the graph.
        place: The document.
        tensors: The file with the data of constants and buffers, if there is one.
    """

    def __init__(self, name: str, place: Place, tensors: TensorFile | None) -> None:
        self._graph = Graph(name)
        self._place = place
        self._tensors = tensors
        self._values: dict[str, Value] = {}

    def read(self, data: Mapping[str, Any]) -> Graph:
        """Return the graph that a document with these entries describes.

        Raises:
            SerializationError: It describes none; says where.
            GraphError: The graph breaks a rule of the IR.
        """
        for index, row in enumerate(read_items(data["arguments"], self._place.at("arguments"))):
            self._argument(row, self._place.at("arguments", index))
        for index, row in enumerate(read_items(data["nodes"], self._place.at("nodes"))):
            self._node(row, self._place.at("nodes", index))
        if data["call"] is not None:
            self._call(data["call"], self._place.at("call"))
        leaves: list[Any] = []
        self._graph.set_results(read_tree(data["results"], self._place.at("results"), self._values, leaves), leaves)
        for index, row in enumerate(read_items(data["updates"], self._place.at("updates"))):
            place = self._place.at("updates", index)
            target, value = read_pair(row, place)
            self._graph.set_update(read_value(target, place.at(0), self._values), read_value(value, place.at(1), self._values))
        return self._graph

    def _argument(self, data: Any, place: Place) -> None:
        row = read_record(data, place, _ARGUMENT, _ARGUMENT_MORE)
        kind = _KINDS.get(read_text(row["kind"], place.at("kind")))
        if kind is None:
            raise place.at("kind").error(f"{shown(row['kind'])} is none of {', '.join(_KINDS)}", UPGRADE)
        type = read_type(row["type"], place.at("type"))
        argument = Argument(
            kind,
            read_text(row["target"], place.at("target")),
            tuple(read_texts(row.get("aliases", []), place.at("aliases"))),
            read_flag(row.get("persistent", True), place.at("persistent")),
            self._data(row["data"], type, place.at("data")) if "data" in row else None,
        )
        _require_consistent(argument, type, place)
        name = read_text(row["name"], place.at("name"))
        self._require_new(name, place.at("name"))
        try:
            self._values[name] = self._graph._add_argument(name, type, argument)
        except GraphError as error:
            raise place.at("target").error(error.message) from error

    def _data(self, data: Any, type: Type, place: Place) -> torch.Tensor:
        row = read_record(data, place, _DATA)
        if not isinstance(type, TensorType):
            raise place.error(f"a value of type {type} has no data")
        problem = check_supported(type)
        if problem is not None:
            raise place.error(problem)
        if self._tensors is None:
            raise place.error("the document names no file with tensors")
        return self._tensors.read(read_text(row["tensor"], place.at("tensor")), type, read_text(row["sha256"], place.at("sha256")))

    def _node(self, data: Any, place: Place) -> None:
        if type(data) is dict and "regions" in data:
            raise place.at("regions").error("nodes that own sub-graphs are not supported", UPGRADE)
        row = read_record(data, place, _NODE, _NODE_MORE)
        name = read_text(row["name"], place.at("name"))
        inputs = self._inputs(row["inputs"], place.at("inputs"))
        operands = row["operands"]
        outputs = [self._output(item, place.at("outputs", index)) for index, item in enumerate(read_items(row["outputs"], place.at("outputs")))]
        try:
            node = self._graph.insert(
                read_text(row["op"], place.at("op")),
                inputs,
                _attrs(row["attrs"], place.at("attrs")),
                types=[type for _, type in outputs],
                operands=None if operands is None else read_texts(operands, place.at("operands")),
                name=name,
                output_names=[name for name, _ in outputs],
                provenance=_provenance(row["provenance"], place.at("provenance")) if "provenance" in row else NO_PROVENANCE,
            )
        except GraphError as error:
            raise place.error(error.message) from error
        if node.name != name:
            raise place.at("name").error(f"another node is called {shown(name)}")
        for index, (wanted, _) in enumerate(outputs):
            if node.outputs[index].name != wanted:
                raise place.at("outputs", index, 0).error(f"another value is called {shown(wanted)}")
            self._values[wanted] = node.outputs[index]

    def _inputs(self, data: Any, place: Place) -> list[Value]:
        names = read_items(data, place)
        try:
            return [self._values[name] for name in names]
        except (KeyError, TypeError):
            return [read_value(name, place.at(index), self._values) for index, name in enumerate(names)]

    def _output(self, data: Any, place: Place) -> tuple[str, Type]:
        name, type = read_pair(data, place)
        self._require_new(read_text(name, place.at(0)), place.at(0))
        return name, read_type(type, place.at(1))

    def _require_new(self, name: str, place: Place) -> None:
        if name in self._values:
            raise place.error(f"another value is called {shown(name)}")

    def _call(self, data: Any, place: Place) -> None:
        leaves: list[Any] = []
        structure = read_tree(data, place, self._values, leaves)
        if not _is_call(structure):
            raise place.error("a call is a tuple of two: the arguments in a tuple, the keyword arguments in a dict")
        try:
            self._graph.set_call_structure(structure, leaves)
        except GraphError as error:
            raise place.error(error.message) from error


def _require_consistent(argument: Argument, type: Type, place: Place) -> None:
    kind = argument.kind
    if kind is not InputKind.INPUT and not isinstance(type, TensorType):
        raise place.at("type").error(f"a {kind.value} is a tensor, not {type}")
    if argument.aliases and kind not in (InputKind.PARAMETER, InputKind.BUFFER):
        raise place.at("aliases").error(f"a {kind.value} has no aliases")
    if not argument.persistent and kind is not InputKind.BUFFER:
        raise place.at("persistent").error("only a buffer can be left out of the state_dict")
    if argument.data is None and kind is InputKind.CONSTANT:
        raise place.error("a constant has no data")
    if argument.data is not None and argument.persistent and kind is not InputKind.CONSTANT:
        raise place.at("data").error(f"a {kind.value} has no data: it comes with the weights or from the user")


def _attrs(data: Any, place: Place) -> dict[str, Any]:
    if type(data) is not dict:
        raise place.error(f"expected an object, found {shown(data)}")
    return {name: read_literal(item, place.at(name)) for name, item in data.items()}


def _provenance(data: Any, place: Place) -> Provenance:
    row = read_record(data, place, frozenset(), _PROVENANCE)
    return Provenance(
        read_text(row.get("module", ""), place.at("module")),
        read_text(row.get("source", ""), place.at("source")),
        tuple(read_texts(row.get("fused_from", []), place.at("fused_from"))),
    )


def _is_call(structure: Structure) -> bool:
    if structure.kind != "tuple" or [child.kind for child in structure.children] != ["tuple", "dict"]:
        return False
    return all(isinstance(name, str) for name in structure.children[1].context)
