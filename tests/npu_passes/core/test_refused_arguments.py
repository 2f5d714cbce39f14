"""What is not a pass, its name, or a graph is refused by name, with a fix."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_ir import Graph, GraphError, WeightError
from npu_passes import (
    PassError,
    PassManager,
    bake,
    bisect,
    find_pass,
    graph_statistics,
    options_of,
    parse_passes,
)

PASSES: dict[str, tuple[Callable[[], object], str]] = {
    "passes": (lambda: PassManager(None), "(?s)expected passes, got NoneType.*fix: name some"),  # type: ignore[arg-type]
    "a tensor": (lambda: PassManager(torch.ones(())), "expected passes, got Tensor"),  # type: ignore[arg-type]
    "bisected": (lambda: bisect(Graph(), 3), "expected passes, got int"),  # type: ignore[arg-type]
    "rounds": (lambda: PassManager("cse", max_rounds=0), "(?s)at least one round, not in 0.*max_rounds=10"),
    "a name": (lambda: find_pass(["cse"]), r"(?s)not by \['cse'\].*npu passes lists"),  # type: ignore[arg-type]
    "text": (lambda: parse_passes(b"cse"), "(?s)named by text, not by bytes.*write 'canon"),  # type: ignore[arg-type]
    "a class": (lambda: options_of(3), r"(?s)3 is not a class of passes.*find_pass\(name\)"),  # type: ignore[arg-type]
    "an object": (lambda: options_of([]), r"\[\] is not a class of passes"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", PASSES)
def test_what_names_no_passes_is_refused(name: str) -> None:
    function, message = PASSES[name]

    with pytest.raises(PassError, match=message):
        function()


@pytest.mark.parametrize("function", [bake, graph_statistics])
def test_what_is_not_a_graph_is_refused(function: Callable[[Any], object]) -> None:
    with pytest.raises(GraphError, match="expected a graph, got Linear"):
        function(torch.nn.Linear(2, 2))


def test_a_graph_is_baked_with_tensors_by_name() -> None:
    with pytest.raises(WeightError, match="weights are tensors by name, not Linear"):
        bake(Graph(), torch.nn.Linear(2, 2))  # type: ignore[arg-type]
