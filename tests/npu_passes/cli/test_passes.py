"""Descriptions of passes and pipelines by ``npu passes``."""

from __future__ import annotations

import json

import pytest

from npu_ir import Graph
from npu_ir.cli import main
from npu_ir.plugins import plugin_manager
from npu_passes import Pass, Pipeline, within

Capture = pytest.CaptureFixture[str]


class Shake(Pass):
    """Shake ``relu`` a little.

    Then stop.

    Attributes:
        force: How hard, in ``N``;
            0 for not at all.
        words: What to say.
    """

    name = "shake"
    numerics = within(1e-3)
    before = ("calm",)
    after = ("wake",)
    pipelines = ("shaking",)
    is_idempotent = False
    force: float = 1.5
    words: tuple[str, ...] = ("a", "true")

    def run(self, graph: Graph) -> bool:
        return False


class Calm(Pass):
    """Do nothing."""

    name = "calm"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        return False


@pytest.fixture(autouse=True)
def _two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = plugin_manager.get_plugins()
    monkeypatch.setattr(loaded, "passes", {"shake": Shake, "calm": Calm})
    pipelines = {
        "shaking": Pipeline("shaking", "calm", "Shakes."),
        "broken": Pipeline("broken", "no-such-pass"),
    }
    monkeypatch.setattr(loaded, "pipelines", pipelines)
    report = plugin_manager.PluginReport(
        "shaker", "shaker-dist 1.0", offers={"passes": ["shake"], "pipelines": ["shaking"]}
    )
    monkeypatch.setattr(loaded, "reports", [*loaded.reports, report])


def passes(*words: str) -> int:
    return main(["passes", *words])


def test_passes_and_pipelines_are_listed(capsys: Capture) -> None:
    assert passes() == 0

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "pass numerics pipelines from what it does",
        "calm exact shaking Do nothing.",
        "shake within 0.001 shaking shaker (shaker-dist 1.0) Shake relu a little.",
        "",
        "pipeline from passes what it is for",
        "broken cannot be used: there is no pass 'no-such-pass'",
        "shaking shaker (shaker-dist 1.0) shake,calm Shakes.",
    ]


def test_a_pass_tells_all_about_itself(capsys: Capture) -> None:
    assert passes("shake") == 0

    assert (
        capsys.readouterr().out
        == """\
pass       shake
from       shaker (shaker-dist 1.0)
numerics   within 0.001
pipelines  shaking
before     calm
after      wake

Shake ``relu`` a little.

Then stop.

option            type   what it does
force=1.5         float  How hard, in ``N``; 0 for not at all.
words=[a,"true"]  list   What to say.
"""
    )


def test_a_pipeline_that_nobody_has_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(Shake, "pipelines", ("shaking", "shakign"))

    assert passes("shake") == 0
    assert "\npipelines  shaking, shakign (there is none)\n" in capsys.readouterr().out


def test_a_pipeline_shows_its_passes_in_order(capsys: Capture) -> None:
    assert passes("shaking") == 0

    assert (
        capsys.readouterr().out
        == """\
pipeline  shaking
from      shaker (shaker-dist 1.0)
what for  Shakes.
passes    shake
          calm
"""
    )


def test_json_is_for_programs(capsys: Capture) -> None:
    assert passes("--json") == 0

    data = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in data["passes"]] == ["calm", "shake"]
    shake = data["passes"][1]
    assert (shake["from"], shake["rtol"], shake["idempotent"]) == ("shaker (shaker-dist 1.0)", 0.001, False)
    assert (shake["before"], shake["after"], shake["pipelines"]) == (["calm"], ["wake"], ["shaking"])
    assert shake["options"][1] == {
        "name": "words", "type": "list", "default": ["a", "true"], "doc": "What to say."
    }  # fmt: skip
    assert data["pipelines"][1] == {
        "name": "shaking", "from": "shaker (shaker-dist 1.0)", "passes": "shake,calm", "doc": "Shakes."
    }  # fmt: skip


def test_a_pass_that_says_nothing_of_itself_is_listed_so(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    silent = type("Silent", (Calm,), {"name": "silent"})
    monkeypatch.setitem(plugin_manager.get_plugins().passes, "silent", silent)

    assert [passes("silent"), passes("silent", "--markdown")] == [0, 0]
    text, page = capsys.readouterr().out.split("# ", 1)
    assert text.endswith("\n\nUndocumented.\n")
    assert "## `silent`\n\nUndocumented.\n" in page


@pytest.mark.smoke
def test_an_unknown_name_is_wrong_usage(capsys: Capture) -> None:
    assert passes("shakes") == 2

    assert capsys.readouterr().err == (
        "npu: error: there is no pass 'shakes' (did you mean 'shake'?)\n  fix: npu passes lists them\n"
    )


def test_what_is_no_pass_is_said_and_left_out(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setitem(plugin_manager.get_plugins().passes, "odd", 7)

    assert passes() == 0

    printed = capsys.readouterr()
    assert printed.err == (
        "npu: warning: 'odd' is not a pass but 7\n"
        "  fix: the hook npu_passes returns classes derived from npu_passes.Pass\n"
    )
    assert "shake" in printed.out
