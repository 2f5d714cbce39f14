"""FX graphs that are not exported programs, and guards of loaded ones."""

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, ones
from torch.export import Dim
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from npu_ir import ConversionError, convert_exported_program, execute_ir
from npu_ir._torch.export import _relations
from npu_ir.capture import convert_graph_module
from npu_ir.capture.sizes import constraints_of
from npu_ir.symbolic.expressions import Dim as Size
from npu_ir.symbolic.expressions import symbol
from tests.support.corpus.case import Function
from tests.support.rows import each_row

# FX graphs that are no exported programs: what make_fx makes becomes a graph.


def traced(function: Callable[..., Any], *inputs: Any, mode: str = "fake") -> GraphModule:
    made = make_fx(function, tracing_mode=mode)(*inputs)
    assert isinstance(made, GraphModule)
    return made


def test_placeholders_become_inputs_and_the_results_keep_their_nest() -> None:
    module = traced(lambda x, y: ((x + y).relu(), [None, x.t()]), torch.ones(2, 3), torch.ones(3))

    graph = convert_graph_module(module, name="pair")

    assert str(graph) == (
        "graph pair {\n"
        "  input %x_1: f32[2, 3]\n"
        "  input %y_1: f32[3]\n"
        "\n"
        "  %add: f32[2, 3] = aten.add.Tensor(self=%x_1, other=%y_1)\n"
        "  %relu: f32[2, 3] = aten.relu.default(self=%add)\n"
        "  %t: f32[3, 2]@[1, 3] = aten.t.default(self=%x_1)\n"
        "\n"
        "  return (%relu, [None, %t])\n"
        "}\n"
    )


def test_open_sizes_become_symbols() -> None:
    module = traced(lambda x: x.repeat(2, 1) * x.shape[0], torch.ones(3, 4), mode="symbolic")

    graph = convert_graph_module(module)

    x = torch.rand(5, 4)
    assert str(graph.inputs[-1].type) == "f32[s0, s1]"
    assert torch.equal(execute_ir(graph, (x,)), x.repeat(2, 1) * 5)


@each_row(
    "function",
    {"an input": lambda x: torch.ops.aten.add_.Tensor(x, 1), "a copy": lambda x: x.clone().mul_(2)},
)
def test_a_write_in_place_is_refused(function: Callable[..., Any]) -> None:
    module = traced(function, torch.ones(2))

    with pytest.raises(ConversionError, match="writes in place: the FX graph is not functional"):
        convert_graph_module(module)


@each_row("op, arguments", {
    "functional form": (torch.ops.aten._native_batch_norm_legit_functional.default, (True, 0.1, 1e-5)),
    "backward": (
        lambda x, w, b, m, v, *_: torch.ops.aten.native_batch_norm_backward.default(
            x, x, w, m, v, m, v, True, 1e-5, [True, True, True]
        ),
        (),
    ),
})  # fmt: skip
def test_batch_norms_that_only_read_running_statistics_are_functional(
    op: Any, arguments: tuple[Any, ...]
) -> None:
    statistics = [torch.rand(3) for _ in range(4)]
    x = torch.rand(2, 3, 4)
    module = traced(lambda *items: op(*items, *arguments), x, *statistics)

    graph = convert_graph_module(module)

    wanted = op(x, *(item.clone() for item in statistics), *arguments)
    for actual, expected in zip(execute_ir(graph, (x, *statistics)), wanted, strict=True):
        assert torch.equal(actual, expected)


def test_batch_norm_that_updates_running_statistics_is_refused() -> None:
    statistics = [torch.rand(3) for _ in range(4)]
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(name) for name in "xwbmv"]
    for node, item in zip(nodes, [torch.rand(2, 3, 4), *statistics], strict=True):
        node.meta["val"] = item
    graph.output(graph.call_function(torch.ops.aten.native_batch_norm.default, (*nodes, True, 0.1, 1e-5)))

    with pytest.raises(ConversionError, match="native_batch_norm.default writes in place"):
        convert_graph_module(GraphModule(torch.nn.Module(), graph))


def test_placeholders_without_metadata_are_refused() -> None:
    module = torch.fx.symbolic_trace(torch.nn.ReLU())

    with pytest.raises(ConversionError, match="the placeholder 'input_1' of the module has no meta"):
        convert_graph_module(module)


# Guards as Python code, in which torch.export keeps them, and those that no graph can state.


SIZES = {("x", 0): symbol("a"), ("args_0", 1): symbol("b"), ("config_first_1", 0): symbol("c")}


def size_of(name: str, axis: int) -> Size:
    return SIZES[name, axis]


