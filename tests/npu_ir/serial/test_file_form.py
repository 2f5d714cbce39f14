"""Saving a graph to files and loading it again."""

import errno
import itertools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file

from npu_ir import (
    Graph,
    GraphError,
    SerializationError,
    TensorType,
    WeightError,
    load_ir,
    load_weights,
    save_ir,
)
from npu_ir.core.tensor_bytes import same_data
from tests.support.random_graphs import DTYPES, LAYOUTS_OF_24, graphs, laid_out, random_bits
from tests.support.rows import each_row
from tests.support.schema import VALIDATOR
from tests.support.tiers import examples

F32 = TensorType((2,), torch.float32)


def constant_graph(*tensors: torch.Tensor) -> Graph:
    graph = Graph("constants")
    graph.set_outputs([graph.add_constant(f"c{index}", tensor) for index, tensor in enumerate(tensors)])
    return graph


def weighted_graph() -> Graph:
    """Return a graph that reads a parameter known by two names, a buffer, and a buffer of its own."""
    graph = Graph("weighted")
    weight = graph.add_parameter("w", TensorType((2, 3), torch.float32), aliases=["tied"])
    table = graph.add_buffer("table", TensorType((3,), torch.complex128))
    mask = graph.add_buffer("mask", F32, persistent=False)
    graph.set_outputs((weight, table, mask))
    return graph


