"""Values of ``--input``, and their position in a call."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from npu_ir import Graph, TensorType, parse_ir
from npu_ir.cli.call_arguments import empty_tensor, graph_arguments, model_arguments
from npu_ir.cli.input_text import FileReference, parse_input, parse_inputs, parse_sizes
from npu_ir.cli.quantities import value_line
from npu_ir.cli.tensor_files import read_input
from npu_ir.core.structure import unflatten
from npu_ir.core.types import memory_format_strides, parse_dtype
from npu_ir.errors import UsageError
from npu_ir.interpreter.random_data import random_tensor, random_weights
from tests.support.rows import each_row
from tests.support.small_programs import program

F32 = TensorType((1, 3), torch.float32)


def read(text: str) -> tuple[str, Any]:
    item = parse_input(text)
    return item.name, unflatten(item.structure, item.leaves)


@each_row("text, name, value", [
    ("float32[1,3]", "", F32),
    (" x = f32[1,3] ", "x", F32),
    ("group0.betas.1=0.5", "group0.betas.1", 0.5),
    ("f32[]", "", TensorType((), torch.float32)),
    ("bool[0,2]", "", TensorType((0, 2), torch.bool)),
    ("f32[2,3]@[1,2]", "", TensorType((2, 3), torch.float32, (1, 2))),
    ("f32[1,3,4,4]@channels_last", "",
        TensorType((1, 3, 4, 4), torch.float32, memory_format_strides((1, 3, 4, 4), torch.channels_last))),
    ("2.5", "", 2.5),
    ("n=-7", "n", -7),
    ("n=inf", "n", float("inf")),
    ("flag=true", "flag", True),
    ("flag=False", "flag", False),
    ("k=none", "k", None),
    ('mode="a, b=c"', "mode", "a, b=c"),
    ("sizes=[2, 3]", "sizes", [2, 3]),
    ('[f32[1,3], (1, none), {"a": f32[1,3]}]', "", [F32, (1, None), {"a": F32}]),
    ("x=@a/b.npy", "x", FileReference(Path("a/b.npy"))),
    ("@w.safetensors#x", "", FileReference(Path("w.safetensors"), "x"))
])  # fmt: skip
def test_an_input_is_read(text: str, name: str, value: Any) -> None:
    assert read(text) == (name, value)


@each_row("text, message", [
    ("x=foo[2]", "--input x=foo.2.: unknown dtype 'foo'\n  fix: --help of the command lists"),
    ("x=f32", "f32 has no shape\n  fix: write f32.2, 3., or f32.. for a 0-d tensor"),
    ("x=f32[-1]", r"expected an integer from 0 to 2\*\*63 - 1, got -1"),
    (f"x=f32[{2**62}]", r"there are no tensors of type f32\[4611686018427387904\]"),
    ("[@a.npy, 1]", "a file cannot be part of a list, tuple or dict\n  fix: save all of it to one .pt"),
    ("{[1]: 2}", "a list cannot be a key of a dict"),
    ("x=f32[2", "got the end of the text\n  fix: --help of the command"),
    ("x=f32[2]]", "expected the end of the text, got ']'"),
    ("mode=bilinear", "'bilinear' is not a value\n  fix: put a string in quotes: '\"bilinear\"'"),
    ("x=f32[batch, 4]", r"f32\[batch, 4\] has no sizes yet\n  fix: give the sizes of an example"),
    ("x=", "--input x=: expected"),
    ("x=@", "--input x=@: no file is named after '@'"),
])  # fmt: skip
def test_an_input_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_input(text)


def test_a_name_is_given_once() -> None:
    with pytest.raises(UsageError, match=r"--input x=\.\.\. is given twice"):
        parse_inputs(["x=1", "y=1", "x=2"])


def test_inputs_of_a_model_are_positional_or_keywords_without_data() -> None:
    args, kwargs = model_arguments(parse_inputs(["f32[2]", "k=[i64[3], 1]", "2"]), empty_tensor)

    assert [getattr(item, "device", item) for item in args] == [torch.device("meta"), 2]
    assert (kwargs["k"][0].dtype, kwargs["k"][0].device.type, kwargs["k"][1]) == (torch.int64, "meta", 1)


TENSOR = torch.arange(6, dtype=torch.float64).reshape(2, 3)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", TENSOR.numpy())
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    torch.save(TENSOR, "x.pt")
    torch.save([TENSOR, {"n": 3}], "nested.pt")
    save_file({"only": TENSOR}, "one.safetensors")
    save_file({"x": TENSOR, "y": TENSOR + 1}, "two.safetensors")
    Path("broken.safetensors").write_bytes(b"no")
    Path("broken.pt").write_bytes(b"no")
    torch.save(torch.nn.Linear(1, 1), "code.pt")
    Path("broken.npy").write_bytes(b"no")
    Path("empty.npy").touch()
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:-5])
    np.save("texts.npy", np.array(["a"]))
    return tmp_path


@each_row("file", ["@x.npy", "@x.pt", "@one.safetensors", "x=@two.safetensors", "z=@two.safetensors#x"])
def test_an_input_comes_from_a_file(file: str, files: Path) -> None:
    item = parse_input(file)

    assert torch.equal(read_input(item.leaves[0], item.name), TENSOR)


def test_a_file_of_numpy_without_numpy_says_what_to_install(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(UsageError, match=r"reading x\.npy needs NumPy\n  fix: python -m pip install numpy"):
        read_input(FileReference(Path("x.npy")), "")


def test_a_pt_file_may_hold_nested_inputs(files: Path) -> None:
    tensor, options = read_input(FileReference(files / "nested.pt"), "")

    assert torch.equal(tensor, TENSOR)
    assert options == {"n": 3}


@each_row("file, message", [
    ("@missing.npy", "there is no file missing.npy"),
    ("@x.txt", "x.txt is not a file of tensors\n  fix: supported are .npy, .pt, .pth, .safetensors"),
    ("@x.pt#x", "x.pt#x: only .safetensors files hold tensors by name"),
    ("@two.safetensors", "two.safetensors holds 2 tensors: which one"),
    ("@two.safetensors#z", "two.safetensors has no tensor 'z'\n  fix: it has x, y"),
    ("@broken.safetensors", "broken.safetensors cannot be read: .*\n  fix: check that the file is complete"),
    ("@broken.pt", "(?s)broken.pt is not what torch.save writes: it begins with b'no'.*fix: check that"),
    ("@code.pt", r"code.pt cannot be read: Weights only load failed\n  fix: no code .* is run: save tensors"),
    ("@broken.npy", "(?s)broken.npy is not what numpy.save writes: it begins with b'no'.*fix: check that"),
    ("@empty.npy", "empty.npy is not what numpy.save writes: it is empty"),
    ("@cut.npy", "(?s)cut.npy cannot be read: .*fix: check that the file is complete"),
    ("@objects.npy", "objects.npy holds Python objects, not numbers\n  fix: save an array of numbers"),
    ("@texts.npy", "texts.npy holds <U1, not numbers"),
])  # fmt: skip
def test_a_file_that_holds_no_input_is_refused(file: str, message: str, files: Path) -> None:
    item = parse_input(file)

    with pytest.raises(UsageError, match=message):
        read_input(item.leaves[0], item.name)


GRAPH = """
graph g {
  input %x: f32[2]
  input %ys_0: f32[3]
  input %ys_1: i64[]
  input %mask: bool[2]
  call (%x, [%ys_0, %ys_1], %x, mask=%mask, scale=2.0)

  return %x
}
"""


def zeros(type: TensorType) -> torch.Tensor:
    return torch.zeros(type.shape, dtype=type.dtype)


@pytest.fixture
def graph() -> Graph:
    return parse_ir(GRAPH)


def test_inputs_that_are_not_given_are_invented_and_listed(graph: Graph) -> None:
    call = graph_arguments(graph, [], zeros)

    assert call.args[0] is call.args[2]
    assert [tensor.dtype for tensor in call.args[1]] == [torch.float32, torch.int64]
    assert call.kwargs["scale"] == 2.0
    assert [value.name for value in call.random_inputs] == ["x", "ys_0", "ys_1", "mask"]


def test_floats_that_are_not_given_are_invented_and_listed() -> None:
    graph = program("input %group0.lr: float input %eps: float return (%group0.lr, %eps)")

    call = graph_arguments(graph, parse_inputs(["group0.lr=0.25"]), zeros)

    assert call.args == (0.25, 0.5)
    assert [value.name for value in call.random_inputs] == ["eps"]


def test_an_input_of_a_graph_goes_by_place_by_keyword_or_by_its_own_name(graph: Graph) -> None:
    call = graph_arguments(graph, parse_inputs(["1", "mask=2", "ys_1=3", "scale=4.0"]), zeros)

    assert (call.args[0], call.args[1][1], call.kwargs) == (1, 3, {"mask": 2, "scale": 4.0})
    assert [value.name for value in call.random_inputs] == ["ys_0", "x"]


@each_row("inputs, message", [
    (["z=1"], "the graph has no input 'z'\n  fix: the graph takes %x: f32.2., %ys_0: "),
    (["1", "2", "3", "4"], "4 positional inputs given, the graph takes 3\n  fix: give the others by name"),
    (["1", "[2, 3]", "ys_0=4"], "input 'ys_0' is given twice: by position and by name")
])  # fmt: skip
def test_inputs_that_have_no_place_are_refused(inputs: list[str], message: str, graph: Graph) -> None:
    with pytest.raises(UsageError, match=message):
        graph_arguments(graph, parse_inputs(inputs), zeros)


@each_row("dtype", ["f32", "f64", "bf16", "f16", "float8_e4m3fn", "c64", "c128", "i64", "u8", "u32", "bool"])
def test_random_data_has_the_type_and_is_not_constant(dtype: str) -> None:
    type = TensorType((40, 3), parse_dtype(dtype), (1, 40))

    tensor = random_tensor(type, torch.Generator().manual_seed(0), int_high=5)

    assert TensorType.of(tensor) == type
    assert len(set(tensor.flatten().tolist())) > 1
    assert dtype not in ("i64", "u8", "u32") or set(tensor.flatten().tolist()) == {0, 1, 2, 3, 4}


def test_a_type_that_cannot_be_filled_is_refused() -> None:
    problem = r"PyTorch cannot make data of type int4\[2\]: .*\n  fix: take it from a file"
    with pytest.raises(UsageError, match=problem):
        random_tensor(TensorType((2,), torch.int4), torch.Generator(), int_high=2)


def test_random_weights_cover_the_graph_and_are_never_negative_variances() -> None:
    graph = program("param %w: f16[64, 16, 3, 3] buffer %bn.running_var: f32[64] buffer %n: i64[] return ()")

    weights = random_weights(graph, seed=3)

    types = {value.name: value.type for value in graph.arguments}
    assert {name: TensorType.of(tensor) for name, tensor in weights.items()} == types
    assert weights["w"].abs().max() <= 1 / 12
    assert weights["w"].min() < 0
    assert weights["bn.running_var"].min() >= 0
    assert torch.equal(weights["w"], random_weights(graph, seed=3)["w"])


@each_row("value, line", [
    (torch.tensor(2.5), "f32[]  2.5"),
    (torch.tensor([[1, 2], [3, 4]]), "i64[2, 2]  [[1, 2], [3, 4]]"),
    (torch.zeros(0, 3), "f32[0, 3]  empty"),
    (torch.arange(100.0), "f32[100]  min 0, mean 49.5, max 99"),
    (torch.arange(9).to(torch.uint8), "u8[9]  min 0, mean 4, max 8"),
    (torch.arange(9) < 3, "bool[9]  3 of 9 true"),
    (torch.full((9,), 3 + 4j), "c64[9]  abs min 5, mean 5, max 5"),
    (torch.tensor([1.0, 3.0, *[float("nan")] * 5, *[float("inf")] * 2, float("-inf")]),
        "f32[10]  min 1, mean 2, max 3, 5 nan, 2 inf, 1 -inf"),
    (torch.full((9,), float("nan")), "f32[9]  9 nan"),
    pytest.param(torch.empty(9, dtype=torch.int4),
        "int4[9]  (PyTorch cannot read the elements of this dtype)", id="int4"),
    (None, "None")
])  # fmt: skip
def test_a_result_is_shown_in_one_line(value: Any, line: str) -> None:
    assert value_line(value) == line


def test_sizes_may_be_negative_where_a_symbol_is_a_number() -> None:
    assert parse_sizes(["n=-3", " k=0"]) == {"n": -3, "k": 0}
