"""Ops are expanded by tracing them, once for all equal nodes, and replaced by the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_ir import Graph, Provenance, TensorType, execute_ir
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Dim, call, symbol
from npu_passes import Pass, PassError
from npu_passes.decomposition.expansion import _expand_cached, expand
from npu_passes.decomposition.recorded_calls import inline
from npu_passes.rewriting.value_replacement import can_convert_strides
from tests.support.rows import each_row
from tests.support.small_programs import program

X = "input %x: f32[2, 3]"
PLACE = Provenance("layer", "model.py:3")


class Scratch(Pass):
    """Puts what a test found in the place of a node."""

    name = "scratch"

    def run(self, graph: Graph) -> bool:
        (node,) = graph.nodes
        graph.set_provenance(node, PLACE)
        with self.rewrite(graph, "parts", node) as edit:
            inline(edit, node, expand(node, graph.symbols))
        return True


def one_node(line: str, *declared: str) -> Graph:
    """Return a graph of one node, which returns its first output."""
    return program("\n".join([*declared, line, f"return {line.partition(':')[0]}"]))


@contextlib.contextmanager
def operator(schema: str, implementation: Callable[[Tensor], Any] | None = None) -> Iterator[None]:
    with torch.library._scoped_library("tracing_test", "DEF") as library:
        library.define(schema)
        if implementation is not None:
            name = schema.partition("(")[0]
            library.impl(name, implementation, "CompositeImplicitAutograd")
        yield


def op_types(graph: Graph) -> list[str]:
    return [node.op_type.split(".")[1] for node in graph.nodes]


def test_the_parts_of_a_node_take_its_place_and_its_provenance() -> None:
    graph = one_node("%y: f32[2, 3] = aten.silu.default(self=%x)", X)

    Scratch().run(graph)

    graph.check()
    assert op_types(graph) == ["sigmoid", "mul"]
    assert {node.provenance for node in graph.nodes} == {PLACE}
    x = torch.randn(2, 3)
    torch.testing.assert_close(execute_ir(graph, (x,)), torch.nn.functional.silu(x))


def test_parts_of_outputs_that_nothing_reads_are_left_out() -> None:
    line = "%low: f32[], %high: f32[] = aten.aminmax.default(self=%x)"
    graph = one_node(line, X)
    graph.set_outputs(graph.value("high"))

    Scratch().run(graph)

    assert op_types(graph) == ["amax"]


def test_nodes_that_are_alike_are_traced_once() -> None:
    graphs = [one_node("%y: f32[2, 7] = aten.silu.default(self=%x)", "input %x: f32[2, 7]") for _ in range(3)]
    _expand_cached.cache_clear()

    found = [expand(graph.nodes[0], {}) for graph in graphs]

    assert found[0] is found[1] is found[2]
    assert _expand_cached.cache_info().misses == 1


def test_a_tensor_that_the_parts_hold_becomes_a_constant() -> None:
    with operator("weighted(Tensor x) -> Tensor", lambda x: x * torch.tensor([1.0, 2.0, 3.0])):
        graph = one_node("%y: f32[2, 3] = tracing_test.weighted.default(x=%x)", X)
        graph.add_constant("traced_0", torch.zeros(1))

        Scratch().run(graph)

    graph.check()
    assert list(graph.constants) == ["traced_0", "traced_1"]
    assert op_types(graph) == ["mul"]
    x = torch.randn(2, 3)
    assert torch.equal(execute_ir(graph, (x,)), x * torch.tensor([1.0, 2.0, 3.0]))


def test_parts_that_write_are_made_functional() -> None:
    def parts(x: Tensor) -> Tensor:
        y = x.clone()
        y[0].mul_(2)
        return y.add_(1)

    with operator("writing(Tensor x) -> Tensor", parts):
        graph = one_node("%y: f32[2, 3] = tracing_test.writing.default(x=%x)", X)

        Scratch().run(graph)

    graph.check()
    x = torch.randn(2, 3)
    assert torch.equal(execute_ir(graph, (x,)), parts(x))
    assert not any(name.endswith("_") for name in op_types(graph))


def test_a_choice_of_implementation_by_size_does_not_keep_a_convolution_from_being_taken_apart() -> None:
    graph = one_node(
        "%y: f32[s0, 4, 6, 6] = aten.conv2d.default(input=%x, weight=%w)",
        "symbol s0 in [1, 64]",
        "input %x: f32[s0, 3, 8, 8]",
        "input %w: f32[4, 3, 3, 3]",
    )

    Scratch().run(graph)

    assert op_types(graph) == ["convolution"]


def attention(strides: Sequence[int]) -> Graph:
    type = f"f32[2, 4, 5, 8]@[{', '.join(map(str, strides))}]"
    line = f"%y: {type} = aten.scaled_dot_product_attention.default(query=%x, key=%x, value=%x)"
    return one_node(line, "input %x: f32[2, 4, 5, 8]")


@each_row("strides", [(160, 8, 32, 1), (8, 16, 64, 1), (8, 80, 16, 1)])
def test_the_parts_return_the_strides_that_readers_were_captured_with(strides: Any) -> None:
    graph = attention(strides)

    Scratch().run(graph)

    graph.check()
    x = torch.randn(2, 4, 5, 8)
    found = execute_ir(graph, (x,))
    assert found.stride() == graph.outputs[0].tensor_type.static_strides == tuple(strides)
    torch.testing.assert_close(found, torch.nn.functional.scaled_dot_product_attention(x, x, x))


def test_strides_of_open_sizes_are_equal_where_they_are_for_all_values() -> None:
    size = symbol("s0")
    filled = TensorType((4, size), torch.float32)
    ranges = {"s0": Range(2, 64)}

    def written(*strides: Dim) -> TensorType:
        return TensorType((4, size), torch.float32, strides)

    assert can_convert_strides(filled, written(call("min", size, 100), 1), ranges)
    assert can_convert_strides(filled, written(1, 4), ranges)
    assert not can_convert_strides(filled, written(2, 1), ranges)
    assert not can_convert_strides(filled, written(call("min", size, 60), 1), ranges)


def test_a_node_without_parts_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    rows = [
        (one_node("%y: f32[2, 4] = aten.silu.default(self=%x)", X),
            r"its parts return f32\[2, 3\], not f32\[2, 4\]"),
        (attention((160, 8, 33, 1)), r"its parts return .*, not f32\[2, 4, 5, 8\]@\[160, 8, 33, 1\]"),
        (one_node("%y: f32[2, 3] = aten.relu.default(self=%x)", X),
            "PyTorch has no decomposition of aten.relu.default"),
        (one_node("%y: f32[2, 3] = aten.mm.default(self=%x, mat2=%x)", X),
            "PyTorch cannot trace it: RuntimeError"),
        (one_node("%y: int = operator.neg(a=%x)", "input %x: int"),
            "operator.neg is not a PyTorch operator without regions"),
        (one_node("%y: f32[] = nobody.knows.this(self=%x)", X),
            "nobody.knows.this is not a PyTorch operator without regions"),
    ]  # fmt: skip
    for graph, message in rows:
        with subtests.test(graph=graph, message=message):
            before = str(graph)

            with pytest.raises(PassError, match=message):
                Scratch().run(graph)

            assert str(graph) == before


@pytest.mark.smoke
@each_row("schema, parts, type, message", [
    ("branching(Tensor x) -> Tensor", lambda x: x + 1 if x.shape[0] > 7 else x * 2, "f32[s0]",
        r"other ops for other sizes: to these only where s0 > 7"),
    ("size(Tensor x) -> int", lambda x: 3, "int", "it returns plain data"),
    ("fill(Tensor(a!) x) -> ()", None, "f32[2]", "fill.default writes into its arguments"),
])  # fmt: skip
def test_an_op_that_a_trace_does_not_hold_for_is_refused(
    schema: str, parts: Any, type: str, message: str
) -> None:
    with operator(schema, parts):
        name = schema.partition("(")[0]
        line = f"%y: {type} = tracing_test.{name}.default(x=%x)"
        graph = one_node(line, "symbol s0 in [1, 64]", "input %x: f32[s0]")

        with pytest.raises(PassError, match=message):
            Scratch().run(graph)


def test_a_tensor_made_by_the_parts_is_made_where_the_graph_runs() -> None:
    line = (
        "%y: f32[2, 2, 4, 8] = aten.scaled_dot_product_attention.default(query=%x, key=%x, "
        "value=%x) {is_causal=True}"
    )
    graph = one_node(line, "input %x: f32[2, 2, 4, 8]")

    Scratch().run(graph)

    devices = {node.attrs["device"] for node in graph.nodes if node.attrs.get("device") is not None}
    assert devices == {torch.device("meta")}
    x = torch.randn(2, 2, 4, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    torch.testing.assert_close(execute_ir(graph, (x,)), expected)
