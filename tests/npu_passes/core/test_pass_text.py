"""Passes as text, on command lines and in reports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_passes import Pass, PassError, format_passes, parse_passes
from tests.support.passes.plugins import Install, point
from tests.support.passes.sample_passes import SAMPLES, DropAlias, Optional

pytestmark = pytest.mark.usefixtures("samples")


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        pytest.param("drop-alias", [DropAlias()], id="name"),
        pytest.param("drop-alias , optional", [DropAlias(), Optional()], id="several"),
        pytest.param("drop-alias{}", [DropAlias()], id="no options"),
        pytest.param("optional{flag=false,count=-2}", [Optional(flag=False, count=-2)], id="options"),
        pytest.param(
            "optional{rate=1e-3, label=aten.relu}", [Optional(rate=1e-3, label="aten.relu")], id="words"
        ),
        pytest.param('optional{label="a, {b}"}', [Optional(label="a, {b}")], id="quoted"),
        pytest.param("optional{items=[x,y.z,]}", [Optional(items=("x", "y.z"))], id="list"),
        pytest.param("optional{items=[]},drop-alias", [Optional(items=()), DropAlias()], id="empty list"),
    ],
)
def test_text_names_passes_with_their_options(text: str, passes: list[Pass]) -> None:
    assert parse_passes(text) == passes


def test_the_text_of_a_pass_has_the_options_that_are_not_defaults() -> None:
    item = Optional(flag=False, label="true", items=("a b", ""))

    assert str(item) == 'optional{flag=false,label="true",items=["a b",""]}'
    assert str(Optional()) == "optional"


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "the name of a pass is missing at the end", id="nothing"),
        pytest.param("drop-alias,", "the name of a pass is missing at the end", id="comma at the end"),
        pytest.param("drop-alis", "there is no pass 'drop-alis'\n.*did you mean 'drop-alias'", id="typo"),
        pytest.param("zzz", "there is no pass 'zzz'\n.*npu passes lists them", id="unknown"),
        pytest.param("drop-alias optional", "'optional' follows drop-alias", id="no comma"),
        pytest.param("optional{colour=red}", "optional has no option 'colour'", id="unknown option"),
        pytest.param("optional{count=1,count=2}", "the option 'count' is given twice", id="twice"),
        pytest.param("optional{count=1.5}", "the option 'count' is an int, not 1.5", id="wrong type"),
        pytest.param("optional{flag=yes}", "the option 'flag' is a bool, not yes", id="not a bool"),
        pytest.param("optional{count}", "'=' is missing", id="no value"),
        pytest.param("optional{count=", "an int is missing at the end", id="cut off"),
        pytest.param("optional{count=1", "a comma or } is missing after count", id="no brace"),
        pytest.param("optional{items=a}", r"'\[' is missing", id="no list"),
        pytest.param('optional{label="a}', "unterminated string", id="open string"),
        pytest.param("{", "the name of a pass is missing before '{'", id="brace"),
        pytest.param("optional{items=[a b]}", "a comma or ] is missing after a", id="no comma in a list"),
        pytest.param('optional{items=["\\q"]}', "the option 'items' is a list, not", id="escape"),
    ],
)
def test_text_of_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(PassError, match=f"(?s){message}"):
        parse_passes(text)


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
