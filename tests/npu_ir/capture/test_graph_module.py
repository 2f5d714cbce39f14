"""FX graphs that are no exported programs: what make_fx makes becomes a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from npu_ir import ConversionError, execute_ir
from npu_ir.capture import convert_graph_module
from tests.support.rows import each_row


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


def test_the_module_stays_as_it_was() -> None:
    module = traced(torch.sin, torch.ones(2))
    before = module.code

    convert_graph_module(module)

    assert module.code == before


@each_row(
    "function",
    {
        "an input": lambda x: torch.ops.aten.add_.Tensor(x, 1),
        "a copy": lambda x: x.clone().mul_(2),
    },
)
def test_a_write_in_place_is_refused(function: Callable[..., Any]) -> None:
    module = traced(function, torch.ones(2))

    with pytest.raises(ConversionError, match="writes in place: the FX graph is not functional"):
        convert_graph_module(module)


@each_row(
    "op, arguments",
    {
        "functional form": (torch.ops.aten._native_batch_norm_legit_functional.default, (True, 0.1, 1e-5)),
        "backward": (
            lambda x, w, b, m, v, *_: torch.ops.aten.native_batch_norm_backward.default(
                x, x, w, m, v, m, v, True, 1e-5, [True, True, True]
            ),
            (),
        ),
    },
)
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
