"""Passes as text, on command lines and in reports."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_passes import PassError, format_passes, parse_passes, passes_of
from tests.support.passes.plugins import Install, point
from tests.support.passes.sample_passes import SAMPLES, DropAlias, Optional
from tests.support.rows import each_row
from tests.support.tiers import examples

pytestmark = pytest.mark.usefixtures("samples")


@each_row("text, passes", [
    ("drop-alias", [DropAlias()]),
    ("drop-alias , optional", [DropAlias(), Optional()]),
    ("drop-alias{}", [DropAlias()]),
    ("optional{flag=false,count=-2}", [Optional(flag=False, count=-2)]),
    ("optional{rate=1e-3, label=aten.relu}", [Optional(rate=1e-3, label="aten.relu")]),
    ('optional{label="a, {b}"}', [Optional(label="a, {b}")]),
    ("optional{items=[x,y.z,]}", [Optional(items=("x", "y.z"))]),
    ("optional{items=[]},drop-alias", [Optional(items=()), DropAlias()]),
])  # fmt: skip
def test_text_names_passes_with_their_options(text: str, passes: Any) -> None:
    assert parse_passes(text) == passes


def test_the_text_of_a_pass_has_the_options_that_are_not_defaults() -> None:
    item = Optional(flag=False, label="true", items=("a b", ""))

    assert str(item) == 'optional{flag=false,label="true",items=["a b",""]}'
    assert str(Optional()) == "optional"


@examples(30)
@given(
    st.builds(
        Optional,
        flag=st.booleans(),
        count=st.integers(),
        rate=st.floats(allow_nan=False, allow_infinity=False),
        label=st.text(),
        items=st.lists(st.text()).map(tuple),
    )
)
def test_the_text_of_passes_is_read_back(item: Optional) -> None:
    from npu_ir.plugins import plugin_manager

    assert plugin_manager.get_plugins().passes["optional"] is Optional
    assert parse_passes(format_passes([item, DropAlias(), item])) == [item, DropAlias(), item]


@each_row("text, message", [
    ("", "the name of a pass is missing at the end"),
    ("drop-alias,", "the name of a pass is missing at the end"),
    ("drop-alis", r"there is no pass 'drop-alis' \(did you mean 'drop-alias'\?\)\n.*npu passes lists them"),
    ("deafult", r"there is no pass 'deafult' \(did you mean 'default'\?\)"),
    ("minimal{flag=true}", "minimal is a pipeline, which has no options.*the passes are canonicalize,elim"),
    ("minimal cse", "'cse' follows minimal"),
    ("zzz", "there is no pass 'zzz'\n.*npu passes lists them"),
    ("drop-alias optional", "'optional' follows drop-alias"),
    ("optional{colour=red}", "optional has no option 'colour'"),
    ("optional{count=1,count=2}", "the option 'count' is given twice"),
    ("optional{count=1.5}", "the option 'count' is an int, not 1.5"),
    ("optional{flag=yes}", "the option 'flag' is a bool, not yes"),
    ("optional{count}", "'=' is missing"),
    ("optional{count=", "an int is missing at the end"),
    ("optional{count=1", "a comma or } is missing after count"),
    ("optional{items=a}", r"'\[' is missing"),
    ('optional{label="a}', "unterminated string"),
    ("{", "the name of a pass is missing before '{'"),
    ("optional{items=[a b]}", "a comma or ] is missing after a"),
    ('optional{items=["\\q"]}', "the option 'items' is a list, not"),
])  # fmt: skip
def test_text_of_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(PassError, match=f"(?s){message}"):
        parse_passes(text)


def test_the_name_of_a_pipeline_stands_for_its_passes() -> None:
    names = [item.name for item in parse_passes("drop-alias,minimal,cse")]

    assert names == ["drop-alias", *(item.name for item in passes_of("minimal")), "cse"]


def test_what_a_plugin_offers_as_pass_has_to_be_one(install: Install) -> None:
    class Impostor:
        name = "impostor"

    install(point("strange", [Impostor]))

    with pytest.raises(PassError, match=r"'impostor' is not a pass but .*\n.*strange \(strange-dist 1.0\)"):
        parse_passes("impostor")


def test_every_sample_can_be_named() -> None:
    names: list[Any] = [item.name for item in SAMPLES]

    assert [type(item) for item in parse_passes(",".join(names))] == list(SAMPLES)


def test_of_known_passes_an_unknown_one_is_refused() -> None:
    with pytest.raises(PassError, match="(?s)there is no pass 'cse'.*the passes are optional"):
        parse_passes("cse", known={"optional": Optional})
