"""Functions of graphs, and what is given to them in place of a graph, of weights or of a tuple."""

from typing import Any

import pytest
import torch

from npu_ir import (
    ConversionError,
    ExecutionError,
    GraphError,
    WeightError,
    convert_exported_program,
    diff_ir,
    draw,
    execute_ir,
    extract_ir,
    save_ir,
    to_html,
    verify_ir,
)
from npu_ir.graph.requirement import require_graph
from tests.support.rows import each_row

MODEL, X = torch.nn.Linear(2, 2), torch.ones(1, 2)
GRAPH = extract_ir(MODEL, (X,))
WEIGHTS = MODEL.state_dict()


@each_row("call", {
    "execute_ir": lambda: execute_ir(MODEL, (X,)),  # type: ignore[arg-type]
    "verify_ir, in another order": lambda: verify_ir(MODEL, GRAPH, (X,)),  # type: ignore[arg-type]
    "save_ir": lambda: save_ir(MODEL, "net.json"),  # type: ignore[arg-type]
    "draw": lambda: draw(MODEL, "net.svg"),  # type: ignore[arg-type]
    "to_html": lambda: to_html(MODEL),  # type: ignore[arg-type]
    "diff_ir, first": lambda: diff_ir(MODEL, GRAPH),  # type: ignore[arg-type]
    "diff_ir, second": lambda: diff_ir(GRAPH, MODEL),  # type: ignore[arg-type]
})  # fmt: skip
def test_a_model_in_place_of_a_graph_is_refused(call: Any) -> None:
    with pytest.raises(GraphError, match=r"expected a graph, got Linear\n  fix: extract_ir"):
        call()


class _Holder:
    graph = GRAPH


@each_row("item, message", {
    "a path": ("net.json", r"got str\n  fix: load_ir\(path\) reads one"),
    "a program": (torch.export.export(MODEL, (X,)), r"got ExportedProgram\n  fix: convert_exported_program"),
    "what has a graph": (_Holder(), r"got _Holder\n  fix: pass its graph: \.graph"),
    "nothing": (None, r"got NoneType\n  fix: extract_ir"),
    "a class": (torch.nn.Linear, r"got the class Linear\n"),
})  # fmt: skip
def test_the_fix_says_how_to_get_a_graph_from_what_was_given(item: Any, message: str) -> None:
    with pytest.raises(GraphError, match=rf"expected a graph, {message}"):
        require_graph(item)


def test_a_model_in_place_of_an_exported_program_is_refused() -> None:
    with pytest.raises(
        ConversionError, match=r"expected an exported program, got Linear\n  fix: torch.export"
    ):
        convert_exported_program(MODEL)  # type: ignore[arg-type]


@each_row("call", {
    "execute_ir": lambda: execute_ir(GRAPH, (X,), [1], weights=WEIGHTS),  # type: ignore[arg-type]
    "verify_ir": lambda: verify_ir(GRAPH, MODEL, (X,), [1]),  # type: ignore[arg-type]
})  # fmt: skip
def test_keyword_arguments_are_given_by_name(call: Any) -> None:
    with pytest.raises(
        ExecutionError, match=r"the keyword arguments are a dict by name, not .*\n.*kwargs\n  fix"
    ):
        call()


def test_a_module_in_place_of_weights_is_refused() -> None:
    with pytest.raises(WeightError, match=r"tensors by name, not Linear\n  fix: pass"):
        execute_ir(GRAPH, (X,), weights=MODEL)  # type: ignore[arg-type]


@each_row("call", {
    "execute_ir": lambda: execute_ir(GRAPH, X, weights=WEIGHTS),  # type: ignore[arg-type]
    "verify_ir": lambda: verify_ir(GRAPH, MODEL, X),  # type: ignore[arg-type]
})  # fmt: skip
def test_a_tensor_in_place_of_a_tuple_is_refused(call: Any) -> None:
    with pytest.raises(ExecutionError, match=r"the positional arguments are a tuple, not Tensor"):
        call()


@each_row("args, kwargs", {"nothing": ((), {}), "by another name": ((), {"input": X})})
def test_an_error_of_a_call_says_how_the_graph_is_called(args: Any, kwargs: Any) -> None:
    with pytest.raises(ExecutionError, match=r"what the model was captured with: \(%input\)"):
        execute_ir(GRAPH, args, kwargs, weights=WEIGHTS)
