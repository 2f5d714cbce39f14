"""The file of a stored step: safetensors, with the graph and what its plan remembers in the header."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_ir import Graph, TensorType
from npu_ir.core.tensor_bytes import content_buffer
from npu_ir.serial.atomic_write import staged_files
from npu_ir.serial.document import CompanionFiles, StoredData, iterate_document
from npu_ir.serial.load import build_graph, check_document
from npu_ir.serial.strict_json import Location, RecordKeys, parse_json, read_as, read_record
from npu_ir.serial.tensor_file import TensorFile, write_tensors
from npu_ir.serial.tensor_layout import pack, require_storable
from npu_runtime.planned import PlanMemo
from npu_runtime.training.tracing.traced_step import StepBranch

_ENTRY, _DIGEST = "npu-step", "npu-step.sha256"
_VERSION = 1
_KEYS = RecordKeys(frozenset({"version", "key", "graph", "state", "branches", "traits", "offsets"}))
_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class StoredBranch:
    """A branch that Python took by the value of a number: a relation of names or numbers."""

    text: str
    operator: str
    left: str | float
    right: str | float

    @property
    def names(self) -> frozenset[str]:
        """The names in it."""
        return frozenset(side for side in (self.left, self.right) if isinstance(side, str))

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether the same branch is taken for other values of the numbers, given by name."""
        sides = [values[side] if isinstance(side, str) else side for side in (self.left, self.right)]
        return _RELATIONS[self.operator](*sides)

    def relation(self) -> tuple[str, str | float, str | float]:
        """Return the condition as a relation of two names or numbers."""
        return self.operator, self.left, self.right


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A traced step after its passes, without anything of a process.

    Attributes:
        graph: The graph after the passes.
        state: The names of the optimizer state.
        branches: The branches that the trace took on hyperparameters.
        memo: The results of planning it.
    """

    graph: Graph
    state: tuple[str, ...]
    branches: tuple[StoredBranch, ...]
    memo: PlanMemo


def store_branches(branches: Sequence[StepBranch]) -> tuple[StoredBranch, ...] | None:
    """Return branches as a file has them; None if one is not a relation of names and numbers."""
    stored = []
    for branch in branches:
        relation = branch.relation()
        if relation is None or relation[0] not in _RELATIONS:
            return None
        stored.append(StoredBranch(branch.text, *relation))
    return tuple(stored)


def write_step(step: StoredStep, key: str, path: Path) -> None:
    """Write a step to one file, which appears complete or not at all.

    Raises:
        SerializationError: A tensor of the graph cannot be stored.
        OSError: The file cannot be written.
    """
    data = {
        value: (value.data, value.tensor_type)
        for part in step.graph.graphs()
        for value in part.arguments
        if value.data is not None
    }
    for value, (tensor, _) in data.items():
        require_storable(tensor, value.name)
    names = {value: str(index) for index, value in enumerate(data)}
    stored: dict[str, tuple[Any, TensorType]] = {names[value]: item for value, item in data.items()}
    digests = {
        value: StoredData(names[value], hashlib.sha256(content_buffer(pack(*item))).hexdigest())
        for value, item in data.items()
    }
    beside = CompanionFiles(None, None, digests)
    content = {
        "version": _VERSION,
        "key": key,
        "graph": json.loads("".join(iterate_document(step.graph, beside))),
        "state": step.state,
        "branches": [[item.text, item.operator, item.left, item.right] for item in step.branches],
        "traits": step.memo.traits,
        "offsets": step.memo.offsets,
    }
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    header = {_ENTRY: text, _DIGEST: hashlib.sha256(text.encode()).hexdigest()}
    with staged_files(path.parent) as files:
        files.write(lambda file: (write_tensors(file, stored, header), path.name)[1])


def read_step(path: Path, key: str) -> StoredStep:
    """Return the step in a file.

    Raises:
        SerializationError: The file is damaged, or not a step of this key.
    """
    place = Location(str(path))
    with TensorFile(path) as file:
        text = file.metadata.get(_ENTRY)
        if not isinstance(text, str):
            raise place.error("this is not a stored step")
        if file.metadata.get(_DIGEST) != hashlib.sha256(text.encode()).hexdigest():
            raise place.error("the header is not what was stored: its SHA-256 differs")
        content = read_record(parse_json(text.encode(), str(place)), _KEYS, place)
        if (content["version"], content["key"]) != (_VERSION, key):
            raise place.error("it is a step of another key")
        document = check_document(content["graph"], place.at("graph"))
        graph = build_graph(document, place.at("graph"), file)
    return StoredStep(
        graph,
        tuple(read_as(list, content["state"], place, "state")),
        tuple(StoredBranch(*item) for item in read_as(list, content["branches"], place, "branches")),
        PlanMemo(
            read_as(dict, content["traits"], place, "traits"),
            read_as(dict, content["offsets"], place, "offsets"),
        ),
    )
