"""Branches that torch.export takes by sizes: a graph runs only where it is the branch that eager takes."""

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, ones
from torch.export import Dim, ExportedProgram

from npu_ir import (
    ConversionError,
    ExecutionError,
    Graph,
    convert_exported_program,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
)
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.tiers import thin

ROWS = 14


def doubled_if(holds: Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
    """Return a function that computes something else for some numbers of rows, none included."""
    return lambda x: x.sum() * 2 if holds(x.shape[0]) else x.sum() + 1


def refused_rows(graph: Graph, function: Callable[[Tensor], Tensor]) -> list[int]:
    """Return the numbers of rows that a graph refuses; of all others it gives what eager does."""
    refused = []
    for rows in range(ROWS):
        x = ones(rows, 4)
        try:
            result = execute_ir(graph, (x,))
        except ExecutionError as error:
            assert "the graph was made for" in error.message
            refused.append(rows)
        else:
            assert torch.equal(result, function(x)), rows
    return refused


def exported(function: Callable[..., Any], dim: Any, rows: int) -> ExportedProgram:
    return torch.export.export(
        Function(function), (ones(rows, 4),), dynamic_shapes={"args": ({0: dim},)}, strict=False
    )


def after_a_save(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def one_of(n: Any) -> Any:
    return (n < 4) | (n > 9)


BRANCHES = [
    pytest.param(lambda n: n % 3 == 0, 6, ["mod(s0, 3) == 0"], id="multiples"),
    pytest.param(lambda n: n % 3 == 0, 4, ["mod(s0, 3) != 0"], id="others"),
    pytest.param(lambda n: (n & 1) == 1, 7, ["bitand(s0, 1) == 1"], id="odd"),
    pytest.param(lambda n: (n | 1) == 5, 5, ["bitor(s0, 1) == 5"], id="bits"),
    pytest.param(lambda n: (n ^ 1) > 6, 8, ["bitxor(s0, 1) > 6"], id="flipped bits"),
    pytest.param(lambda n: round(n / 3, 1) > 2.2, 9, ["round_to(s0/3, 1) > 2.2"], id="decimals"),
    pytest.param(lambda n: n / 3 == 3, 6, ["s0/3 != 3.0"], id="a fraction"),
    pytest.param(lambda n: n * n > 30, 6, ["s0**2 > 30"], id="a square"),
    pytest.param(lambda n: (n > 4) & (n < 9), 6, [], id="both, which is a range"),
    pytest.param(one_of, 11, ["s0 > 9"], id="the one that held"),
    pytest.param(one_of, 6, ["s0 >= 4", "s0 <= 9"], id="neither"),
    pytest.param(lambda n: torch.sym_not((n < 2) | (n == 5)), 3, ["s0 >= 2", "s0 != 5"],
        id="not one of both"),
]  # fmt: skip


@each_row(("holds", "rows", "constraints"), BRANCHES)
def test_a_branch_taken_by_a_size_is_a_constraint(
    holds: Callable[[Any], Any], rows: int, constraints: list[str], tmp_path: Path
) -> None:
    function = doubled_if(holds)

    graph = extract_ir(Function(function), (ones(rows, 4),), dynamic_shapes={"args": ({0: Dim.AUTO},)})

    assert sorted(map(str, graph.constraints)) == sorted(constraints)
    save_ir(graph, tmp_path / "g.json")
    assert parse_ir(str(graph)) == load_ir(tmp_path / "g.json") == graph
    refused = refused_rows(graph, function)
    others = [n for n in range(ROWS) if bool(holds(n)) != bool(holds(rows))]
    assert set(others) <= set(refused)
    assert rows not in refused


def test_of_a_choice_between_two_inputs_the_one_that_held_is_required() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        big = bool((x.shape[0] > 4) | (y.shape[0] > 4))
        return x.sum() + y.sum() if big else x.sum() - y.sum()

    graph = extract_ir(
        Function(function), (ones(6, 4), ones(3, 4)), dynamic_shapes={"args": ({0: Dim.AUTO}, {0: Dim.AUTO})}
    )

    assert execute_ir(graph, (ones(7, 4), ones(2, 4))) == 36
    with pytest.raises(
        ExecutionError,
        match=r"made for sizes with s0 > 4, but s0 is 3 by dimension 0 of %args_0\n  at: the inputs",
    ):
        execute_ir(graph, (ones(3, 4), ones(3, 4)))


LOADABLE = [(case.values[0], case.values[1]) for case in BRANCHES if case.id != "the one that held"]


@each_row(("holds", "rows"), LOADABLE)
def test_a_program_that_was_saved_and_loaded_runs_where_it_did_before(
    holds: Callable[[Any], Any], rows: int
) -> None:
    function = doubled_if(holds)
    program = exported(function, Dim.AUTO, rows)

    graph = convert_exported_program(after_a_save(program))

    assert set(refused_rows(graph, function)) == set(
        refused_rows(convert_exported_program(program), function)
    )


def test_of_a_loaded_program_nobody_knows_which_of_two_relations_held() -> None:
    loaded = after_a_save(exported(doubled_if(one_of), Dim.AUTO, 11))

    with pytest.raises(
        ConversionError,
        match=r"took a branch by sizes in a way that a graph cannot state: L\['args'\]\[0\].size\(\)\[0\] > "
        r"9 or .*\n  fix: decide by a comparison of sizes, or by torch.cond",
    ):
        convert_exported_program(loaded)


def is_one(n: Any) -> Any:
    return n == 1


def is_none(n: Any) -> Any:
    return n == 0


DIMS = [Dim("b"), Dim("b", min=0), Dim("b", min=1), Dim("b", min=1, max=9), Dim.AUTO, Dim.DYNAMIC]
WAYS = [*itertools.product(DIMS, [is_one, is_none], ["extract_ir", "exported", "loaded"])]


@pytest.mark.parametrize("way", thin(WAYS, 11))
def test_a_branch_for_a_batch_of_one_is_never_lost(way: tuple[Any, Callable[[Any], Any], str]) -> None:
    dim, holds, convert = way
    function = doubled_if(holds)

    if convert == "extract_ir":
        graph = extract_ir(Function(function), (ones(3, 4),), dynamic_shapes={"args": ({0: dim},)})
    elif convert == "exported":
        graph = convert_exported_program(exported(function, dim, 3))
    else:
        graph = convert_exported_program(after_a_save(exported(function, dim, 3)))

    refused = refused_rows(graph, function)
    assert (1 if holds is is_one else 0) in refused
    assert not {2, 3, 4, 5} & set(refused)


@each_row("dim", [Dim("b"), Dim("b", min=1), Dim.AUTO])
def test_a_model_without_such_a_branch_takes_a_batch_of_one(dim: Any) -> None:
    def function(x: Tensor) -> Tensor:
        return (x @ x.t()).relu().sum(0)

    graph = extract_ir(Function(function), (ones(3, 4),), dynamic_shapes={"args": ({0: dim},)})

    assert torch.equal(execute_ir(graph, (ones(1, 4),)), function(ones(1, 4)))


def test_a_program_traced_for_two_rows_and_more_says_so() -> None:
    graph = convert_exported_program(exported(doubled_if(is_one), Dim("b", max=9), 3))

    assert str(graph.symbols["b"]) == "[2, 9]"
