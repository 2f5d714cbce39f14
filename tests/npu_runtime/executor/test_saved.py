"""Saved executors: what a file keeps, what a loaded executor computes, and which files are refused."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from npu_ir import BackendError, ExecutionError, Graph, SerializationError, WeightError, extract_ir, save_ir
from npu_ir.plugins import plugin_manager
from npu_ir.serial import tensor_file
from npu_ir.serial.tensor_file import METADATA
from npu_runtime import IRExecutor, explain
from npu_runtime.executor.saved import environment, executor_file
from tests.support.backends.broken_backends import Sound
from tests.support.processes import run_python
from tests.support.rows import each_row


class Net(nn.Module):
    """A convolution with its norm, which folds, a linear layer, a constant, and a counter of calls."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return y * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]) + self.calls


IMAGE = torch.rand(2, 3, 9, 9)


def make_net() -> tuple[Graph, nn.Module]:
    torch.manual_seed(0)
    model = Net().eval()
    return extract_ir(model, (IMAGE,)), model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A saved executor of the net."""
    graph, model = make_net()
    IRExecutor(graph, model.state_dict(), passes="default").save(tmp_path / "net.npu")
    return tmp_path / "net.npu"


@pytest.mark.parametrize("passes", [None, "default", "cpu", "host"])
def test_a_loaded_executor_computes_the_same_bits(passes: str | None, tmp_path: Path) -> None:
    graph, model = make_net()
    executor = IRExecutor(graph, model.state_dict(), passes=passes, threads=1)
    executor(IMAGE)

    executor.save(tmp_path / "net.npu")

    loaded = IRExecutor.load(tmp_path / "net.npu")
    (tmp_path / "net.npu").unlink()  # what is mapped stays
    for _ in range(2):
        assert torch.equal(loaded(IMAGE), executor(IMAGE))
    assert (loaded.threads, loaded.device, loaded.source) == (1, executor.device, executor.source)
    assert len(loaded.graph.body) == len(executor.graph.body)
    loaded.reset()
    executor.reset()
    executor(IMAGE)
    assert torch.equal(loaded(IMAGE), executor(IMAGE))


@pytest.mark.smoke
def test_a_new_process_loads_an_executor(path: Path, tmp_path: Path) -> None:
    torch.save(IMAGE, tmp_path / "image.pt")
    script = (
        "import sys, torch; from npu_runtime import IRExecutor;"
        "print(IRExecutor.load(sys.argv[1])(torch.load(sys.argv[2])).tolist())"
    )

    result = run_python(script, str(path), str(tmp_path / "image.pt"))

    assert result.stderr == ""
    assert json.loads(result.stdout) == IRExecutor.load(path)(IMAGE).tolist()


def test_a_file_has_no_prologue_and_no_weight_twice(path: Path) -> None:
    loaded = IRExecutor.load(path)

    assert len(loaded.graph.prologue) == 0
    assert set(loaded.graph.constants) == {
        f"frozen.{value.name}" for value in loaded.graph.constants.values()
    }
    assert set(loaded.graph.buffers) == {"calls", "norm.num_batches_tracked"}
    numbers = sum(tensor.numel() for tensor in Net().state_dict().values()) + 5
    assert path.stat().st_size < 4 * numbers + 12_000
    assert not [file for file in path.parent.iterdir() if file != path]


def test_what_onednn_has_packed_is_packed_again(tmp_path: Path) -> None:
    model, x = nn.Linear(512, 512).eval(), torch.rand(64, 512)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes="cpu")
    assert "mkldnn._linear_pointwise.default" in {node.op_type for node in executor.graph.nodes}

    executor.save(tmp_path / "layer.npu")

    assert torch.equal(IRExecutor.load(tmp_path / "layer.npu")(x), executor(x))


class Views(nn.Module):
    """Returns parts of one computed weight, a weight, and a constant that is given from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 6))
        self.register_buffer("scale", torch.rand(6), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        both = self.weight.t() * 2
        return both[:2], both[2:], self.weight, self.scale * x


def test_results_that_share_memory_still_do(tmp_path: Path) -> None:
    model, x = Views(), torch.rand(6)
    executor = IRExecutor(
        extract_ir(model, (x,)), model.state_dict(), constants={"scale": torch.ones(6)}, passes="default"
    )

    executor.save(tmp_path / "views.npu")

    loaded = IRExecutor.load(tmp_path / "views.npu")
    expected, found = executor(x), loaded(x)
    assert all(map(torch.equal, found, expected))
    assert torch.equal(found[3], x)  # by the constant that was given, not by that of the model
    assert [item.stride() for item in found] == [item.stride() for item in expected]
    assert found[0].untyped_storage().data_ptr() == found[1].untyped_storage().data_ptr()
    found[0].zero_()
    assert all(map(torch.equal, loaded(x), expected))


def test_a_loaded_executor_can_be_saved_again(path: Path, tmp_path: Path) -> None:
    loaded = IRExecutor.load(path)

    loaded.save(path)  # over the file that is mapped

    again = IRExecutor.load(path)
    assert torch.equal(again(IMAGE), loaded(IMAGE))
    with pytest.raises(WeightError, match="was loaded from a file"):
        again.state_dict()


def test_other_weights_are_bound_where_the_file_has_all_of_them(tmp_path: Path) -> None:
    graph, model = make_net()
    IRExecutor(graph, model.state_dict(), passes=None).save(tmp_path / "net.npu")
    loaded = IRExecutor.load(tmp_path / "net.npu")
    other = {name: tensor.clone() + 1 for name, tensor in model.state_dict().items()}

    loaded.load_state_dict(other)

    assert torch.equal(loaded(IMAGE), IRExecutor(graph, other, passes=None)(IMAGE))
    assert loaded.state_dict().keys() == model.state_dict().keys()


def test_other_weights_are_refused_where_the_file_has_folded_some(path: Path) -> None:
    loaded = IRExecutor.load(path)
    problem = "'.*' and . more only as the prologue left them: folded, transformed or packed"

    with pytest.raises(WeightError, match=problem):
        loaded.load_state_dict(Net().state_dict())
    with pytest.raises(WeightError, match=problem):
        loaded.state_dict()


class Writes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return x * 2


def test_what_happens_to_inputs_is_kept_unless_it_is_said_again(tmp_path: Path) -> None:
    graph = extract_ir(Writes(), (torch.zeros(2),))
    IRExecutor(graph, updates="write").save(tmp_path / "writes.npu")
    written, kept = torch.zeros(2), torch.zeros(2)

    IRExecutor.load(tmp_path / "writes.npu")(written)
    IRExecutor.load(tmp_path / "writes.npu", updates="ignore")(kept)

    assert written.tolist() == [1.0, 1.0]
    assert kept.tolist() == [0.0, 0.0]


def test_any_reader_of_safetensors_reads_the_memory_of_a_file(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        tensors = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118

    assert tensors
    assert all(tensor.dtype is torch.uint8 and tensor.numel() % 64 == 0 for tensor in tensors)


# Backends


class Priced(Sound):
    name = "priced"

    def cost(self, node: Any) -> float | None:
        return 0.0 if node.op_type == "aten.relu.default" else 1.0


class Offering(Priced):
    def by_cost(self) -> Any:
        return Priced()


def test_the_backend_of_each_node_is_kept_and_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(plugin_manager.get_plugins().backends, "priced", Offering())
    graph, model = make_net()
    executor = IRExecutor(graph, model.state_dict(), passes=None, backend=Priced())
    executor.save(tmp_path / "net.npu")
    monkeypatch.setattr(Priced, "cost", None)

    loaded = IRExecutor.load(tmp_path / "net.npu")

    assert torch.equal(loaded(IMAGE), executor(IMAGE))
    assert [node.backend for node in explain(loaded).nodes] == [
        node.backend for node in explain(executor).nodes
    ]
    (relu,) = (node for node in explain(loaded).nodes if node.backend == "priced")
    assert relu.op_type == "aten.relu.default"
    assert relu.reasons == {"aten": "priced was chosen when the executor was saved"}


def test_other_kernels_than_those_of_the_file_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(plugin_manager.get_plugins().backends, "sound", Sound())
    graph, model = make_net()
    IRExecutor(graph, model.state_dict(), passes=None, backend="sound").save(tmp_path / "net.npu")
    lower = Sound.lower
    monkeypatch.setattr(
        Sound,
        "lower",
        lambda self, graph: [executor_file.replace(op, kernel="other") for op in lower(self, graph)],
    )

    with pytest.raises(
        SerializationError, match=r"(?s)'sound' has other kernels .*: aten.* there, other here"
    ):
        IRExecutor.load(tmp_path / "net.npu")


def test_a_backend_that_no_plugin_provides_is_refused(tmp_path: Path) -> None:
    graph, model = make_net()
    executor = IRExecutor(graph, model.state_dict(), passes=None, backend=Sound())

    with pytest.raises(SerializationError, match="(?s)no plugin provides the backend 'sound'.*npu_backends"):
        executor.save(tmp_path / "net.npu")


def test_a_backend_that_is_missing_here_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backends = plugin_manager.get_plugins().backends
    monkeypatch.setitem(backends, "sound", Sound())
    graph, model = make_net()
    IRExecutor(graph, model.state_dict(), passes=None, backend="sound").save(tmp_path / "net.npu")
    monkeypatch.delitem(backends, "sound")

    with pytest.raises(BackendError, match=r"(?s)there is no backend 'sound'.*net\.npu"):
        IRExecutor.load(tmp_path / "net.npu")


# Files


def rewrite(path: Path, edit: Callable[[dict[str, Any]], None], *, honest: bool = True) -> None:
    """Edit what the header says about the executor, and its digest, too, if ``honest``."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    content = json.loads(header[METADATA]["npu-executor"])
    edit(content)
    text = json.dumps(content)
    header[METADATA]["npu-executor"] = text
    if honest:
        header[METADATA]["npu-executor.sha256"] = executor_file._digest(text)
    new = json.dumps(header).encode()
    path.write_bytes(len(new).to_bytes(8, "little") + new + data[8 + length :])


FIRST = "the first entry"


def put(*steps: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        place: Any = content
        for step in steps[:-1]:
            place = place[next(iter(place)) if step is FIRST else step]
        place[steps[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        pytest.param(
            put("environment", "torch", value="1.0"),
            r"another environment: torch: 1\.0 there, .* here\n.*\n.*make a new file here: .*npu compile",
            id="torch",
        ),
        pytest.param(
            put("environment", "CPU", value="arm64 DEFAULT"), "CPU: arm64 DEFAULT there", id="another CPU"
        ),
        pytest.param(
            put("environment", "pass conv-bn-folding", value="npu-passes 0.0"),
            "pass conv-bn-folding: npu-passes 0.0 there, npu-passes .* here",
            id="another version of a pass",
        ),
        pytest.param(
            put("version", value=2), "the executor has format 2, this npu-runtime reads 1", id="newer"
        ),
        pytest.param(put("more", value=2), "unknown key", id="unknown key"),
        pytest.param(put("device", value="cuda:0"), "GPU: not installed there", id="GPU"),
        pytest.param(put("plan", 0, "nodes", value=1), "the plan is not one of the . nodes", id="plan"),
        pytest.param(put("plan", 0, "nodes", value="x"), "'x' nodes for 'aten': a part of", id="no number"),
        pytest.param(put("plan", 0, "backend", value="x"), "one of the backends aten", id="no backend"),
        pytest.param(put("tensors", FIRST, "offset", value=3), "a f32.* cannot start at byte 3", id="offset"),
        pytest.param(put("tensors", FIRST, "offset", value=4096), "no room for a f32", id="room"),
        pytest.param(put("tensors", FIRST, "memory", value=None), "is in no memory", id="no memory"),
        pytest.param(
            put("tensors", FIRST, "type", value=["f32", ["s"]]),
            "only dense tensors of integer",
            id="open size",
        ),
        pytest.param(put("graph", "format", value="x"), "not a graph of npu-ir", id="no graph"),
    ],
)
def test_a_file_of_another_environment_or_content_is_refused(
    edit: Callable[[dict[str, Any]], None], problem: str, path: Path
) -> None:
    rewrite(path, edit)

    with pytest.raises(SerializationError, match=problem):
        IRExecutor.load(path)


def test_a_tensor_that_the_graph_needs_and_the_file_lacks_is_named(path: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        del content["tensors"][
            next(row["data"]["tensor"] for row in content["graph"]["arguments"] if "data" in row)
        ]

    rewrite(path, edit)

    with pytest.raises(SerializationError, match="there is no f32.* of this name"):
        IRExecutor.load(path)


def leave_out(*steps: str) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        place = content
        for step in steps[:-1]:
            place = place[step]
        del place[steps[-1]]

    return edit


@each_row(
    "edit, problem",
    {
        "no updates": (leave_out("options", "updates"), "the key 'updates' is missing"),
        "no donate": (leave_out("options", "donate"), "the key 'donate' is missing"),
        "no threads": (leave_out("options", "threads"), "the key 'threads' is missing"),
        "another option": (put("options", "more", value=1), "unknown key"),
        "other updates": (put("options", "updates", value="x"), "(?s)updates='x' is none.*options"),
        "listed updates": (put("options", "updates", value=[]), r"updates=\[\] is none"),
        "many threads": (put("options", "threads", value=1 << 40), "1 to 1024 threads, not 1099"),
        "counted donate": (put("options", "donate", value=3), "expected an object, found 3"),
        "named donate": (put("options", "donate", value="x"), "expected an object, found 'x'"),
        "null donate": (put("options", "donate", value=None), "expected an object, found None"),
        "unknown donate": (put("options", "donate", value={"z": 0}), "donate= names 'z'"),
        "donate to a text": (put("options", "donate", value={"x": "y"}), "donate= has result 'y' for 'x'"),
        "device of a backend": (put("device", value="host"), "'host' is not a device of PyTorch"),
        "device of another build": (put("device", value="xla"), "PyTorch cannot use the device 'xla'"),
        "listed backend": (put("plan", 0, "backend", value=[]), r"expected a string, found \[\]"),
        "negative nodes": (put("plan", 0, "nodes", value=-1), "-1 nodes for 'aten'"),
        "backend at a price": (put("backends", "aten", value="x"), "expected true or false, found 'x'"),
        "no state": (leave_out("tensors", "state.0"), r"(?s)there is no f32\[\] of this name.*state\.0"),
        "other state": (put("tensors", "state.0", "type", value=["i32", []]), r"there is no f32\[\] of this"),
        "other operand": (put("graph", "nodes", 0, "operands", 0, value="x"), "(?s)no .*'x'"),
        "other buffer": (put("tensors", "0.calls", "type", value=["f32", [2]]), "misfit: calls is f32.2."),
    },
)
def test_a_file_that_says_what_no_executor_has_is_refused_by_name(
    edit: Callable[[dict[str, Any]], None], problem: str, path: Path, tmp_path: Path
) -> None:
    forged = tmp_path / "forged.npu"
    forged.write_bytes(path.read_bytes())
    rewrite(forged, edit)

    with pytest.raises(SerializationError, match=problem) as refusal:
        IRExecutor.load(forged)

    assert str(forged) in str(refusal.value)


def test_a_wrong_choice_of_the_caller_is_no_damage_of_the_file(path: Path) -> None:
    with pytest.raises(ExecutionError, match="updates='x' is none of the choices"):
        IRExecutor.load(path, updates="x")  # type: ignore[arg-type]


def test_a_damaged_header_is_refused(path: Path) -> None:
    rewrite(path, put("options", "threads", value=1), honest=False)

    with pytest.raises(SerializationError, match="the header is not what was saved: its SHA-256 differs"):
        IRExecutor.load(path)


def test_a_file_that_cannot_be_mapped_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(tensor_file.mmap, "mmap", fail)

    with pytest.raises(SerializationError, match="cannot be mapped: .*No such device"):
        IRExecutor.load(path)


def test_damaged_weights_are_refused(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)

    with pytest.raises(
        SerializationError, match="the weights are not what was saved: their checksum differs"
    ):
        IRExecutor.load(path)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_truncated_file_is_refused(kept: int, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:kept])

    with pytest.raises(
        SerializationError, match="the file ends|bytes long|not a range of bytes within the file"
    ):
        IRExecutor.load(path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    graph, model = make_net()
    save_ir(graph, tmp_path / "net.json", weights=model.state_dict())

    with pytest.raises(SerializationError, match="(?s)this is not a saved executor.*IRExecutor.save"):
        IRExecutor.load(tmp_path / "net.weights.safetensors")
    with pytest.raises(SerializationError, match="cannot be read: No such file"):
        IRExecutor.load(tmp_path / "none.npu")


def test_a_folder_that_is_not_there_is_named_and_an_old_file_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, before = IRExecutor.load(path), path.read_bytes()

    with pytest.raises(
        SerializationError, match="(?s)the executor cannot be written: No such file.*folder exists"
    ):
        executor.save(path.parent / "none" / "net.npu")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(executor_file, "write_tensors", fail)
    with pytest.raises(SerializationError, match="No space left"):
        executor.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["net.npu"]


def test_a_weight_that_is_not_a_plain_tensor_is_named(tmp_path: Path) -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(3).to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return torch.sparse.mm(self.weight, x)

    model, x = Sparse(), torch.rand(3, 2)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes=None)

    with pytest.raises(SerializationError, match="the weight 'weight' is not a plain tensor: .*sparse_coo"):
        executor.save(tmp_path / "sparse.npu")


def test_differences_of_environments_are_named_in_both_directions() -> None:
    found = environment.find_differences({"a": "1", "b": "2"}, {"b": "3", "c": "4", "a": "1"})

    assert found == ["b: 2 there, 3 here", "c: not installed there, 4 here"]


def test_the_environment_names_who_provides_backends_and_passes() -> None:
    found = environment.describe_environment(["aten"], ["cse", "of-a-notebook"], torch.device("cpu"))

    assert found["torch"] == torch.__version__
    assert re.fullmatch(r"npu-runtime .+", found["backend aten"])
    assert re.fullmatch(r"npu-passes .+", found["pass cse"])
    assert found["pass of-a-notebook"] == "not installed"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_executors_are_saved_and_not_copied_or_pickled(duplicate: Callable[[Any], Any]) -> None:
    model = nn.Linear(3, 2)
    executor = IRExecutor(extract_ir(model, (torch.ones(1, 3),)), model.state_dict())

    with pytest.raises(SerializationError, match=r"(?s)an IRExecutor cannot be copied.*load\(path\)"):
        duplicate(executor)


@pytest.mark.parametrize("path", [None, 3, b"file", ""])
def test_an_executor_is_saved_to_and_loaded_from_a_path(path: Any) -> None:
    executor = IRExecutor(extract_ir(nn.ReLU(), (torch.ones(2),)))

    for function in (executor.save, IRExecutor.load):
        with pytest.raises(SerializationError, match="a file is given by its path, a string or a"):
            function(path)
