"""Files that are damaged, hostile or too new give a SerializationError that says what and where."""

import copy
import gc
import json
import os
import random
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_ir import Graph, Provenance, SerializationError, TensorType, load_ir, save_ir
from npu_ir.serial import strict_json
from npu_ir.serial.tensor_file import TensorFile
from tests.support.documents import load_changed
from tests.support.rows import each_row
from tests.support.tiers import examples

F32 = TensorType((2, 3), torch.float32)
Edit = Callable[[dict[str, Any]], object]


def full_graph() -> Graph:
    """Return a small graph with at least one of everything a document holds."""
    graph = Graph("full")
    x = graph.add_input("x", F32)
    weight = graph.add_parameter("w", TensorType((3, 2), torch.float32, (1, 3)), aliases=["tied"])
    count = graph.add_buffer("count", TensorType((), torch.int64))
    table = graph.add_buffer("table", F32, persistent=False, data=torch.arange(6.0).view(2, 3))
    constant = graph.add_constant("c", torch.arange(6).to(torch.complex128).view(3, 2).t())
    device = torch.device("cpu")
    attrs = {"dim": 1, "dtype": torch.float32, "device": device, "scale": float("inf"), "list": [1, 2.5]}
    node = graph.insert("test_ops.mix.default", [x, weight, table, constant], attrs, types=[F32, F32])
    provenance = Provenance("layers.0", "model.py:3", ("a", "b"))
    plus = graph.insert(
        "aten.add.Tensor", [x, x], types=F32, operands=["self", "other"], provenance=provenance
    )
    step = graph.insert("test_ops.step.default", [count], {"z": 1 + 2j}, types=count.type)
    graph.set_update(count, step.outputs[0])
    graph.set_call([x], {"scale": 2.0})
    graph.set_outputs({"a": [node.outputs[0], None], 3: (plus.outputs[0], 1.5)})
    return graph


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_ir(full_graph(), tmp_path / "graph.json")
    return tmp_path / "graph.json"