@each_row(("code", "constraint"), [
    ("L['x'].size()[0] % 3 == 0", "mod(a, 3) == 0"),
    ("(L['x'].size()[0] % 3) == 0", "mod(a, 3) == 0"),
    ("L['x'].size()[0] != L['args'][0].size()[1]", "a != b"),
    ("L['config']['first'][1].size()[0] <= 7", "c <= 7"),
    ("2*L['x'].size()[0] - 1 < L['args'][0].size()[1] + 3", "2*a-1 < b+3"),
    ("-L['x'].size()[0] > -9", "-a > -9"),
    ("L['x'].size()[0] // 2 >= 1", "a//2 >= 1"),
    ("L['x'].size()[0] / 2 == 1.5", "a/2 == 1.5"),
    ("L['x'].size()[0]**2 > 30", "a**2 > 30"),
    ("max(4, L['x'].size()[0], 6) == 6", "max(6, a) == 6"),
    ("min(4, L['x'].size()[0]) == 4", "min(4, a) == 4"),
    ("L['x'].size()[0] > 4 and L['x'].size()[0] < 9", "a > 4, and a < 9"),
    ("not L['x'].size()[0] == 3", "a != 3"),
    ("not (L['x'].size()[0] == 5 or L['x'].size()[0] < 2)", "a != 5, and a >= 2"),
    ("not (L['x'].size()[0] > 5 or not L['x'].size()[0] != 2)", "a <= 5, and a != 2"),
])  # fmt: skip
def test_a_relation_between_numbers_is_a_constraint(code: str, constraint: str) -> None:
    assert [str(found) for found in constraints_of(code, size_of)] == constraint.split(", and ")


@each_row("code", {
    "a number": "L['x'].size()[0]",
    "a negated pair": "not (L['x'].size()[0] == 3 and L['x'].size()[0] > 2)",
    "two relations in one": "1 < L['x'].size()[0] < 3",
    "a choice": "L['x'].size()[0] == 3 or L['x'].size()[0] == 4",
    "text": "L['x'].size()[0] == 'three'",
    "another operator": "L['x'].size()[0] << 2 == 8",
    "another sign": "~L['x'].size()[0] == 8",
    "a function of a module": "math.sqrt(L['x'].size()[0]) == 2.0",
    "another function": "len(L['x']) == 2",
    "a stride": "L['x'].stride()[0] == 2",
    "not an argument": "G['x'].size()[0] == 2",
    "a step with a name": "L['x'][k].size()[0] == 2",
})  # fmt: skip
def test_other_code_is_no_constraint(code: str) -> None:
    with pytest.raises(ValueError, match=r"^[LGknlm~1]|^'three'"):
        constraints_of(code, size_of)


def test_a_guard_that_no_graph_can_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(
        Function(torch.neg), (ones(3),), dynamic_shapes={"args": ({0: Dim.AUTO},)}, strict=False
    )
    monkeypatch.setattr("npu_ir.capture.sizes.guard_code", lambda _: ["hash(L['args'][0]) == 3"])

    with pytest.raises(
        ConversionError,
        match="torch.export took a branch by sizes in a way that a graph cannot state: "
        r"hash\(L\['args'\]\[0\]\)\n  fix: decide by a comparison of sizes, or by torch.cond",
    ):
        convert_exported_program(program)


def test_a_guard_on_an_input_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(Function(torch.neg), (ones(3),), strict=False)
    monkeypatch.setattr("npu_ir.capture.sizes.guard_code", lambda _: ["L['other'].size()[0] == 3"])

    with pytest.raises(ConversionError, match="a graph cannot state: there is no input 'other'"):
        convert_exported_program(program)


def test_a_choice_of_which_nothing_held_is_refused() -> None:
    s = sympy.Symbol("s", integer=True)

    with pytest.raises(ValueError, match=r"s > 8.*s < 2"):
        list(_relations(sympy.Or(s < 2, s > 8), {s: 5}))
    with pytest.raises(ValueError, match="q"):
        list(_relations(sympy.Symbol("q"), {}))


def test_a_function_of_sizes_that_expressions_lack_is_refused() -> None:
    def function(x: Tensor) -> Any:
        return x * 2 if torch.sym_sqrt(x.shape[0]) * torch._sym_sin(x.shape[0]) > 0.5 else x

    program = torch.export.export(
        Function(function), (ones(2),), dynamic_shapes={"args": ({0: Dim.AUTO},)}, strict=False
    )

    with pytest.raises(ConversionError, match="a graph cannot state: OpaqueUnaryFn_sin"):
        convert_exported_program(program)
