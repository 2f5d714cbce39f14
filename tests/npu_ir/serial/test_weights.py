"""Loading weights from the files people have."""

import collections
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import Linear

from npu_ir import Graph, WeightError, extract_ir, load_weights, parse_ir, save_ir
from npu_ir.serial.checkpoints import weight_names
from tests.support.rows import each_row

STATE = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.tensor([1, -2], dtype=torch.int16),
    "c": torch.ones(3, dtype=torch.bfloat16),
}


def graph_of(arguments: str) -> Graph:
    return parse_ir(f"graph g {{ {arguments} return () }}")


def assert_same_tensors(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype
        assert torch.equal(actual[name], tensor)


def save_pickle(path: Path, content: Any = STATE, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


def save_safetensors(path: Path, content: dict[str, torch.Tensor] = STATE) -> Path:
    save_file(content, path)
    return path


def save_shards(folder: Path, suffix: str, stem: str) -> Path:
    save = save_safetensors if suffix == ".safetensors" else save_pickle
    shards = {f"{stem}-1{suffix}": ("a", "b"), f"{stem}-2{suffix}": ("c",)}
    for shard, names in shards.items():
        save(folder / shard, {name: STATE[name] for name in names})
    index = folder / f"{stem}{suffix}.index.json"
    index.write_text(
        json.dumps(
            {"metadata": {}, "weight_map": {name: shard for shard, names in shards.items() for name in names}}
        )
    )
    return index


@each_row("make", [
    lambda folder: save_pickle(folder / "w.pt"),
    lambda folder: save_pickle(folder / "w.PT"),
    lambda folder: save_pickle(folder / "w.pt", _use_new_zipfile_serialization=False),
    lambda folder: save_safetensors(folder / "w.safetensors"),
    lambda folder: save_shards(folder, ".safetensors", "model"),
    lambda folder: save_shards(folder, ".bin", "pytorch_model"),
    lambda folder: save_shards(folder, ".safetensors", "model").parent,
    lambda folder: save_shards(folder, ".safetensors", "other").parent,
    lambda folder: save_pickle(folder / "pytorch_model.bin").parent,
    lambda folder: save_pickle(folder / "w.pt", {"state_dict": STATE, "epoch": 3}),
    lambda folder: save_pickle(folder / "w.pt", {"model": STATE, "optimizer": {"state": {}}}),
    lambda folder: save_pickle(folder / "w.pt", {"state_dict": STATE, "loss": torch.tensor(0.1)}),
    lambda folder: save_pickle(folder / "w.pt", collections.OrderedDict(STATE)),
    lambda folder: save_pickle(folder / "w.pt", {**STATE, "_extra_state": {"step": 1}}),
    lambda folder: save_pickle(folder / "w.pt", {**STATE, "a": torch.nn.Parameter(STATE["a"])}),
])  # fmt: skip
def test_every_kind_of_file_gives_the_same_tensors(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)

    loaded = load_weights(path)
    wanted = load_weights(str(path), graph_of("param %c: bf16[3]"))

    assert_same_tensors(loaded, STATE)
    assert_same_tensors(wanted, {"c": STATE["c"]})
    assert all(type(tensor) is torch.Tensor and not tensor.requires_grad for tensor in loaded.values())


@each_row("arguments, names", [
    ("", []),
    ('param %head: f32[2, 3] aliases ["a"]', ["a"]),
    ("param %c: bf16[3] buffer %a: f32[1] non_persistent = [0.0]", ["c"]),
])  # fmt: skip
def test_a_graph_gets_only_what_it_reads(arguments: str, names: list[str], tmp_path: Path) -> None:
    path = save_safetensors(tmp_path / "w.safetensors")

    assert [*load_weights(path, graph_of(arguments))] == names


@each_row("make", [
    lambda folder: save_pickle(folder / "w.pt", {"state_dict": STATE, "epoch": 3}),
    lambda folder: save_safetensors(folder / "w.safetensors"),
    lambda folder: save_shards(folder, ".safetensors", "model").parent,
    lambda folder: save_shards(folder, ".bin", "pytorch_model"),
])  # fmt: skip
def test_a_checkpoint_has_the_names_of_its_tensors(make: Callable[[Path], Path], tmp_path: Path) -> None:
    assert weight_names(make(tmp_path)) == {"a", "b", "c"}


def test_names_of_shards_are_those_of_the_index(tmp_path: Path) -> None:
    index = save_shards(tmp_path, ".safetensors", "model")
    (tmp_path / "model-2.safetensors").unlink()

    assert weight_names(index) == {"a", "b", "c"}
    with pytest.raises(WeightError, match="a file is given by its path"):
        weight_names(5)  # type: ignore[arg-type]


def test_shards_that_hold_nothing_the_graph_reads_are_not_opened(tmp_path: Path) -> None:
    index = save_shards(tmp_path, ".safetensors", "model")
    (tmp_path / "model-1.safetensors").unlink()

    assert_same_tensors(load_weights(index, graph_of("param %c: bf16[3]")), {"c": STATE["c"]})


@each_row("save", [save_pickle, save_safetensors])
def test_changing_loaded_weights_leaves_the_file_alone(save: Callable[[Path], Path], tmp_path: Path) -> None:
    path = save(tmp_path / ("w.pt" if save is save_pickle else "w.safetensors"))
    before = path.read_bytes()

    load_weights(path)["a"].zero_()

    assert path.read_bytes() == before
    assert torch.equal(load_weights(path)["a"], STATE["a"])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@each_row("name", ["w.pt", "w.safetensors", "graph.json"])
def test_weights_are_mapped_from_the_file(name: str, tmp_path: Path) -> None:
    save_pickle(tmp_path / "w.pt")
    save_safetensors(tmp_path / "w.safetensors")
    save_ir(graph_of("param %a: f32[2, 3]"), tmp_path / "graph.json", weights={"a": STATE["a"]})

    loaded = load_weights(tmp_path / name)

    assert str(tmp_path / name).removesuffix(".json") in Path("/proc/self/maps").read_text()
    assert "a" in loaded


def test_a_folder_with_a_saved_graph_holds_its_weights(tmp_path: Path) -> None:
    model = Linear(2, 2)
    graph = extract_ir(model, (torch.ones(1, 2),))
    graph.add_constant("c", torch.ones(3))
    save_ir(graph, tmp_path / "graph.npu", weights=model.state_dict())

    assert_same_tensors(load_weights(tmp_path), dict(model.state_dict()))
    assert_same_tensors(load_weights(tmp_path / "graph.npu"), dict(model.state_dict()))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def index_of(folder: Path, content: Any) -> Path:
    return write(folder / "model.safetensors.index.json", json.dumps(content).encode())


def cut(path: Path) -> Path:
    return write(path, path.read_bytes()[:-20])


def folder_of(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def without_weights(folder: Path) -> Path:
    save_ir(graph_of("param %a: f32[2, 3]"), folder / "graph.json")
    return folder / "graph.json"


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


class Unknown:
    """Nothing that torch.load knows."""


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@each_row("make, message", [
    (lambda folder: folder / "none.pt", "the weights file none.pt does not exist"),
    (lambda folder: folder / "a\0b.pt", "does not exist"),
    (lambda folder: folder / ("a" * 5000), "(?s)cannot be read: .*too long.*check the path"),
    (lambda folder: pipe(folder / "w.safetensors"), "is not a regular file"),
    (lambda folder: write(folder / "w.onnx", b"\x08\x07"), "w.onnx is neither weights nor a graph"),
    (lambda folder: write(folder / "w", b"{}"), "this is not a graph of npu-ir"),
    (lambda folder: write(folder / "w.json", b"{]"), "not valid JSON"),
    (lambda folder: without_weights(folder), "the graph was saved without weights"),
    (lambda folder: write(folder / "w.pt", b"no pickle"),
        r"not what torch.save writes: it begins with b'no pic'\n  at: .*w\.pt\n  fix: check that the"),
    (lambda folder: write(folder / "w.pt", b""), "not what torch.save writes: it is empty"),
    (lambda folder: write(folder / "w.pt", b"PK\3\4" * 50), "(?s)cannot be read as weights.*is complete"),
    (lambda folder: cut(save_safetensors(folder / "w.safetensors")), "cannot be read as weights"),
    (lambda folder: save_pickle(folder / "w.pt", Unknown()),
        r"cannot be read as weights: Weights only load failed\n  at: .*\n  fix: the file holds more than"),
    (lambda folder: save_pickle(folder / "w.pt", Linear(1, 1)), "(?s)cannot be read.*save model.state_dict"),
    (lambda folder: save_pickle(folder / "w.pt", torch.ones(2)), "expected a state_dict, found Tensor"),
    (lambda folder: save_pickle(folder / "w.pt", {"lr": 3}), r"no state_dict under any of the keys \['lr'\]"),
    (lambda folder: save_pickle(folder / "w.pt", {"model": STATE, "ema": STATE}),
        "more than one state_dict: under the keys 'model', 'ema'"),
    (lambda folder: folder_of(folder, "notes.txt"), "the folder holds no weights"),
    (lambda folder: folder_of(folder, "a.pt", "b.bin"), "the folder holds a.pt, b.bin"),
    (lambda folder: index_of(folder, []), "the index has no weight_map"),
    (lambda folder: index_of(folder, {"weight_map": []}), "the index has no weight_map"),
    (lambda folder: index_of(folder, {"weight_map": {"a": "../a.bin"}}),
        "'../a.bin' is not the name of a weights file in the same"),
    (lambda folder: index_of(folder, {"weight_map": {"a": "passwd"}}),
        "'passwd' is not the name of a weights"),
    (lambda folder: index_of(folder, {"weight_map": {"a": 3}}), "3 is not the name of a weights file"),
    (lambda folder: index_of(folder, {"weight_map": {"a": "a.bin"}}),
        "the weights file a.bin does not exist"),
    (lambda folder: write(folder / "m.bin.index.json", b"{"), "not valid JSON"),
    (lambda folder: write(folder / "m.bin.index.json", b"[" * 100_000),
        "(?s)nested too deeply.*m.bin.index.json.*get the index again"),
])  # fmt: skip
def test_what_holds_no_weights_is_refused_with_a_fix(
    make: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightError, match=message) as caught:
        load_weights(make(tmp_path))
    assert caught.value.where is not None
    assert caught.value.fix is not None


def test_a_shard_that_lacks_what_the_index_promises_is_refused(tmp_path: Path) -> None:
    index = save_shards(tmp_path, ".safetensors", "model")
    save_safetensors(tmp_path / "model-1.safetensors", {"a": STATE["a"]})

    with pytest.raises(WeightError, match=r"the index says \['b'\] are in model-1.safetensors: they are not"):
        load_weights(index)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    path = save_safetensors(tmp_path / "w.safetensors", {"model.c": STATE["c"]})

    with pytest.raises(WeightError, match=r"none of the weights of the graph is here: it needs \['c'\]"):
        load_weights(path, graph_of("param %c: bf16[3]"))


@each_row("types, message", [
    ("{", "not valid JSON"),
    ("[]", "expected an object"),
    ('{"a": ["c128", [9]]}', "the content is not that of a c128"),
    ('{"a": ["c999", [1]]}', "no dtype 'c999'"),
])  # fmt: skip
def test_metadata_that_lies_about_raw_tensors_is_refused(types: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(16, dtype=torch.uint8)}, path, metadata={"npu-ir.types": types})

    with pytest.raises(WeightError, match=message):
        load_weights(path)


def test_the_weights_a_hostile_graph_names_elsewhere_are_not_read(tmp_path: Path) -> None:
    path = without_weights(tmp_path)
    document = json.loads(path.read_text())
    document["weights"] = "../secret.safetensors"
    path.write_text(json.dumps(document))

    with pytest.raises(WeightError, match="not the name of a safetensors file in the same folder"):
        load_weights(path)
