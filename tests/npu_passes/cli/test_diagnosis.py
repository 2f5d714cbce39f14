"""The passes and pipelines of plugins are tried for ``npu doctor`` and ``npu plugins --doctor``."""

import functools
from typing import Any

import pytest

from npu_ir.cli.doctor import Check, State
from npu_ir.plugins import plugin_manager
from npu_passes import Pass, PassError, Pipeline
from npu_passes.cli.diagnosis import all_checks
from tests.support.passes.plugins import point
from tests.support.passes.sample_passes import ReluToClamp


class Refusing(Pass):
    """A pass that cannot be made."""

    name = "refusing"

    def __post_init__(self) -> None:
        raise PassError("it is a bad day", fix="wait")


class NotAPass:
    name = "not-a-pass"


def checks_of(monkeypatch: pytest.MonkeyPatch, **offers: Any) -> list[Check]:
    points = [point("acme", **offers)]
    load = functools.cache(lambda: plugin_manager.load(points, set()))  # type: ignore[arg-type]
    monkeypatch.setattr(plugin_manager, "_load_installed", load)
    return all_checks()


def test_what_can_be_made_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline("acme", ReluToClamp.name, "One pass.")

    found = checks_of(monkeypatch, passes=[ReluToClamp], pipelines=[pipeline])

    assert found == [
        Check("acme", "passes", State.OK, "1 can be made"),
        Check("acme", "pipelines", State.OK, "1 can be made"),
    ]


def test_what_cannot_be_made_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline("acme", "no-such-pass", "No pass.")

    found = checks_of(monkeypatch, passes=[Refusing, NotAPass], pipelines=[pipeline])

    states = [(check.name, check.state) for check in found]
    assert states == [
        ("passes not-a-pass", State.BROKEN),
        ("passes refusing", State.BROKEN),
        ("pipelines acme", State.BROKEN),
    ]
    assert "is not a pass but" in found[0].text
    assert (found[1].text, found[1].fix) == ("it is a bad day", "wait")
    assert "there is no pass 'no-such-pass'" in found[2].text
