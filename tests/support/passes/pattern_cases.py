"""Small programs, and passes of one rule over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from npu_ir import Graph, TensorType, execute_ir, extract_ir
from npu_passes import PassManager, PassResult
from npu_passes.patterns import PatternPass, Rule, aten, var
from npu_passes.patterns.matcher import Match, find_matches
from tests.support.corpus.case import Function

Program = Callable[..., Any]


x, y = var("x"), var("y")
add, sub, mul, relu, neg = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.relu.default,
    aten.neg.default,
)
F32 = TensorType((3, 4), torch.float32)
DOUBLE_NEG = Rule("double-neg", neg(neg(x)), x)


def data(count: int = 2, *, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(3, 4).to(dtype) for _ in range(count)]


def capture(function: Program, *args: Tensor) -> Graph:
    return extract_ir(Function(function).eval(), args)


def found(pattern: Any, graph: Graph) -> list[Match]:
    return [match for node in graph.nodes for match in find_matches(graph, node, pattern)]


def pass_of(*rules: Rule) -> type[PatternPass]:
    return type("Sample", (PatternPass,), {"name": "sample", "rules": rules, "__doc__": "Sample."})


def run(graph: Graph, *rules: Rule) -> PassResult:
    return PassManager([pass_of(*rules)]).run(graph)


def reasons(result: PassResult) -> list[str]:
    return [refusal.reason for refusal in result.journal.refusals]


def op_types(graph: Graph) -> list[str]:
    return [node.op_type.removeprefix("aten.") for node in graph.nodes]


def assert_computes(graph: Graph, function: Program, *args: Tensor) -> None:
    actual, expected = execute_ir(graph, args), function(*args)
    for got, wanted in zip(_listed(actual), _listed(expected), strict=True):
        assert got.dtype == wanted.dtype
        assert torch.equal(got, wanted)


def _listed(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]
