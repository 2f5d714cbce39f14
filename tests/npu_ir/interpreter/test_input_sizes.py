"""Guards: inputs of sizes that a graph was not made for are refused before anything runs."""

import pytest
from torch import Tensor, ones
from torch.export import Dim

from npu_ir import ExecutionError, Graph, Interpreter, execute_ir, extract_ir, parse_ir
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.serial.parser import parse_type
from npu_ir.symbolic.constraints import Range
from tests.support.corpus.case import Function
from tests.support.rows import each_row

FIX = r"\n  fix: pass tensors of sizes that fit, or capture the model again with other dynamic_shapes"


def program(declarations: str, *types: str) -> Graph:
    """Return a graph of inputs ``x0``, ``x1``, ... of these types that returns the first one negated."""
    inputs = "\n".join(f"  input %x{index}: {type}" for index, type in enumerate(types))
    return parse_ir(
        f"graph g {{\n{declarations}\n{inputs}\n  %y: {types[0]} = aten.neg.default(%x0)\n  return %y\n}}"
    )


def batch_and_more() -> Graph:
    """Return a graph with every kind of size: named twice, derived, constrained, of two symbols."""
    return program(
        "symbol s in [2, 8] symbol t in [0, inf] require mod(s, 2) == 0 require t <= 2*s",
        "f32[s, 3]",
        "f32[s]",
        "f32[2*s+1]",
        "f32[t-1, s+t]",
    )


def given(s: int = 4, t: int = 5, *, again: int | None = None, odd: int | None = None) -> list[Tensor]:
    """Return inputs of these sizes, some of which may be wrong."""
    return [
        ones(s, 3),
        ones(s if again is None else again),
        ones(2 * s + 1 if odd is None else odd),
        ones(t - 1, s + t),
    ]


@each_row(("s", "t"), [(2, 1), (4, 5), (8, 16), (6, 12)])
def test_sizes_that_fit_are_taken(s: int, t: int) -> None:
    assert execute_ir(batch_and_more(), given(s, t)).shape == (s, 3)


@pytest.mark.parametrize(("inputs", "message"), [
    pytest.param(given(10),
        r"dimension 0 of %x0 is 10, the graph was made for s in \[2, 8\]\n  at: args\[0\]" + FIX,
        id="above_the_range"),
    pytest.param(
        given(again=3),
        r"dimension 0 of %x1 is 3, the graph needs s = 4 \(s is 4 by dimension 0 of %x0\)\n"
        rf"  at: args\[1\]{FIX}",
        id="not_equal",
    ),
    pytest.param(
        [*given()[:3], ones(4, 8)],
        (
            r"dimension 1 of %x3 is 8, the graph needs s\+t, which is 9 \(s is 4 by dimension 0 of %x0, "
            r"t is 5 by dimension 0 of %x3\)\n  at: args\[3\]"
        ),
        id="of_two_symbols",
    ),
    pytest.param(
        given(5),
        r"the graph was made for sizes with mod\(s, 2\) == 0, but s is 5 by dimension 0 of %x0\n"
        rf"  at: the inputs{FIX}",
        id="constraint",
    ),
])  # fmt: skip
def test_sizes_that_do_not_fit_are_refused_before_anything_runs(
    inputs: list[Tensor], message: str, ran: list[str]
) -> None:
    interpreter = Interpreter(batch_and_more())

    with pytest.raises(ExecutionError, match=message):
        interpreter.run(*inputs)
    assert ran == []


@each_row("type, size, message", {
    "odd": ("f32[2*s]", 5, r"dimension 0 of %x0 is 5, the graph needs 2\*s for an integer s"),
    "even": ("f32[2*s+1]", 4, r"dimension 0 of %x0 is 4, the graph needs 2\*s\+1 for an integer s"),
    "low": ("f32[s-1]", 0, r"dimension 0 of %x0 is 0, so s is 1, the graph was made for s in \[2, 8\]"),
    "high": ("f32[s-1]", 8, r"dimension 0 of %x0 is 8, so s is 9, the graph was made for s in \[2, 8\]"),
    "factor": ("f32[3*s]", 27, r"dimension 0 of %x0 is 27, so s is 9, the graph was made for s in \[2, 8\]"),
})  # fmt: skip
def test_a_derived_size_tells_its_symbol_or_is_refused(type: str, size: int, message: str) -> None:
    graph = program("symbol s in [2, 8]", type)

    with pytest.raises(ExecutionError, match=message):
        execute_ir(graph, (ones(size),))


@each_row(("type", "size"), [("f32[2*s]", 6), ("f32[s-1]", 2), ("f32[3*s+2]", 11)])
def test_a_derived_size_alone_tells_its_symbol(type: str, size: int) -> None:
    graph = program("symbol s in [2, 8] require s == 3", type)

    assert execute_ir(graph, (ones(size),)).shape == (size,)


