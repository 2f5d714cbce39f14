"""Passes: classes with a name, and options that are their fields."""

from __future__ import annotations

from typing import Any

import pytest

from npu_ir import Graph
from npu_passes import EXACT, Numerics, Option, Pass, PassError, PassManager, options_of, within
from tests.support.passes.sample_passes import DropAlias, Optional


def test_options_are_fields_with_defaults_and_documentation() -> None:
    options = options_of(Optional)

    assert options == (
        Option("flag", "bool", True, "A switch that is explained on two lines."),
        Option("count", "int", 3, "A number."),
        Option("rate", "float", 0.5, "Another one."),
        Option("label", "str", "plain", "A word."),
        Option("items", "list", ("a", "b"), "Words."),
    )


@pytest.mark.smoke
def test_passes_are_equal_when_their_options_are() -> None:
    assert Optional(count=4) == Optional(count=4)
    assert Optional(count=4) != Optional()
    assert hash(Optional(count=4)) == hash(Optional(count=4))
    assert repr(Optional()) == "Optional(flag=True, count=3, rate=0.5, label='plain', items=('a', 'b'))"


def test_a_pass_cannot_be_changed() -> None:
    item = Optional()

    with pytest.raises(AttributeError, match="cannot assign to field 'count'"):
        item.count = 5  # type: ignore[misc]


def test_an_option_of_another_type_is_refused(subtests: pytest.Subtests) -> None:
    rows = [
        ({"flag": 1}, "the option 'flag' of optional is a bool, not 1"),
        ({"count": True}, "the option 'count' of optional is an int, not True"),
        ({"rate": "1"}, "the option 'rate' of optional is a float, not '1'"),
        ({"items": ["a"]}, "the option 'items' of optional is a list, not"),
        ({"items": (1,)}, "the option 'items' of optional is a list, not"),
    ]
    for given, message in rows:
        with subtests.test(given=given, message=message), pytest.raises(PassError, match=message):
            Optional(**given)


def test_a_pass_may_ask_more_of_its_options() -> None:
    class Wide(Pass):
        """Be wide.

        Attributes:
            width: How wide, in elements.
        """

        name = "wide"
        width: int = 1

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.width < 1:
                raise PassError(f"the option 'width' of {self.name} is from 1 on, not {self.width}")

    assert Wide(width=2).width == 2
    with pytest.raises(PassError, match="the option 'width' of wide is from 1 on, not 0"):
        Wide(width=0)
    with pytest.raises(PassError, match="'width' of wide is an int, not '0'"):
        Wide(width="0")  # type: ignore[arg-type]


def test_an_integer_is_a_float() -> None:
    assert Optional(rate=1).rate == 1


def test_an_option_that_no_command_line_can_write_is_refused() -> None:
    class Odd(Pass):
        """Want something odd."""

        name = "odd"
        what: complex = 1j

    with pytest.raises(PassError, match="options have a default, and one of the types bool, int, float, str"):
        Odd()


def test_a_pass_that_comes_before_or_after_itself_is_refused(subtests: pytest.Subtests) -> None:
    for field in ["before", "after"]:
        with subtests.test(field=field), pytest.raises(PassError, match=f"Odd.{field} names the pass itself"):
            type("Odd", (Pass,), {"name": "odd", field: ("other", "odd")})


def test_options_are_inherited_with_their_documentation() -> None:
    class More(Optional):
        """Have one more.

        Attributes:
            extra: One more.
        """

        name = "more"
        extra: int = 1

    documented = {option.name: option.doc for option in options_of(More)}

    assert documented["count"] == "A number."
    assert documented["extra"] == "One more."


def test_an_option_of_an_unknown_type_is_refused() -> None:
    fields = {"name": "lost", "__doc__": "x", "__annotations__": {"what": "Nowhere"}, "what": None}

    with pytest.raises(PassError, match="the type of an option of Lost is not known: name 'Nowhere'"):
        PassManager([type("Lost", (Pass,), fields)])


def test_a_default_that_can_change_is_refused() -> None:
    fields = {"name": "loose", "__doc__": "x", "__annotations__": {"what": "list"}, "what": []}

    with pytest.raises(PassError, match="(?s)Loose: mutable default.*lists of strings are tuples"):
        type("Loose", (Pass,), fields)


def test_the_manager_says_what_an_option_lacks() -> None:
    fields = {"name": "needy", "__doc__": "x", "__annotations__": {"what": "int"}}

    with pytest.raises(PassError, match="the option 'what' of Needy is int without a default"):
        PassManager([type("Needy", (Pass,), fields)])


def test_an_option_is_a_number_if_it_is_to_be_one() -> None:
    with pytest.raises(PassError, match="the option 'rate' of optional is not a number: nan"):
        Optional(rate=float("nan"))


def test_one_pass_alone_is_a_list_of_one(subtests: pytest.Subtests) -> None:
    for given in [DropAlias, DropAlias()]:
        with subtests.test(given=given):
            assert [item.name for item in PassManager(given).passes] == ["drop-alias"]


def test_a_name_that_is_not_kebab_case_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["Upper-Case", "with space", "", "-x", "a--b", 3]:
        with subtests.test(name=name), pytest.raises(PassError, match="is not a valid pass name"):
            type("Named", (Pass,), {"name": name, "__doc__": "Do nothing."})


def test_a_pass_without_a_name_cannot_be_made() -> None:
    class Nameless(Pass):
        """Do nothing."""

    with pytest.raises(PassError, match="Nameless has no name"):
        Nameless()


def test_a_pass_says_what_it_does() -> None:
    class Idle(Pass):
        """Do not even say so."""

        name = "idle"

    with pytest.raises(PassError, match="(?s)Idle does not say what to do with graph 'graph'.*define run"):
        PassManager(Idle).run(Graph())


def test_constraints_are_tuples_of_names(subtests: pytest.Subtests) -> None:
    for names in ["cse", (1,), (DropAlias,)]:
        with (
            subtests.test(names=names),
            pytest.raises(PassError, match="Early.before is a tuple of names, not"),
        ):
            type("Early", (Pass,), {"name": "early", "before": names})


def test_numerics_are_no_number() -> None:
    with pytest.raises(PassError, match=r"(?s)Loose.numerics is 1e-05.*within\(1e-5\)"):
        type("Loose", (Pass,), {"name": "loose", "numerics": 1e-5})


def test_a_pass_runs_without_a_manager() -> None:
    graph = Graph()
    x = graph.add_input("x", _f32(2))
    alias = graph.insert("aten.alias.default", [x], types=x.type)
    graph.set_outputs(alias.outputs[0])

    assert DropAlias().run(graph) is True
    assert DropAlias().run(graph) is False
    assert graph.outputs == (x,)


def test_numerics_are_exact_or_within_a_tolerance() -> None:
    assert str(EXACT) == "exact"
    assert str(within(1e-5)) == "within 1e-05"
    assert EXACT.is_exact
    assert not within(1e-5).is_exact


def test_a_tolerance_that_is_none_is_refused(subtests: pytest.Subtests) -> None:
    for rtol in [-1.0, float("nan"), float("inf")]:
        with (
            subtests.test(rtol=rtol),
            pytest.raises(PassError, match="a tolerance is finite and not negative"),
        ):
            Numerics(rtol)


def _f32(*shape: int) -> Any:
    import torch

    from npu_ir import TensorType

    return TensorType(shape, torch.float32)
