"""Passes: classes with a name, and options that are their fields."""

from __future__ import annotations

from typing import Any

import pytest

from npu_ir import Graph
from npu_passes import Numerics, Option, Pass, PassError, PassManager, options_of
from tests.support.passes.sample_passes import DropAlias, Optional
from tests.support.rows import each_row


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
        ({"rate": float("nan")}, "the option 'rate' of optional is not a number: nan"),
    ]
    for given, message in rows:
        with subtests.test(given=given, message=message), pytest.raises(PassError, match=message):
            Optional(**given)

    assert Optional(rate=1).rate == 1


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


def make(**fields: Any) -> type[Pass]:
    return type("Odd", (Pass,), {"name": "odd", "__doc__": "Do nothing.", **fields})


def option(type: str, **default: Any) -> dict[str, Any]:
    return {"__annotations__": {"what": type}, **default}


def test_a_class_that_is_no_pass_is_refused(subtests: pytest.Subtests) -> None:
    names = ["Upper-Case", "with space", "", "-x", "a--b", 3]
    rows = [
        *(({"name": name}, "is not a valid pass name") for name in names),
        *(
            ({"before": given}, "Odd.before is a tuple of names, not")
            for given in ("cse", (1,), (DropAlias,))
        ),
        ({"before": ("other", "odd")}, "Odd.before names the pass itself"),
        ({"after": ("other", "odd")}, "Odd.after names the pass itself"),
        ({"numerics": 1e-5}, r"(?s)Odd.numerics is 1e-05.*within\(1e-5\)"),
        (option("list", what=[]), "(?s)Odd: mutable default.*lists of strings are tuples"),
    ]
    for fields, message in rows:
        with subtests.test(fields=fields), pytest.raises(PassError, match=message):
            make(**fields)


def test_a_pass_that_lacks_something_cannot_run(subtests: pytest.Subtests) -> None:
    class Nameless(Pass):
        """Do nothing."""

    rows = [
        (Nameless, "Nameless has no name"),
        (make(), "(?s)Odd does not say what to do with graph 'graph'.*define run"),
        (make(**option("Nowhere", what=None)), "the option 'what' of Odd is Nowhere"),
        (make(**option("int")), "the option 'what' of Odd is int without a default"),
        (make(**option("complex", what=1j)), "and one of the types bool, int, float, str"),
    ]
    for item, message in rows:
        with subtests.test(message), pytest.raises(PassError, match=message):
            PassManager(item).run(Graph())


@each_row("rtol", [-1.0, float("nan"), float("inf"), "1e-3", None])
def test_a_tolerance_that_is_none_is_refused(rtol: Any) -> None:
    message = "a tolerance is finite and not negative"
    with pytest.raises(PassError, match=message):
        Numerics(rtol)