def saved(graph: Graph, folder: Path, **options: Any) -> Path:
    path = folder / "graph.json"
    save_ir(graph, path, **options)
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@examples(25)
@given(graph=graphs())
def test_any_graph_comes_back_equal_from_a_document_that_fits_the_schema(graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = saved(graph, Path(folder))
        loaded = load_ir(path)
        before = files_in(Path(folder))
        save_ir(loaded, path)
        after = files_in(Path(folder))

    assert loaded == graph
    assert [node.provenance for node in loaded.nodes] == [node.provenance for node in graph.nodes]
    assert after == before
    VALIDATOR.validate(json.loads(before["graph.json"]))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_every_dtype_comes_back_to_the_bit_in_every_layout(tmp_path: Path) -> None:
    kinds = [*itertools.product(DTYPES, LAYOUTS_OF_24)]
    tensors = [laid_out(random_bits(dtype, seed=1), layout) for dtype, layout in kinds]

    constants = load_ir(saved(constant_graph(*tensors), tmp_path)).constants

    for index, (kind, data) in enumerate(zip(kinds, tensors, strict=True)):
        loaded = constants[f"c{index}"].argument.data
        assert same_data(loaded, data), kind
        assert TensorType.of(loaded) == TensorType.of(data), kind


@each_row("data", [
    torch.tensor([-0.0, float("nan"), float("inf")]),
    torch.tensor([0x7FC0_0001, -1], dtype=torch.int32).view(torch.float32),
    torch.tensor([1 + 2j, 3 - 4j]).conj(),
    torch.tensor([[1 + 2j, 3 - 4j]]).conj().imag,
    torch.arange(6.0).view(2, 3).t().requires_grad_(),
    torch.nn.Parameter(torch.ones(2)),
])  # fmt: skip
def test_special_tensors_come_back_to_the_bit(data: torch.Tensor, tmp_path: Path) -> None:
    loaded = load_ir(saved(constant_graph(data), tmp_path)).constants["c0"].argument.data

    assert same_data(loaded, data)
    assert loaded.stride() == data.stride()
    assert not loaded.requires_grad


def test_data_laid_out_otherwise_than_its_type_says_comes_back_as_the_type_says(tmp_path: Path) -> None:
    graph, type = Graph(), TensorType((2, 3), torch.float32, (1, 2))
    graph.add_buffer("b", type, persistent=False, data=torch.arange(6.0).view(2, 3))

    loaded = load_ir(saved(graph, tmp_path))

    assert loaded == graph
    assert loaded.buffers["b"].argument.data.stride() == (1, 2)


@pytest.mark.smoke
def test_the_document_holds_one_node_per_line(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    for _ in range(3):
        x = graph.insert("aten.relu.default", [x], types=F32, operands=["self"]).outputs[0]
    graph.set_outputs(x)

    lines = saved(graph, tmp_path).read_text().splitlines()

    assert (
        '  {"name": "relu#1", "op": "aten.relu.default", "inputs": ["relu"], "operands": ["self"], "attrs": '
        '{}, "outputs": [["relu#1", ["f32", [2]]]]},'
    ) in lines
    assert sum('"op": ' in line for line in lines) == 3


def test_an_expanded_constant_is_stored_once(tmp_path: Path) -> None:
    saved(constant_graph(torch.ones(1).expand(1000, 1000)), tmp_path)

    assert sum(map(len, files_in(tmp_path).values())) < 2000


def test_saving_leaves_the_files_of_others_alone(tmp_path: Path) -> None:
    names = ["graph.json", "graph", "graph.v2.json", "graph.npu", os.fsdecode(b"\xff\xfe.json")]
    for name in names:
        save_ir(constant_graph(torch.ones(1)), tmp_path / name)
    (tmp_path / "graph-0123456789abcdef.safetensors").write_bytes(b"mine")

    for name in names:
        save_ir(constant_graph(torch.zeros(1)), tmp_path / name)
        save_ir(constant_graph(torch.zeros(1)), tmp_path / name)

    assert len(files_in(tmp_path)) == 2 * len(names) + 1
    for name in names:
        assert load_ir(tmp_path / name) == constant_graph(torch.zeros(1))


def test_replacing_a_copied_document_leaves_the_tensors_of_the_original(tmp_path: Path) -> None:
    path = saved(constant_graph(torch.ones(1)), tmp_path)
    copied = path.with_name("copy.json")
    copied.write_bytes(path.read_bytes())
    (tmp_path / "copy-0123456789abcdef.safetensors").touch()

    save_ir(constant_graph(torch.zeros(1)), copied)

    assert load_ir(path) == constant_graph(torch.ones(1))
    assert load_file(path.with_name(json.loads(path.read_text())["tensors"])) == {"0": torch.ones(1)}


def test_saved_files_have_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    path = saved(constant_graph(torch.ones(1)), tmp_path)
    (tmp_path / "other").touch()

    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def weights() -> dict[str, torch.Tensor]:
    shared = torch.arange(6.0).view(2, 3)
    return {"w": shared, "tied": shared, "table": torch.tensor([1 + 2j, 3, -1j], dtype=torch.complex128)}


@each_row("given", [
    {},
    {"w": None},
    {"tied": None},
    {"mask": torch.ones(2)},
    {"w": torch.arange(6.0).view(3, 2).t(), "tied": None},
])  # fmt: skip
def test_weights_are_stored_once_under_the_names_of_the_graph(
    given: dict[str, torch.Tensor | None], tmp_path: Path
) -> None:
    found = {name: tensor for name, tensor in {**weights(), **given}.items() if tensor is not None}
    wanted = {"w": found.get("w", found.get("tied")), **found}
    wanted.pop("tied", None)

    path = saved(weighted_graph(), tmp_path, weights=found)

    file = tmp_path / "graph.weights.safetensors"
    assert load_file(file).keys() == wanted.keys()
    for loaded in (load_weights(path), load_weights(file)):
        assert all(torch.equal(loaded[name], tensor) for name, tensor in wanted.items())


@each_row("change, message", [
    ({"w": None, "tied": None}, "missing: w"),
    ({"table": torch.ones(3)}, r"misfit: table is f32\[3\]"),
    ({"tied": torch.ones(3, 2), "w": None}, r"misfit: tied is f32\[3, 2\]"),
    ({"tied": torch.ones(2, 3)}, "tied in the model but differ"),
    ({"more": torch.ones(1)}, "unexpected: more"),
    ({"w": 3}, "misfit: w is int"),
])  # fmt: skip
def test_weights_that_do_not_fit_are_refused_before_anything_is_written(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {name: tensor for name, tensor in {**weights(), **change}.items() if tensor is not None}

    with pytest.raises(WeightError, match=message):
        saved(weighted_graph(), tmp_path, weights=given)
    assert not files_in(tmp_path)


class Tagged(torch.Tensor):
    """A tensor subclass."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@each_row("name, make, message", [
    ("w", lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), r"'w' is quantized"),
    ("w", lambda: torch.ones(2).to_sparse(), "'w' has the layout torch.sparse_coo"),
    ("w", lambda: torch.ones(2).as_subclass(Tagged), "'w' is a Tagged"),
    ("w", lambda: torch.ones(2, device="meta"), "'w' is on the meta device"),
    ("__metadata__", lambda: torch.ones(2), "cannot hold a tensor called '__metadata__'"),
])  # fmt: skip
def test_weights_that_cannot_be_stored_are_refused(
    name: str, make: Callable[[], torch.Tensor], message: str, tmp_path: Path
) -> None:
    graph = Graph()
    graph.add_parameter(name, F32)

    with pytest.raises(SerializationError, match=message):
        saved(graph, tmp_path, weights={name: make()})
    assert not files_in(tmp_path)


def test_strides_that_let_different_elements_share_memory_are_refused(tmp_path: Path) -> None:
    graph = Graph()
    type = TensorType((2, 2), torch.float32, (0, 1))
    graph.set_outputs(graph.add_buffer("b", type, persistent=False, data=torch.arange(4.0).view(2, 2)))

    with pytest.raises(SerializationError, match="elements that share memory differ"):
        saved(graph, tmp_path)


def test_a_broken_graph_is_refused(tmp_path: Path) -> None:
    graph = Graph()
    graph.add_input("x", F32)._type = "no type"

    with pytest.raises(GraphError, match="has no type of the IR"):
        saved(graph, tmp_path)


@each_row("name, message", [
    ("missing/graph.json", "No such file or directory"),
    ("a\0b.json", "cannot be the name of a file"),
    ("\ud800.json", "cannot be the name of a file"),
    ("folder", "[Ii]s a directory"),
])  # fmt: skip
def test_a_path_that_cannot_be_written_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(SerializationError, match=message):
        save_ir(constant_graph(torch.ones(1)), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def replaced_graphs(folder: Path) -> tuple[Path, Graph, Graph]:
    """Save a graph with data and weights, and return its path, itself and one to replace it."""
    old, new = weighted_graph(), weighted_graph()
    old.add_constant("c", torch.ones(3))
    new.add_constant("c", torch.zeros(3))
    return saved(old, folder, weights=weights()), old, new


@each_row("call", range(3))
@each_row("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_graph_and_nothing_else(
    function: str, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old, new = replaced_graphs(tmp_path)
    before = files_in(tmp_path)
    original, calls = getattr(os, function), itertools.count()

    def fail(*arguments: Any) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(*arguments)

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(SerializationError, match="the graph cannot be written: No space left on device"):
        save_ir(new, path, weights=weights())
    monkeypatch.undo()

    assert files_in(tmp_path) == before
    assert load_ir(path) == old


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@each_row("call, replaced", [(0, False), (1, False), (2, False), (2, True)])
def test_a_crash_leaves_the_old_graph_or_the_new_one(
    call: int, replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old, new = replaced_graphs(tmp_path)
    original, calls = os.replace, itertools.count()

    def crash(*arguments: Any) -> None:
        last = next(calls) == call
        if replaced or not last:
            original(*arguments)
        if last:
            os._exit(1)

    monkeypatch.setattr(os, "replace", crash)
    child = os.fork()
    if child == 0:
        save_ir(new, path, weights=weights())
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    monkeypatch.undo()

    assert os.waitstatus_to_exitcode(status) == 1
    assert load_ir(path) == (new if replaced else old)
    assert torch.equal(load_weights(path)["w"], weights()["w"])


def test_an_interrupt_after_the_commit_leaves_the_new_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, new = replaced_graphs(tmp_path)
    original = os.replace

    def interrupt(source: Path, target: Path) -> None:
        original(source, target)
        if target == path:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_ir(new, path, weights=weights())

    assert load_ir(path) == new


# Operators that change between versions of PyTorch


def with_schema(path: Path, op_type: str, schema: str) -> None:
    document = json.loads(path.read_text())
    document["schemas"][op_type] = schema
    path.write_text(json.dumps(document))


def added(folder: Path) -> Path:
    graph = Graph()
    x = graph.add_input("x", F32)
    graph.set_outputs(
        graph.insert("aten.add.Tensor", [x, x], types=F32, operands=["self", "other"]).outputs[0]
    )
    return saved(graph, folder)


def test_an_operator_that_has_got_an_optional_argument_since_is_accepted(tmp_path: Path) -> None:
    path = added(tmp_path)
    with_schema(path, "aten.add.Tensor", "aten::add.Tensor(Tensor self, Tensor other) -> Tensor")

    assert len(load_ir(path)) == 1


@each_row("schema", [
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1, int k=2) -> Tensor",
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar beta=1) -> Tensor",
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> (Tensor, Tensor)",
    "no schema",
    "aten::add.Tensor(Tensor \ud800) -> Tensor",
    "aten::add.Tensor(" + "Future(" * 100_000 + "Tensor" + ")" * 100_000 + " self) -> Tensor",
])  # fmt: skip
def test_an_operator_that_has_changed_is_refused_with_both_schemas(schema: str, tmp_path: Path) -> None:
    path = added(tmp_path)
    with_schema(path, "aten.add.Tensor", schema)

    with pytest.raises(
        SerializationError, match=r"aten\.add\.Tensor has another schema here.*Scalar alpha=1"
    ):
        load_ir(path)
