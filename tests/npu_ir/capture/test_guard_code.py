"""Guards as Python code, in which torch.export keeps them, and those that no graph can state."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, ones
from torch.export import Dim

from npu_ir import ConversionError, convert_exported_program
from npu_ir._torch.export import _relations
from npu_ir.capture.sizes import constraints_of
from npu_ir.symbolic.expressions import Dim as Size
from npu_ir.symbolic.expressions import symbol
from tests.support.corpus.case import Function
from tests.support.rows import each_row

SIZES = {("x", 0): symbol("a"), ("args_0", 1): symbol("b"), ("config_first_1", 0): symbol("c")}


def size_of(name: str, axis: int) -> Size:
    return SIZES[name, axis]


@each_row(
    ("code", "constraint"),
    [
        ("L['x'].size()[0] % 3 == 0", "mod(a, 3) == 0"),
        ("(L['x'].size()[0] % 3) == 0", "mod(a, 3) == 0"),
        ("L['x'].size()[0] != L['args'][0].size()[1]", "a != b"),
        ("L['config']['first'][1].size()[0] <= 7", "c <= 7"),
        ("2*L['x'].size()[0] - 1 < L['args'][0].size()[1] + 3", "2*a-1 < b+3"),
        ("-L['x'].size()[0] > -9", "-a > -9"),
        ("L['x'].size()[0] // 2 >= 1", "a//2 >= 1"),
        ("L['x'].size()[0] / 2 == 1.5", "a/2 == 1.5"),
        ("L['x'].size()[0]**2 > 30", "a**2 > 30"),
        ("(L['x'].size()[0] & 1) == 1", "bitand(a, 1) == 1"),
        ("(L['x'].size()[0] | 1) == 1", "bitor(a, 1) == 1"),
        ("(L['x'].size()[0] ^ 1) == 1", "bitxor(a, 1) == 1"),
        ("max(4, L['x'].size()[0], 6) == 6", "max(6, a) == 6"),
        ("min(4, L['x'].size()[0]) == 4", "min(4, a) == 4"),
        ("L['x'].size()[0] > 4 and L['x'].size()[0] < 9", "a > 4, and a < 9"),
        ("not L['x'].size()[0] == 3", "a != 3"),
        ("not (L['x'].size()[0] == 5 or L['x'].size()[0] < 2)", "a != 5, and a >= 2"),
        ("not (L['x'].size()[0] > 5 or not L['x'].size()[0] != 2)", "a <= 5, and a != 2"),
        ("round(L['x'].size()[0] / 3, 1) > 2.2", "round_to(a/3, 1) > 2.2"),
    ],
)
def test_a_relation_between_numbers_is_a_constraint(code: str, constraint: str) -> None:
    assert [str(found) for found in constraints_of(code, size_of)] == constraint.split(", and ")


@each_row(
    "code",
    {
        "a number": "L['x'].size()[0]",
        "a negated pair": "not (L['x'].size()[0] == 3 and L['x'].size()[0] > 2)",
        "two relations in one": "1 < L['x'].size()[0] < 3",
        "a choice": "L['x'].size()[0] == 3 or L['x'].size()[0] == 4",
        "text": "L['x'].size()[0] == 'three'",
        "another operator": "L['x'].size()[0] << 2 == 8",
        "another sign": "~L['x'].size()[0] == 8",
        "a function of a module": "math.sqrt(L['x'].size()[0]) == 2.0",
        "another function": "len(L['x']) == 2",
        "a stride": "L['x'].stride()[0] == 2",
        "not an argument": "G['x'].size()[0] == 2",
        "a step with a name": "L['x'][k].size()[0] == 2",
    },
)
def test_other_code_is_no_constraint(code: str) -> None:
    with pytest.raises(ValueError, match=r"^[LGknlm~1]|^'three'"):
        constraints_of(code, size_of)


def test_a_guard_that_no_graph_can_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(
        Function(torch.neg), (ones(3),), dynamic_shapes={"args": ({0: Dim.AUTO},)}, strict=False
    )
    monkeypatch.setattr("npu_ir.capture.sizes.guard_code", lambda _: ["hash(L['args'][0]) == 3"])

    with pytest.raises(
        ConversionError,
        match="torch.export took a branch by sizes in a way that a graph cannot state: "
        r"hash\(L\['args'\]\[0\]\)\n  fix: decide by a comparison of sizes, or by torch.cond",
    ):
        convert_exported_program(program)


def test_a_guard_on_an_input_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(Function(torch.neg), (ones(3),), strict=False)
    monkeypatch.setattr("npu_ir.capture.sizes.guard_code", lambda _: ["L['other'].size()[0] == 3"])

    with pytest.raises(ConversionError, match="a graph cannot state: there is no input 'other'"):
        convert_exported_program(program)


def test_a_choice_of_which_nothing_held_is_refused() -> None:
    s = sympy.Symbol("s", integer=True)

    with pytest.raises(ValueError, match=r"s > 8.*s < 2"):
        list(_relations(sympy.Or(s < 2, s > 8), {s: 5}))
    with pytest.raises(ValueError, match="q"):
        list(_relations(sympy.Symbol("q"), {}))


def test_a_function_of_sizes_that_expressions_lack_is_refused() -> None:
    def function(x: Tensor) -> Any:
        return x * 2 if torch.sym_sqrt(x.shape[0]) * torch._sym_sin(x.shape[0]) > 0.5 else x

    program = torch.export.export(
        Function(function), (ones(2),), dynamic_shapes={"args": ({0: Dim.AUTO},)}, strict=False
    )

    with pytest.raises(ConversionError, match="a graph cannot state: OpaqueUnaryFn_sin"):
        convert_exported_program(program)
