"""narrow-expand: what works element by element is computed before it is expanded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from npu_ir import Graph, parse_ir
from npu_passes import PassManager
from npu_passes.library.cleanup.narrow_expand import NarrowExpand
from npu_passes.testing import check_pass
from npu_runtime.training import compile_ir
from tests.support.passes.training_graphs import ops


def expanded(line: str, *, of: str = "f32[2, 1]", to: str = "[2, 3]", made: str = "f32[2, 3]") -> Graph:
    """Return a graph of one op on an expanded input."""
    symbols = "  symbol s: 2..8\n" if "s" in of + to else ""
    return parse_ir(
        f"""
        graph g {{
        {symbols}  input %x: {of}

          %wide: {made}@[1, 0] = aten.expand.default(self=%x) {{size={to}}}
          %out: {made} = {line}

          return %out
        }}
        """
    )


def test_it_is_computed_on_the_small_tensor(subtests: pytest.Subtests) -> None:
    rows = [
        "aten.div.Tensor(self=%wide) {other=3}",
        "aten.mul.Tensor(self=%wide) {other=0.5}",
        "aten.neg.default(self=%wide)",
        "aten.clamp.default(self=%wide) {min=-1, max=1}",
    ]
    for line in rows:
        with subtests.test(line=line):
            graph = expanded(line)

            assert check_pass(NarrowExpand, graph) == 1

            made = PassManager([NarrowExpand, "dead-code"]).run(graph).graph
            assert ops(made)[1:] == ["aten.expand.default", "aten.clone.default"]
            assert made.nodes[0].outputs[0].tensor_type.shape == (2, 1)
            assert made.results[1][0].type == graph.results[1][0].type


def test_other_ops_are_left(subtests: pytest.Subtests) -> None:
    rows = [
        "aten.cumsum.default(self=%wide) {dim=1}",
        "aten.clone.default(self=%wide) {memory_format=contiguous_format}",
        "aten.bernoulli.p(self=%wide) {p=0.5}",
        "aten.rand_like.default(self=%wide)",
    ]
    for line in rows:
        with subtests.test(line=line):
            assert check_pass(NarrowExpand, expanded(line)) == 0


def test_what_is_not_larger_is_left() -> None:
    graph = expanded("aten.neg.default(self=%wide)", of="f32[2, 3]").clone()

    assert not PassManager([NarrowExpand]).run(graph).journal.rewrites


def test_ops_of_two_tensors_are_left() -> None:
    graph = parse_ir(
        """
        graph g {
          input %x: f32[2, 1]
          input %y: f32[2, 3]

          %wide: f32[2, 3]@[1, 0] = aten.expand.default(self=%x) {size=[2, 3]}
          %out: f32[2, 3] = aten.mul.Tensor(self=%wide, other=%y)

          return %out
        }
        """
    )

    assert check_pass(NarrowExpand, graph) == 0


def test_the_gradient_of_a_mean_is_divided_before_it_is_expanded() -> None:
    model = nn.Conv2d(2, 3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(2, 2, 6, 5), torch.randn(2, 3)
    graph = compile_ir(model, optimizer, lambda y, t: ((y.mean((2, 3)) - t) ** 2).sum(), batch)

    made = PassManager.of_pipeline("train").run(graph).graph

    (division,) = made.nodes_of("aten.div.Tensor")
    assert division.outputs[0].tensor_type.shape == (2, 3, 1, 1)
