"""A graph becomes the ops that run it, in order: those of backends, and those of ATen with the reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from npu_ir import Graph, parse_ir
from npu_ir.plugins.backend import BackendOp, Temporary
from npu_runtime import BackendError
from npu_runtime.backends.registry import named_backends
from npu_runtime.lowering.lowered_graph import LoweredGraph, lower
from tests.support.backends.tiny_backend import TinyBackend

TWO_LAYERS = """
graph "two-layers" {
  input %x: f32[2, 3]
  param %w1: f32[3, 5]
  param %w2: f32[5, 4]
  %h: f32[2, 5] = aten.mm.default(%x, %w1)
  %a: f32[2, 5] = aten.relu.default(%h)
  %s: f32[2, 5] = aten.sigmoid.default(%a)
  %y: f32[2, 4] = aten.mm.default(%s, %w2)
  return %y
}
"""


def two_layers() -> Graph:
    return parse_ir(TWO_LAYERS)


def kinds(lowered: LoweredGraph) -> list[str]:
    return [item.op.kind for item in lowered.ops]


def test_on_aten_each_node_is_one_op() -> None:
    graph = two_layers()

    lowered = lower(graph, named_backends("aten"))

    assert kinds(lowered) == [node.op_type for node in graph.body]
    assert [item.op.nodes for item in lowered.ops] == [(node,) for node in graph.body]
    assert lowered.fallbacks == ()


def test_a_backend_lowers_what_it_takes_and_aten_the_rest() -> None:
    lowered = lower(two_layers(), named_backends(TinyBackend()))

    assert kinds(lowered) == ["Pack", "Gemm", "Relu", "aten.sigmoid.default", "Pack", "Gemm"]
    assert [item.backend for item in lowered.ops] == ["tiny"] * 3 + ["aten"] + ["tiny"] * 2


def test_an_op_that_fell_back_says_why() -> None:
    lowered = lower(two_layers(), named_backends(TinyBackend()))

    (fallback,) = lowered.fallbacks
    assert fallback.op.kind == "aten.sigmoid.default"
    assert fallback.refusals == {"tiny": "it multiplies and rectifies"}


def test_operands_are_values_of_the_whole_graph() -> None:
    graph = two_layers()

    ops = [item.op for item in lower(graph, named_backends(TinyBackend())).ops]

    read = {item for op in ops for item in op.inputs if not isinstance(item, Temporary)}
    made = [item for op in ops for item in op.outputs if not isinstance(item, Temporary)]
    assert read <= set(graph.values)
    assert made == [value for node in graph.body for value in node.outputs]
    assert all(node.graph is graph for op in ops for node in op.nodes)


def test_temporaries_are_listed_as_they_are_made() -> None:
    lowered = lower(two_layers(), named_backends(TinyBackend()))

    assert [item.name for item in lowered.temporaries] == ["h.packed", "y.packed"]


def test_ops_are_counted_by_kind() -> None:
    lowered = lower(two_layers(), named_backends(TinyBackend()))

    assert (lowered.count("Gemm"), lowered.count("aten.sigmoid.default"), lowered.count("Conv")) == (2, 1, 0)
    assert len(lowered.ops) == 6


def test_what_runs_once_is_apart() -> None:
    graph = parse_ir("""
graph "scaled" {
  input %x: f32[2, 3]
  param %w: f32[3]
  prologue {
    %n: f32[3] = aten.neg.default(%w)
  }
  %y: f32[2, 3] = aten.mul.Tensor(%x, %n)
  return %y
}
""")

    lowered = lower(graph, named_backends("aten"))

    assert [item.op.kind for item in lowered.prologue] == ["aten.neg.default"]
    assert kinds(lowered) == ["aten.mul.Tensor"]


def test_the_graph_stays_as_it_is() -> None:
    graph = two_layers()
    before = str(graph)

    lower(graph, named_backends(TinyBackend()))

    assert str(graph) == before


def test_a_backend_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BackendError, match="there is no backend 'nonesuch'"):
        lower(two_layers(), named_backends("nonesuch"))


class Forgetful(TinyBackend):
    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return super().lower(graph)[:-1]


def test_a_backend_that_forgets_a_node_is_named() -> None:
    with pytest.raises(BackendError, match=r"'tiny' does not lower as its interface says: .* node 'a'"):
        lower(two_layers(), named_backends(Forgetful()))


class Failing(TinyBackend):
    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        raise ValueError("out of registers")


def test_a_backend_that_fails_to_lower_is_named_with_the_nodes() -> None:
    with pytest.raises(
        BackendError, match=r"'tiny' failed to lower 2 nodes .* out of registers(?s:.*)'h' to 'a'"
    ):
        lower(two_layers(), named_backends(Failing()))