def test_a_bare_symbol_tells_its_value_wherever_it_stands() -> None:
    graph = program("symbol s in [0, inf]", "f32[s//2, s*s]", "f32[s]")

    assert execute_ir(graph, (ones(2, 25), ones(5))).shape == (2, 25)
    with pytest.raises(
        ExecutionError,
        match=r"dimension 0 of %x0 is 3, the graph needs s//2, which is 2 \(s is 5 by dimension 0 of %x1\)",
    ):
        execute_ir(graph, (ones(3, 25), ones(5)))


def test_symbols_are_told_by_one_another_in_any_order() -> None:
    graph = program("symbol a in [0, 9] symbol b in [0, 9] symbol c in [0, 9]", "f32[a+b, b+c]", "f32[c]")

    assert execute_ir(graph, (ones(3, 5), ones(4))).shape == (3, 5)
    with pytest.raises(
        ExecutionError, match=r"dimension 0 of %x0 is 0, so a is -1, the graph was made for a in"
    ):
        execute_ir(graph, (ones(0, 5), ones(4)))


def test_a_size_without_a_value_is_refused() -> None:
    graph = program("symbol s in [0, inf] symbol t in [0, inf]", "f32[s//t]", "f32[s]", "f32[t]")

    with pytest.raises(
        ExecutionError, match=r"dimension 0 of %x0 is 1, but s//t has no value for s = 4, t = 0: "
    ):
        execute_ir(graph, (ones(1), ones(4), ones(0)))


def test_a_number_that_is_an_input_is_guarded_like_a_size() -> None:
    graph = program("symbol n in [2, 8]", "f32[n]", "int(n)", "int(2*n)")

    assert execute_ir(graph, (ones(4), 4, 8)).shape == (4,)
    for args, message in {
        (4, 5, 8): r"%x1 is 5, the graph needs n = 4 \(n is 4 by dimension 0 of %x0\)\n  at: args\[1\]",
        (
            4,
            4,
            7,
        ): r"%x2 is 7, the graph needs 2\*n, which is 8 \(n is 4 by dimension 0 of %x0\)\n  at: args\[2\]",
        (9, 9, 18): r"dimension 0 of %x0 is 9, the graph was made for n in \[2, 8\]",
    }.items():
        with pytest.raises(ExecutionError, match=message):
            execute_ir(graph, (ones(args[0]), *args[1:]))


def test_symbolic_strides_are_those_of_the_sizes() -> None:
    graph = parse_ir(
        "graph g { symbol s in [0, inf] input %x: f32[3, s]@[1, 3] %y: f32[3, s]@[1, 3] = "
        "aten.neg.default(%x) return %y }"
    )

    assert execute_ir(graph, (ones(3, 5),)).stride() == (1, 3)
    assert execute_ir(graph, (ones(5, 3).t(),)).stride() == (1, 3)


def test_a_stride_alone_may_tell_a_symbol() -> None:
    graph = parse_ir("graph g { symbol t in [4, 9] input %x: f32[3, 4]@[t, 1] input %y: f32[t] return %y }")
    alone = parse_ir("graph g { symbol t in [4, 9] input %x: f32[3, 4]@[t, 1] return %x }")

    assert execute_ir(alone, (ones(3, 6)[:, :4],)).stride() == (6, 1)
    assert execute_ir(graph, (ones(3, 6)[:, :4], ones(6))).shape == (6,)
    with pytest.raises(ExecutionError, match=r"stride 0 of %x is 10, the graph was made for t in \[4, 9\]"):
        execute_ir(alone, (ones(3, 10)[:, :4],))


def test_what_torch_export_says_of_sizes_is_in_the_graph() -> None:
    half = Dim("half", min=2, max=32)

    graph = extract_ir(
        Function(lambda x, y, z: (x.view(-1, 2, 4).sum(1) + y, z.view(-1, 2, 4))),
        (ones(6, 4), ones(3, 4), ones(10, 4)),
        dynamic_shapes={"args": ({0: 2 * half}, {0: half}, {0: Dim.AUTO})},
    )

    assert [str(value.type) for value in graph.inputs] == ["f32[2*half, 4]", "f32[half, 4]", "f32[s0, 4]"]
    assert str(graph.symbols["half"]) == "[2, 32]"
    assert "mod(4*s0, 8) == 0" in map(str, graph.constraints)


def test_what_is_known_around_a_region_is_known_in_it_and_not_changed_by_it() -> None:
    ranges = {"s": Range(), "t": Range()}
    around = SymbolValues(ranges)
    around.solve([("x", parse_type("f32[s]"), ones(3))])
    inside = SymbolValues(ranges, around)

    assert inside.solve([("y", parse_type("f32[t, s]"), ones(5, 3))]) is None
    assert (around.values, inside.values) == ({"s": 3}, {"s": 3, "t": 5})
    misfit = inside.solve([("z", parse_type("f32[s]"), ones(4))])
    assert str(misfit) == "dimension 0 of %z is 4, the graph needs s = 3 (s is 3 by dimension 0 of %x)"


def test_sizes_that_tell_nothing_are_left_open() -> None:
    values = SymbolValues({"s": Range(), "t": Range()})

    assert values.solve([("x", parse_type("f32[s+t]"), ones(4))]) is None
    assert values.values == {}
