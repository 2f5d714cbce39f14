"""Sizes that a graph leaves open, on the command line: said, shown, given, chosen and fixed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.export import Dim

from npu_ir import TensorType, execute_ir, load_ir, load_weights, parse_ir, save_ir
from npu_ir.cli.call_arguments import graph_arguments
from npu_ir.cli.dynamic import dynamic_shapes, parse_dynamic
from npu_ir.cli.factory import make_model
from npu_ir.cli.input_text import parse_inputs
from npu_ir.errors import UsageError
from npu_ir.symbolic.constraints import Range
from tests.support.rows import each_row

MODEL = """
import torch
from torch.export import Dim

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x, state, n=3):
        y = torch.cond(x.sum() > 0, lambda x: self.fc(x).sin(), lambda x: x.cos(), (x,))
        return (y * n).view(-1), state["h"].sum(0)

def pair():
    return Net(), {"x": {0: Dim("rows", min=2, max=8)}, "state": {"h": None}, "n": None}

def odd_pair():
    return 3, {}
"""
INPUTS = "--input 'x=f32[3, 4]' --input 'state={\"h\": f32[5, 2]}' --input n=4"
DYNAMIC = "-d x:0=batch -d batch=2..64 -d \"state['h']:0=h\" -d h=2..9 --dynamic n:auto"
GRAPH = """
graph g {
  symbol a in [1, 64]
  symbol b in [0, 1]
  symbol n in [-inf, inf]
  symbol u in [0, inf]
  require mod(a, 6) == 0
  require n >= a
  input %x: f32[a, 2*a+1]
  input %y: f32[b, a]@[1, b]
  input %z: f32[a]@sparse_coo
  input %n: int(n)

  %found: i64[u, 2] = aten.nonzero.default(self=%x)

  return (%found, %n)
}
"""
FILES = {"dynamic_net.py": MODEL}
SETUP = [f"extract dynamic_net.py:Net {INPUTS} {DYNAMIC} -o net.json --save-weights"]
Command = Callable[..., str]


@each_row("command, code, said", [
    (f"extract dynamic_net.py:Net {INPUTS} --dynamic auto", 0,
        ["inputs      x: f32[s0, 4]\n            state_h: f32[s1, s2]\n"]),
    (f"extract dynamic_net.py:pair {INPUTS}", 0, ["symbols     rows in [2, 8]\n"]),
    (f"extract dynamic_net.py:pair {INPUTS} --dynamic auto", 2,
        ["--dynamic is given, and dynamic_net.py:pair says itself which sizes are open\n  fix: leave out"]),
    (f"extract dynamic_net.py:odd_pair {INPUTS}", 1, ["fix: it must return a torch.nn.Module, or a pair"]),
    ("info net.json", 0, ["symbols     batch in [2, 64]\n            h in [2, 9]\n            s0 in [",
        "of them in 2 regions\n", "1  aten.sin.default\n"]),
    ("run net.json --size batch=5", 0, ["sizes        batch=5, h=2, s0=2 (--size h=N for another one)\n"]),
    ("run net.json --input x=@x.safetensors --size h=3 --size s0=3", 0,
        ["result[0]  f32[36]", "sizes        h=3, s0=3\n"]),
    ("run net.json --input 'x=f32[65, 4]'", 1,
        ["npu: error: dimension 0 of %x is 65, the graph was made for batch in [2, 64] (at kwargs['x'])\n"]),
    ("verify net.json dynamic_net.py:pair --weights net.json --size batch=7", 0,
        ["graph and model agree: 2 results", "\nsizes: batch=7, h=2, s0=2 (--size h=N for another one)\n"]),
    ("specialize net.json -o no.json batch", 2,
        ["'batch' is not a size\n  fix: write SYMBOL=NUMBER, such as batch=8"]),
    ("specialize net.json -o no.json batch=2.5", 2, ["'batch=2.5' is not a size"]),
    ("specialize net.json -o no.json batch=2 batch=2", 2, ["the size 'batch' is given twice"]),
    ("specialize net.json -o no.json seq=2", 1,
        ["graph 'Net' has no symbol 'seq'\n  fix: its symbols: batch, h, s0"]),
    ("specialize net.json -o no.json batch=65", 1, ["symbol 'batch' cannot be 65: it is in [2, 64]"]),
])  # fmt: skip
def test_a_command_says_which_sizes_it_took_or_why_not(
    command: str, code: int, said: list[str], npu: Command
) -> None:
    save_file({"x": torch.ones(9, 4)}, "x.safetensors")

    printed = npu(command, code=code)

    assert [text for text in said if text not in printed] == []
    assert not Path("no.json").exists()


def test_extract_leaves_open_what_is_asked_for() -> None:
    graph, x, state = load_ir("net.json"), torch.randn(7, 4), {"h": torch.randn(2, 2)}

    results = execute_ir(graph, (), {"x": x, "state": state, "n": 9}, weights=load_weights("net.json", graph))

    assert [str(value.type) for value in graph.inputs] == ["f32[batch, 4]", "f32[h, 2]", "int(s0)"]
    assert graph.symbols["batch"] == Range(2, 64)
    torch.manual_seed(0)
    with torch.no_grad():
        assert all(map(torch.equal, results, make_model("dynamic_net.py:Net")(x, state, 9)))


def test_info_tells_programs_symbols_and_constraints(npu: Command) -> None:
    save_ir(parse_ir(GRAPH), "g.json")

    facts = json.loads(npu("info net.json --json"))

    assert (facts["symbols"]["batch"], facts["symbols"]["h"]) == ([2, 64], [2, 9])
    assert facts["constraints"] == []
    assert (facts["regions"], facts["nodes_in_regions"]) == (2, 3)
    assert sum(facts["ops"].values()) == facts["nodes"]
    assert "constraints  mod(a, 6) == 0\n             n >= a\n" in npu("info g.json")


def test_specialize_saves_the_graph_for_fixed_sizes(npu: Command) -> None:
    printed = npu("specialize net.json -o static.json batch=8 s0=4")

    assert "symbols     h in [2, 9]\ninputs      x: f32[8, 4]\n" in printed
    assert "saved       static.json, " in printed
    assert load_ir("static.json") == load_ir("net.json").specialize({"batch": 8, "s0": 4})


@each_row("texts, message", [
    (["x"], "--dynamic x: this names no sizes\n  fix: write NAME:AXIS=SYMBOL"),
    (["x:batch"], "'batch' is not AXIS=SYMBOL\n  fix: axes are counted from 0"),
    (["x:0=b,y:0=b"],
        "'y:0=b' is not AXIS=SYMBOL\n  fix: give each argument an option of its own: --dynamic x"),
    (["x:-1=b"], "'-1=b' is not AXIS=SYMBOL"),
    (["x:0=2b"], "'2b' cannot be the name of a symbol"),
    (["x:0=max"], "'max' cannot be the name of a symbol"),
    (["x:0=b,0=c"], "axis 0 is given twice"),
    (["x:0=b", "x:1=c"], "--dynamic x:1=c: x is given twice"),
    (["x:0=b", "b=2..", "b=3.."], "--dynamic b=3..: b is given twice"),
    (["x:0=b", "b=9..2"], "--dynamic b=9..2: no value is in this range"),
    (["c=2..9"], "no size is called c\n  fix: name one: --dynamic ARGUMENT:0=c"),
])  # fmt: skip
def test_dynamic_sizes_that_cannot_be_read_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_dynamic(texts)


class Any3(torch.nn.Module):
    """Takes arguments of every kind."""

    def forward(self, x: Any, states: Any, *rest: Any, n: int = 3, **more: Any) -> Any:
        raise NotImplementedError


F32 = torch.empty(2, 3)


def test_dynamic_sizes_have_the_form_that_torch_export_takes() -> None:
    dynamic = parse_dynamic(
        ["x:0=b,1=auto", "b=2..9", 'states["k"][0]:auto', "states['k'][1]:0=c", "rest[0]:0=b", "n:auto"]
    )

    shapes = dynamic_shapes(dynamic, Any3(), (F32, {"k": (F32, F32), 0: F32}, F32), {"n": 3})

    batch = shapes["x"][0]
    assert (batch.__name__, batch.min, batch.max) == ("b", 2, 9)
    assert shapes["x"][1] is Dim.AUTO
    assert shapes["states"]["k"][0] == {0: Dim.AUTO, 1: Dim.AUTO}
    assert shapes["states"]["k"][1][0].__name__ == "c"
    assert shapes["states"][0] == {}
    assert shapes["rest"] == ({0: batch},)
    assert shapes["n"] is Dim.DYNAMIC


def test_all_sizes_of_tensors_can_be_left_open_and_numbers_stay() -> None:
    shapes = dynamic_shapes(parse_dynamic(["auto", "states:0=b"]), Any3(), (F32, F32), {"n": 3})

    assert shapes["x"] == {0: Dim.AUTO, 1: Dim.AUTO}
    assert list(shapes["states"]) == [0]
    assert shapes["n"] is None


@each_row("texts, arguments, message", [
    (["y:0=b"], {}, r"the model gets no such argument\n  fix: its tensors: x, states\['k'\]"),
    (["states:0=b"], {}, r"--dynamic states: the model gets no such argument"),
    (["x:2=b"], {}, "a tensor of 2 dimensions has no axis 2"),
    (["n:0=b"], {"n": 3}, "--dynamic n: this is 3, which has no sizes"),
    (["n:auto"], {"n": 3.0}, "--dynamic n: this is 3.0, which has no sizes\n  fix: only"),
    (["x:0=b"], {"x": F32}, "forward of .* cannot be called so: .*'x' is given twice"),
    (["x:0=b"], {"z": F32}, r"forward takes 'z' in \*\*more: torch.export leaves no"),
])  # fmt: skip
def test_dynamic_sizes_of_what_is_not_there_are_refused(
    texts: list[str], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        dynamic_shapes(parse_dynamic(texts), Any3(), (F32, {"k": F32}), arguments)


def make(type: TensorType) -> torch.Tensor:
    tensor = torch.zeros(type.static_shape, dtype=type.dtype)
    return tensor if type.layout is torch.strided else tensor.to_sparse()


def test_sizes_that_nobody_gives_are_the_smallest_that_are_allowed() -> None:
    call = graph_arguments(parse_ir(GRAPH), [], make)

    assert call.sizes == {"a": 6, "b": 1, "n": 6}
    assert [tuple(item.shape) for item in call.args[:3]] == [(6, 13), (1, 6), (6,)]
    assert call.args[3] == 6
    assert [value.name for value in call.random_inputs] == ["x", "y", "z"]


def test_given_inputs_tell_sizes_and_wanted_sizes_the_rest() -> None:
    inputs = parse_inputs(["f32[12, 25]", "n=30"])

    call = graph_arguments(parse_ir(GRAPH), inputs, make, {"b": 0})

    assert call.sizes == {"b": 0}
    assert [tuple(item.shape) for item in call.args[:3]] == [(12, 25), (0, 12), (12,)]
    assert call.args[3] == 30


@each_row("inputs, sizes, message", [
    ([], {"c": 3}, "the graph has no symbol 'c'\n  fix: its symbols: a, b, n, u"),
    ([], {"u": 3}, "the size 'u' is not in an input: it depends on their content"),
    ([], {"a": 65}, r"the size 'a' cannot be 65: it is in \[1, 64\]"),
    (["f32[6, 13]"], {"a": 12}, "cannot be 12: the inputs that are given make it 6"),
    ([], {"n": 0},
        "no size 'a' is found that the graph allows: .*\n  fix: give the sizes: --size NAME=NUMBER")
])  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(inputs: list[str], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        graph_arguments(parse_ir(GRAPH), parse_inputs(inputs), make, sizes)