def document(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def tensor_file(path: Path) -> Path:
    return path.with_name(document(path)["tensors"])


def outcome(path: Path) -> Graph | None:
    """Load ``path``: a graph that keeps the rules, or None for a SerializationError; all else fails."""
    try:
        graph = load_ir(path)
    except SerializationError as error:
        assert error.where is not None
        assert error.fix is not None
        return None
    graph.check()
    return graph


def test_a_document_cut_short_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()

    for length in [*range(0, len(content) - 2, 7), len(content) - 2]:
        path.write_bytes(content[:length])
        assert outcome(path) is None, length


def test_a_tensor_file_cut_short_anywhere_is_refused(path: Path) -> None:
    file = tensor_file(path)
    content = file.read_bytes()

    for length in range(len(content)):
        file.write_bytes(content[:length])
        assert outcome(path) is None, length


def test_a_document_with_a_changed_byte_is_refused_or_a_graph(path: Path) -> None:
    content = path.read_bytes()
    generator = random.Random(0)

    for _ in range(examples(300).max_examples):
        changed = bytearray(content)
        for _ in range(generator.choice([1, 1, 1, 4])):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        path.write_bytes(changed)
        outcome(path)


def test_a_tensor_file_with_a_changed_byte_is_refused_or_the_same(path: Path) -> None:
    file = tensor_file(path)
    content = file.read_bytes()

    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0x11
        file.write_bytes(changed)
        assert outcome(path) in (None, full_graph()), position


def places(data: Any, steps: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if steps:
        yield steps
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from places(item, (*steps, key))


def parent_of(data: Any, steps: tuple[Any, ...]) -> Any:
    for step in steps[:-1]:
        data = data[step]
    return data


WRONG = [
    None, True, -1, 0, 2**63, 10**300, 1.5, "", "x", "w", "f32", "../x", "\ud800", [], {}, [[]], ["x"],
    [["f32", []]], {"x": 1}, {"value": "x"}, {"float": "nan"}, {"dtype": []}, {"device": 0},
    {"complex": [1.0, {}]}, {"kind": "dict", "items": []},
    {"kind": "namedtuple", "items": [], "context": ["os.system", []]},
]  # fmt: skip


def test_a_document_with_anything_replaced_is_refused_or_a_graph(path: Path) -> None:
    original = document(path)
    generator = random.Random(0)

    for steps in places(original):
        for wrong in generator.sample(WRONG, min(len(WRONG), examples(4).max_examples)):
            changed = copy.deepcopy(original)
            parent_of(changed, steps)[steps[-1]] = wrong
            path.write_text(json.dumps(changed))
            outcome(path)


def test_a_document_that_lacks_anything_is_refused_or_a_graph(path: Path) -> None:
    original = document(path)
    optional = {
        "persistent",
        "provenance",
        "aliases",
        "context",
        "module",
        "source",
        "fused_from",
        "phase",
        "origins",
    }

    for steps in places(original):
        changed = copy.deepcopy(original)
        del parent_of(changed, steps)[steps[-1]]
        path.write_text(json.dumps(changed))
        refused = outcome(path) is None
        is_fixed_key = (
            isinstance(steps[-1], str) and "attrs" not in steps[:-1] and "schemas" not in steps[:-1]
        )
        may_be_missing = steps[-1] in optional or steps == ("arguments", 3, "data")
        assert refused or not is_fixed_key or may_be_missing, steps


def test_an_object_with_an_unknown_key_is_refused(path: Path) -> None:
    original = document(path)
    objects = [
        (*steps, "more") for steps in places(original) if isinstance(parent_of(original, (*steps, 0)), dict)
    ]
    fixed = [steps for steps in objects if steps[-2] not in ("attrs", "schemas")]

    for steps in [("more",), *fixed]:
        changed = copy.deepcopy(original)
        parent_of(changed, steps)["more"] = 1
        path.write_text(json.dumps(changed))
        assert outcome(path) is None, steps
    assert len(fixed) > 20


def steps_to(place: str) -> tuple[Any, ...]:
    """Return the way to a place that is written as errors write it: ``nodes[0].attrs.dim``."""
    return tuple(int(step) if step.isdigit() else step.strip("'") for step in re.findall(r"'.*?'|\w+", place))


def put(place: str, content: Any) -> Edit:
    def edit(data: dict[str, Any]) -> None:
        steps = steps_to(place)
        parent_of(data, steps)[steps[-1]] = content

    return edit


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    data: Any = 1
    for _ in range(depth):
        data = wrap(data)
    return data


def require_refusal(path: Path, edit: Edit, message: str, where: str) -> None:
    """Require that the graph is refused after ``edit`` of its document, with this message and place."""
    with pytest.raises(SerializationError, match=rf"(?s){message}.*at: .*{where}.*fix: "):
        load_changed(full_graph(), edit, path.parent)


@each_row("place, content, message", [
    ("version", 2, "made by a newer version of npu-ir: format 2, this one reads 1"),
    ("version", 0, "0 is not a version"),
    ("version", True, "True is not a version"),
    ("more", 1, "unknown key"),
    ("torch", 2, "expected a string, found 2"),
    ("nodes", {}, "expected a list"),
    ("schemas", [], "expected an object"),
    ("schemas['x.y']", 1, "expected a string"),
    ("arguments[0].kind", "symbol", "'symbol' is not one of"),
    ("arguments[0].type", "str", "'str' is not a type"),
    ("arguments[0].type", ["f32"], r"expected \[dtype, shape\]"),
    ("arguments[0].type[0]", "f31", "this PyTorch has no dtype 'f31'"),
    ("arguments[0].type[1][0]", -1, "-1 is not a size"),
    ("arguments[0].type[1][0]", 2**63, "is not a size"),
    ("arguments[0].type[1][0]", 2.0, "2.0 is not a size"),
    ("arguments[0].type[1][0]", "s**1025", "is not an expression: a power of 1025 is too large"),
    ("arguments[1].type", ["f32", [3, 2], [1]], "1 strides for 2 dimensions"),
    ("arguments[1].type", "int", "a param is a tensor, not int"),
    ("arguments[0].aliases", ["y"], "a input has no aliases"),
    ("arguments[1].persistent", False, "only a buffer"),
    ("arguments[1].persistent", 0, "expected true or false"),
    ("arguments[1].name", "x", "another value is called 'x'"),
    ("arguments[3].target", "count", "already has buffer 'count'"),
    ("tensors", "../t.safetensors", "not the name of a safetensors file in the same folder"),
    ("tensors", "passwd", "not the name of a safetensors file"),
    ("weights", "a\\b.safetensors", "not the name of a safetensors file"),
    ("nodes[0].regions", [], "expected an object"),
    ("nodes[1].name", "mix", "'mix' is the name of another node"),
    ("nodes[1].outputs[0][0]", "x", "another value is called 'x'"),
    ("nodes[0].inputs[0]", "add", "no value 'add' here"),
    ("nodes[1].operands[0]", 1, "expected a string"),
    ("nodes[0].attrs.dim", {}, "not the JSON form"),
    ("nodes[0].attrs['a b']", {"set": []}, "not the JSON form"),
    ("nodes[0].attrs.dim", nested(70, lambda data: [data]), "not the JSON form"),
    ("nodes[0].attrs.dim", nested(300, lambda data: {"complex": [data, 1.0]}), "is not a complex"),
    ("nodes[1].provenance.source", 3, "expected a string"),
    ("call", 1, "a call is a tuple of two"),
    ("results.context", ["a"], "expected a list of 2 keys"),
    ("updates[0]", ["count"], "expected a list of two"),
])  # fmt: skip
def test_a_wrong_entry_is_refused_with_its_place(place: str, content: Any, message: str, path: Path) -> None:
    require_refusal(path, put(place, content), message, re.escape(f"graph.json: {place}\n"))


@each_row("edit, message, where", [
    (put("format", "onnx"), "not a graph of npu-ir", "graph.json"),
    (lambda data: data.pop("nodes"), "the key 'nodes' is missing", "graph.json"),
    (put("arguments[0].type[1][0]", "s0"), "no symbol s0 is declared", "graph 'full', rule 'symbols'"),
    (lambda data: data["arguments"][4].pop("data"), "a constant has no data", r"arguments\[4\]"),
    (lambda data: data["arguments"][2].update(data=data["arguments"][4]["data"],
        type=data["arguments"][4]["type"]), "a buffer has no data", r"arguments\[2\].data"),
    (put("arguments[4].type", "int"), "a value of type int has no data", r"arguments\[4\].data"),
    (put("arguments[4].type[0]", "qint8"), "dtype qint8 cannot be stored", r"arguments\[4\].data"),
    (put("arguments[4].type[1]", [2**62, 2**62]), "is too large", r"arguments\[4\].data"),
    (put("tensors", None), "the document names no file with tensors", r"arguments\[3\].data"),
    (put("tensors", "none.safetensors"), "cannot be read: No such file", "none.safetensors"),
    (put("tensors", "\ud800.safetensors"), "cannot be read", r"\.safetensors"),
    (put("arguments[4].data.tensor", "9"), "there is no such tensor in the file", r"safetensors: \['9'\]"),
    (put("arguments[4].data.sha256", "0" * 64), "the data is not what was saved", r"safetensors: \['1'\]"),
    (put("arguments[3].type[0]", "i32"), "expected I32 of shape .2, 3. for i32.2, 3., found F32", "'0'"),
    (put("arguments[4].type[1]", [2**40, 2]), "expected U8 of shape .*, found U8 of shape .96.", "'1'"),
    (put("nodes[1].operands", ["self"]), "2 inputs but 1 operand", r"nodes\[1\]"),
    (put("nodes[1].operands[0]", "input"), "has no argument 'input'", "graph.json: .*rule 'schemas'"),
    (put("nodes[0].attrs.dim", 10**2000), "is too large", r"nodes\[0\]"),
    (put("call.items[1].context", [3]), "a call is a tuple of two", "call"),
    (put("call.items[0].items", []), "must use every input", "call"),
    (put("results", nested(202, lambda data: {"kind": "tuple", "items": [data]})),
        "containers nested deeper than 100", "results"),
    (put("results", {"value": "nothing"}), "no value 'nothing' here", "results.value"),
    (put("updates[0][0]", "c"), "%c cannot be updated", r"updates\[0\]"),
    (put("updates[0][1]", "x"), "cannot stand for %count", r"updates\[0\]"),
    (lambda data: data["updates"].append(data["updates"][0]), "'count' is updated twice", r"updates\[1\]"),
])  # fmt: skip
def test_what_is_wrong_together_is_refused_where_it_is_found(
    edit: Edit, message: str, where: str, path: Path
) -> None:
    require_refusal(path, edit, message, where)


@each_row("content, message", [
    (b"", r"not valid JSON: Expecting value.*line 1, column 1"),
    (b'{"a": 1', "not valid JSON: .*line 1, column 8"),
    (b'{"a": 1} {', "not valid JSON: Extra data"),
    (b'{"a": "\xff"}', "not UTF-8: .*byte 7"),
    (b'{"a": NaN}', "not valid JSON: NaN is not a number"),
    (b'{"a": -Infinity}', "not valid JSON: -Infinity is not a number"),
    (b'{"a": 1e999}', "not valid JSON: the number '1e999' is too large"),
    (b'{"a": ' + b"1" * 5000 + b"}", "not valid JSON: .*4300 digits"),
    (b'{"a": 1, "b": 2, "a": 3}', "not valid JSON: the key 'a' is given twice"),
    (b"[" * 100_000, "nested too deeply|not valid JSON"),
    (b"[]", "this is not a graph of npu-ir"),
])  # fmt: skip
def test_a_file_that_is_no_document_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(content)

    with pytest.raises(SerializationError, match=rf"(?s){message}"):
        load_ir(path)


@each_row("make, message", [
    (lambda path: None, "cannot be read: No such file"),
    (lambda path: os.mkfifo(path), "not a regular file"),
    (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    (lambda path: path.symlink_to(path), "cannot be read"),
])  # fmt: skip
@pytest.mark.skipif(os.name != "posix", reason="pipes, devices and links")
def test_what_is_no_regular_file_is_refused(
    make: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "graph.json")

    with pytest.raises(SerializationError, match=message):
        load_ir(tmp_path / "graph.json")


def test_a_document_larger_than_the_limit_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "MAX_DOCUMENT_BYTES", 1000)

    with pytest.raises(SerializationError, match=r"bytes are more than a document may have \(1000\)"):
        load_ir(path)


def with_header(file: Path, header: Any, length: int | None = None) -> None:
    content = file.read_bytes()
    old = int.from_bytes(content[:8], "little")
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(
        (len(text) if length is None else length).to_bytes(8, "little") + text + content[8 + old :]
    )


def header_of(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


@each_row("edit, message", [
    (put("'0'.dtype", "F64"), "found F64"),
    (put("'0'.dtype", 7), "expected a string"),
    (put("'0'.shape", [2**60]), "found F32 of shape"),
    (put("'0'.shape", "x"), "expected a list"),
    (put("'0'.data_offsets", [0, 2**62]), "is not a range of 24 bytes within the file"),
    (put("'0'.data_offsets", [110, 134]), "is not a range of 24 bytes"),
    (put("'0'.data_offsets", [0.0, 24.0]), "is not a range of 24 bytes"),
    (put("'0'.data_offsets", [0]), "expected a list of two"),
    (put("'0'.data_offsets", [0, 24]), "the data is not what was saved"),
    (put("'0'.more", 1), "unknown key"),
    (put("'0'", []), "expected an object"),
    (lambda header: header.clear(), "there is no such tensor"),
])  # fmt: skip
def test_a_tensor_file_that_is_wrong_is_refused(edit: Edit, message: str, path: Path) -> None:
    save_ir(full_graph(), path)
    file = tensor_file(path)
    header = header_of(file)
    edit(header)
    with_header(file, header)

    with pytest.raises(SerializationError, match=rf"(?s){message}.*at: .*{file.name}"):
        load_ir(path)


@each_row("header, length, message", [
    (b"[]", None, r"the header is not an object: \[\]"),
    (b"{", None, "not valid JSON"),
    (b'{"0": 1, "0": 2}', None, "the key '0' is given twice"),
    (b"{}", 2**63, "the header says it is 9223372036854775808 bytes long"),
    (b"{}", 10_000, "the header says it is 10000 bytes long"),
])  # fmt: skip
def test_a_tensor_file_with_another_header_is_refused(
    header: bytes, length: int | None, message: str, path: Path
) -> None:
    save_ir(full_graph(), path)
    with_header(tensor_file(path), header, length)

    with pytest.raises(SerializationError, match=message):
        load_ir(path)


def test_claims_of_huge_tensors_take_no_memory(path: Path) -> None:
    data = document(path)
    data["arguments"][0]["type"] = ["f32", [2**40, 2**20]]
    data["arguments"][3]["type"] = ["f32", [2**40]]
    path.write_text(json.dumps(data))
    file = tensor_file(path)
    header = header_of(file)
    header["0"] = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}
    with_header(file, header)

    tracemalloc.start()
    with pytest.raises(SerializationError, match="is not a range of 4398046511104 bytes"):
        load_ir(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 10_000_000


def test_nothing_a_file_names_is_imported(path: Path) -> None:
    data = document(path)
    data["nodes"][2]["op"] = "antigravity.fly.default"
    data["schemas"]["this.that.default"] = "this::that() -> ()"
    data["results"] = {"kind": "antigravity.Thing", "context": "this", "items": [{"value": "x"}]}
    path.write_text(json.dumps(data))

    graph = load_ir(path)

    assert graph.results[0].kind == "antigravity.Thing"
    assert not {"antigravity", "this"} & sys.modules.keys()


def test_the_garbage_collector_runs_again_after_a_failure(path: Path) -> None:
    path.write_text("{}")
    assert outcome(path) is None

    assert gc.isenabled()


def test_a_graph_and_a_file_of_tensors_are_told_apart(path: Path, tmp_path: Path) -> None:
    save_ir(full_graph(), path)
    renamed = tmp_path / "graph.safetensors"
    renamed.write_bytes(path.read_bytes())

    with pytest.raises(SerializationError, match=r"this is a file of tensors(?s:.*)fix: IRExecutor"):
        load_ir(tensor_file(path))
    with pytest.raises(SerializationError, match=r"this is JSON(?s:.*)fix: load_ir reads a graph"):
        TensorFile(renamed)
