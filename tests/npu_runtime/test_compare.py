"""Comparing two sides: the value that is blamed, and what is said of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_ir import Graph, extract_ir
from npu_ir.ops import register_executor, unregister_executor
from npu_passes import PassManager, optimize
from npu_runtime.diagnostics.compare import compare
from npu_runtime.executor.executor import IRExecutor
from tests.npu_runtime.compare_cases import GELU, SIN, Block, ReluToNeg, graph_of
from tests.support.corpus.case import Function


@pytest.fixture
def wrong_gelu() -> Iterator[None]:
    """Register an executor of gelu that is off by a thousandth."""
    register_executor(GELU)(lambda inputs, attrs: [torch.nn.functional.gelu(inputs[0]) * 1.001])
    yield
    unregister_executor(GELU)


@pytest.mark.usefixtures("wrong_gelu")
@pytest.mark.parametrize("make", [Graph.clone, IRExecutor], ids=["interpreter", "executor"])
def test_a_wrong_executor_is_named_with_its_line_though_later_values_differ_more(make: Any) -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    other = make(graph) if make is Graph.clone else make(graph, model.state_dict())

    found = compare(model, other, (x,))

    first = found.first_divergence
    assert first is not None
    assert (first.name, first.op) == ("gelu", GELU)
    assert "compare_cases.py:" in first.source
    assert first.difference.max_rel == pytest.approx(1e-3, rel=0.1)
    later = {row.name: row.difference.max_abs for row in found.rows}
    assert later["sin"] > 10 * later["gelu"]
    assert "first divergence: %gelu, aten.gelu.default, in " in str(found)
    assert re.search(r"\na and b differ in \d of 5 values, 1 of 1 result\n", str(found)), str(found)


def test_a_wrong_rewrite_is_named() -> None:
    graph = graph_of(lambda x: (x.sin().relu() * 100).cos(), torch.randn(8))

    found = compare(graph, PassManager([ReluToNeg]).run(graph).graph, (torch.randn(8),))

    first = found.first_divergence
    assert first is not None
    assert (first.name, first.counterpart, first.counterpart_op) == ("relu", "neg", "aten.neg.default")
    assert "(b: %neg, aten.neg.default)" in str(found)
    assert [row.name for row in found.rows if row.diverges] == ["relu", "mul", "cos", "result"]


def test_what_differs_only_downstream_of_the_tolerance_is_said_to_begin_earlier() -> None:
    register_executor(SIN)(lambda inputs, attrs: [inputs[0].sin() + 5e-6])
    try:
        found = compare(
            Function(lambda x: x.sin() * 1000),
            graph_of(lambda x: x.sin() * 1000, torch.ones(4)),
            (torch.ones(4),),
        )
    finally:
        unregister_executor(SIN)

    assert found.first_divergence is not None
    assert found.first_divergence.name == "mul"
    assert "within the tolerance, but beyond rounding, before: %sin" in str(found)


def test_the_side_that_is_wrong_may_be_either() -> None:
    graph = graph_of(lambda x: x.relu() + 1, torch.randn(8))
    wrong = PassManager([ReluToNeg]).run(graph).graph

    found = compare(wrong, graph, (torch.randn(8),))

    assert found.first_divergence is not None
    assert (found.first_divergence.name, found.first_divergence.counterpart) == ("neg", "relu")


def test_a_module_whose_graph_departs_from_it_is_said_so() -> None:
    def two_faced(x: Tensor) -> Tensor:
        return x + 1 if torch.compiler.is_exporting() else x + 2

    x = torch.randn(4)

    found = compare(Function(two_faced), graph_of(two_faced, x), (x,))

    assert [row.kind for row in found.rows if row.diverges] == ["result"]
    assert "eager Function is not what its captured graph computes: result" in str(found)


def test_the_report_is_json_data() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    data = compare(model, optimize(graph, "fuse"), (x,)).to_dict()

    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["ok"] is True
    assert data["first_divergence"] is None
    assert {"name", "ulp", "max_abs", "max_rel", "snr_db", "noise_floor"} <= data["rows"][0].keys()
