"""Ops are expanded by tracing them, once for all equal nodes, and replaced by the result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from npu_ir import Graph, Provenance, TensorType, execute_ir, parse_ir
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Dim, call, symbol
from npu_passes import Pass, PassError
from npu_passes.decomposition.expansion import _expand_cached, expand
from npu_passes.decomposition.recorded_calls import inline
from npu_passes.rewriting.value_replacement import can_convert_strides

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


def one_node(line: str, *inputs: str, symbols: str = "") -> Graph:
    """Return a graph of one node, which returns its first output."""
    names = [text.partition(":")[0] for text in inputs]
    result = line.partition(":")[0]
    declared = "".join(f"  input {text}\n" for text in inputs)
    return parse_ir(
        f"graph g {{\n{symbols}{declared}  call ({', '.join(names)})\n\n  {line}\n\n  return {result}\n}}\n"
    )


def op_types(graph: Graph) -> list[str]:
    return [node.op_type.split(".")[1] for node in graph.nodes]


def test_the_parts_of_a_node_take_its_place_and_its_provenance() -> None:
    graph = one_node("%y: f32[2, 3] = aten.silu.default(self=%x)", "%x: f32[2, 3]")

    Scratch().run(graph)

    graph.check()
    assert op_types(graph) == ["sigmoid", "mul"]
    assert {node.provenance for node in graph.nodes} == {PLACE}
    x = torch.randn(2, 3)
    torch.testing.assert_close(execute_ir(graph, (x,)), torch.nn.functional.silu(x))


def test_parts_of_outputs_that_nothing_reads_are_left_out() -> None:
    line = "%low: f32[], %high: f32[] = aten.aminmax.default(self=%x)"
    graph = one_node(line, "%x: f32[2, 3]")
    graph.set_outputs(graph.value("high"))

    Scratch().run(graph)

    assert op_types(graph) == ["amax"]


def test_nodes_that_are_alike_are_traced_once() -> None:
    graphs = [one_node("%y: f32[2, 7] = aten.silu.default(self=%x)", "%x: f32[2, 7]") for _ in range(3)]
    _expand_cached.cache_clear()

    found = [expand(graph.nodes[0], {}) for graph in graphs]

    assert found[0] is found[1] is found[2]
    assert _expand_cached.cache_info().misses == 1


def test_a_tensor_that_the_parts_hold_becomes_a_constant() -> None:
    with torch.library._scoped_library("tracing_test", "DEF") as library:
        library.define("weighted(Tensor x) -> Tensor")
        library.impl("weighted", lambda x: x * torch.tensor([1.0, 2.0, 3.0]), "CompositeImplicitAutograd")
        graph = one_node("%y: f32[2, 3] = tracing_test.weighted.default(x=%x)", "%x: f32[2, 3]")
        graph.add_constant("traced_0", torch.zeros(1))

        Scratch().run(graph)

    graph.check()
    assert list(graph.constants) == ["traced_0", "traced_1"]
    assert op_types(graph) == ["mul"]
    x = torch.randn(2, 3)
    assert torch.equal(execute_ir(graph, (x,)), x * torch.tensor([1.0, 2.0, 3.0]))


def test_parts_that_write_are_made_functional() -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0].mul_(2)
        return y.add_(1)

    with torch.library._scoped_library("tracing_test", "DEF") as library:
        library.define("writing(Tensor x) -> Tensor")
        library.impl("writing", parts, "CompositeImplicitAutograd")
        graph = one_node("%y: f32[2, 3] = tracing_test.writing.default(x=%x)", "%x: f32[2, 3]")

        Scratch().run(graph)

    graph.check()
    x = torch.randn(2, 3)
    assert torch.equal(execute_ir(graph, (x,)), parts(x))
    assert not any(name.endswith("_") for name in op_types(graph))


def test_parts_are_found_for_open_sizes() -> None:
    graph = one_node(
        "%y: f32[8*s0] = aten.flatten.using_ints(self=%x)",
        "%x: f32[s0, 8]",
        symbols="  symbol s0 in [1, 64]\n",
    )

    Scratch().run(graph)

    graph.check()
    assert op_types(graph)[-1] == "view"
    for rows in (1, 5):
        x = torch.randn(rows, 8)
        assert torch.equal(execute_ir(graph, (x,)), x.flatten())


def test_a_choice_of_implementation_by_size_does_not_keep_a_convolution_from_being_taken_apart() -> None:
    graph = one_node(
        "%y: f32[s0, 4, 6, 6] = aten.conv2d.default(input=%x, weight=%w)",
        "%x: f32[s0, 3, 8, 8]",
        "%w: f32[4, 3, 3, 3]",
        symbols="  symbol s0 in [1, 64]\n",
    )

    Scratch().run(graph)

    assert op_types(graph) == ["convolution"]


def attention(strides: Sequence[int]) -> Graph:
    type = f"f32[2, 4, 5, 8]@[{', '.join(map(str, strides))}]"
    line = f"%y: {type} = aten.scaled_dot_product_attention.default(query=%x, key=%x, value=%x)"
    return one_node(line, "%x: f32[2, 4, 5, 8]")


def test_the_parts_return_the_strides_that_readers_were_captured_with(subtests: pytest.Subtests) -> None:
    for strides in [(160, 8, 32, 1), (8, 16, 64, 1), (8, 80, 16, 1)]:
        with subtests.test(strides=strides):
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


def mismatched() -> Graph:
    return one_node("%y: f32[2, 4] = aten.silu.default(self=%x)", "%x: f32[2, 3]")


def test_a_node_without_parts_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    rows = [
        (mismatched(), r"its parts return f32\[2, 3\], not f32\[2, 4\]"),
        (attention((160, 8, 33, 1)), r"its parts return .*, not f32\[2, 4, 5, 8\]@\[160, 8, 33, 1\]"),
        (
            one_node("%y: f32[2, 3] = aten.relu.default(self=%x)", "%x: f32[2, 3]"),
            "PyTorch has no decomposition of aten.relu.default",
        ),
        (
            one_node("%y: f32[2, 3] = aten.mm.default(self=%x, mat2=%x)", "%x: f32[2, 3]"),
            "PyTorch cannot trace it: RuntimeError",
        ),
        (
            one_node("%y: int = operator.neg(a=%x)", "%x: int"),
            "operator.neg is not a PyTorch operator without regions",
        ),
        (
            one_node("%y: f32[] = nobody.knows.this(self=%x)", "%x: f32[2, 3]"),
            "nobody.knows.this is not a PyTorch operator without regions",
        ),
    ]
    for graph, message in rows:
        with subtests.test(graph=graph, message=message):
            before = str(graph)

            with pytest.raises(PassError, match=message):
                Scratch().run(graph)

            assert str(graph) == before


def test_parts_that_depend_on_open_sizes_are_refused() -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 7 else x * 2

    with torch.library._scoped_library("tracing_test", "DEF") as library:
        library.define("branching(Tensor x) -> Tensor")
        library.impl("branching", parts, "CompositeImplicitAutograd")
        graph = one_node(
            "%y: f32[s0] = tracing_test.branching.default(x=%x)",
            "%x: f32[s0]",
            symbols="  symbol s0 in [1, 64]\n",
        )

        with pytest.raises(PassError, match=r"other ops for other sizes: to these only where s0 > 7"):
            Scratch().run(graph)


@pytest.mark.smoke
def test_an_op_that_writes_is_refused() -> None:
    with torch.library._scoped_library("tracing_test", "DEF") as library:
        library.define("fill(Tensor(a!) x) -> ()")
        graph = one_node("%y: f32[2] = tracing_test.fill.default(x=%x)", "%x: f32[2]")

        with pytest.raises(PassError, match="fill.default writes into its arguments"):
            Scratch().run(graph)


def test_parts_with_plain_results_are_refused() -> None:
    with torch.library._scoped_library("tracing_test", "DEF") as library:
        library.define("size(Tensor x) -> int")
        library.impl("size", lambda x: 3, "CompositeImplicitAutograd")
        graph = one_node("%y: int = tracing_test.size.default(x=%x)", "%x: f32[2, 3]")

        with pytest.raises(PassError, match="it returns plain data"):
            Scratch().run(graph)


def test_a_tensor_made_by_the_parts_is_made_where_the_graph_runs() -> None:
    line = (
        "%y: f32[2, 2, 4, 8] = aten.scaled_dot_product_attention.default(query=%x, key=%x, "
        "value=%x) {is_causal=True}"
    )
    graph = one_node(line, "%x: f32[2, 2, 4, 8]")

    Scratch().run(graph)

    devices = {node.attrs["device"] for node in graph.nodes if node.attrs.get("device") is not None}
    assert devices == {torch.device("meta")}
    x = torch.randn(2, 2, 4, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    torch.testing.assert_close(execute_ir(graph, (x,)), expected)
