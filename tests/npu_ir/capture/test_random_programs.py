"""Random models of open sizes: through text and file, and equal to eager at other sizes."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, event, given, reject
from hypothesis import strategies as st
from torch import Tensor

from npu_ir import ExecutionError, ExportError, Graph, execute_ir, extract_ir, load_ir, parse_ir, save_ir
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from tests.support.corpus.comparison import assert_same
from tests.support.random_open_graphs import constants_by_target
from tests.support.random_programs import DYNAMIC_SHAPES, STEPS, Program, inputs, programs
from tests.support.rows import each_row
from tests.support.tiers import examples

CAPTURED = (6, 5, 4)
# Rows, rows of the other matrix, columns.
OTHERS = [(9, 7, 4), (12, 3, 4), (8, 5, 6), (7, 5, 4), (10, 9, 5)]


def captured(steps: list[str], shapes: str) -> Graph:
    try:
        return extract_ir(Program(steps), inputs(*CAPTURED), dynamic_shapes=DYNAMIC_SHAPES[shapes], name="g")
    except ExportError:
        event("torch.export cannot capture it")
        reject()


def sizes_for(graph: Graph, args: tuple[Tensor, Tensor]) -> dict[str, int] | None:
    """Return what the symbols of inputs are, or None where the graph was not made for these inputs."""
    symbols = SymbolValues(graph.symbols)
    try:
        bind_inputs(graph, args, {}, symbols)
    except ExecutionError:
        return None
    return symbols.values


def through_text(graph: Graph) -> Graph:
    return parse_ir(str(graph), constants_by_target(graph))


def through_file(graph: Graph) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        save_ir(graph, Path(folder) / "g.json")
        return load_ir(Path(folder) / "g.json")


def assert_all_equal(
    steps: list[str], graph: Graph, args: tuple[Tensor, Tensor], sizes: dict[str, int]
) -> None:
    special = graph.specialize(sizes)
    with torch.no_grad():
        expected: Any = Program(steps)(*args)

    assert not any(name.startswith("s") for name in special.symbols)
    assert_same(execute_ir(graph, args), expected, "the result of the graph with open sizes")
    assert_same(execute_ir(special, args), expected, "the result of the graph for these sizes")
    assert_same(execute_ir(through_text(special), args), expected, "the result of the text of that graph")


@examples(8, suppress_health_check=[*HealthCheck], database=None)
@given(programs, st.sampled_from(sorted(DYNAMIC_SHAPES)), st.permutations(OTHERS))
def test_every_form_of_a_random_program_computes_what_eager_computes(
    steps: list[str], shapes: str, others: list[tuple[int, int, int]]
) -> None:
    graph = captured(steps, shapes)

    for again in (through_text(graph), through_file(graph), graph.clone()):
        assert again == graph
        assert str(again) == str(graph)

    fitting = [
        args for args in (inputs(*size) for size in (CAPTURED, *others)) if sizes_for(graph, args) is not None
    ]
    event(f"{min(len(fitting), 2)} sizes")
    assert fitting, "the sizes of the capture do not fit"
    for args in fitting[:2]:
        sizes = sizes_for(graph, args)
        assert_all_equal(steps, through_file(graph), args, sizes)


@each_row("step", list(STEPS))
def test_every_step_is_captured_with_rows_left_open(step: str) -> None:
    graph = captured([step], "rows")
    fitting = [args for args in (inputs(*size) for size in OTHERS) if sizes_for(graph, args)]

    assert graph.symbols
    for args in fitting[:2]:
        assert_all_equal([step], graph, args, sizes_for(graph, args) or {})
    assert len(fitting) >= 2
