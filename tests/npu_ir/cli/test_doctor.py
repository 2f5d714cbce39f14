"""``npu doctor``: what works, what does not and why; what is broken fails it."""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch

from npu_ir import Interpreter
from npu_ir.cli import main
from npu_ir.cli.doctor import Check, State, all_checks
from npu_ir.plugins import distributions, plugin_manager
from npu_ir.plugins.hookspecs import hookimpl
from tests.support.rows import each_row

Capture = pytest.CaptureFixture[str]
Install = Callable[..., None]


class Point:
    """An entry point that loads to a plugin with these hooks, or raises."""

    dist = None

    def __init__(self, name: str, hooks: dict[str, Any] | Exception) -> None:
        self.name = self.value = name
        self._hooks = hooks

    def load(self) -> object:
        if isinstance(self._hooks, Exception):
            raise self._hooks
        module = types.ModuleType(self.name)
        for name, function in self._hooks.items():
            setattr(module, name, hookimpl(function))
        return module


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs plugins, given as their hooks by name, in place of those of this environment."""

    def install(disabled: str = "", **given: dict[str, Any] | Exception) -> None:
        points = [Point(name, hooks) for name, hooks in given.items()]
        load = functools.cache(lambda: plugin_manager.load(points, {disabled}))  # type: ignore[arg-type]
        monkeypatch.setattr(plugin_manager, "_load_installed", load)

    return install


def found(topic: str, name: str) -> Check:
    (check,) = [item for item in all_checks() if (item.topic, item.name) == (topic, name)]
    return check


class Device:
    """A backend that is nothing but devices."""

    name = "toy"

    def __init__(self, *devices: torch.device, error: Exception | None = None) -> None:
        self._devices = devices
        self._error = error

    def devices(self) -> list[torch.device]:
        if self._error is not None:
            raise self._error
        return list(self._devices)

    def absence(self) -> str:
        return "no driver"


def test_what_is_installed_here_works(capsys: Capture) -> None:
    code = main(["doctor"])

    printed = capsys.readouterr().out
    assert code == 0
    assert printed.endswith("\nnothing that is installed is broken\n")
    assert torch.__version__ in printed


def test_json_holds_every_check(install: Install, capsys: Capture) -> None:
    install(broken=ValueError("no luck"))

    with pytest.warns(plugin_manager.PluginWarning):
        plugin_manager.get_plugins()
    code = main(["doctor", "--json"])

    told = json.loads(capsys.readouterr().out)
    rows = {(row["topic"], row["name"]): row["state"] for row in told["checks"]}
    assert code == 1
    assert told["ok"] is False
    assert rows["plugins", "broken"] == "broken"
    assert rows["runners", "interpreter"] == "ok"


def test_what_is_broken_is_said_again_with_its_fix(install: Install, capsys: Capture) -> None:
    checks = [
        Check("acme", "board", State.BROKEN, "it answers\nnothing", fix="plug it in"),
        Check("acme", "cable", State.OK, "1 m"),
    ]
    install(acme={"npu_doctor": lambda: checks})

    code = main(["doctor"])

    printed = capsys.readouterr().out
    assert code == 1
    assert "\nbroken: acme, board: it answers; nothing\n  fix: plug it in\n" in printed
    assert "nothing that is installed is broken" not in printed


def test_an_absent_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "rich":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(distributions.metadata, "version", version)
    monkeypatch.setattr(distributions.util, "find_spec", lambda name: None)

    check = found("packages", "rich")

    assert (check.state, check.fix) == (State.ABSENT, "python -m pip install rich")
    assert check.text == "not installed: tables on a terminal"


def test_packages_of_several_versions_are_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"npu-passes": "0.9"}
    monkeypatch.setattr(distributions.metadata, "version", lambda name: versions.get(name, "1.0"))

    check = found("packages", "npu-passes")

    assert (check.state, check.text) == (State.BROKEN, "0.9, with npu-ir 1.0")
    assert check.fix == "python -m pip install npu-passes==1.0"


def test_a_plugin_that_was_left_out_is_absent(install: Install) -> None:
    install(disabled="acme", acme={})

    assert found("plugins", "acme").state is State.ABSENT
    assert found("plugins", "acme").text == "disabled by NPU_DISABLE_PLUGINS"


def test_a_plugin_of_a_plugin_is_checked_as_any_other(install: Install) -> None:
    reports = [
        plugin_manager.PluginReport("good", "acme-good 1.2", offers={"ops": ["a"], "kernels": ["b", "c"]}),
        plugin_manager.PluginReport("bad", "acme-bad 0.1", "OSError: bad.so is cut off"),
        plugin_manager.PluginReport("off", "acme-off 0.1", "disabled by NPU_DISABLE_PLUGINS"),
    ]
    install(acme={"npu_plugin_reports": lambda: reports})

    good, bad, off = (found("plugins", name) for name in ("good", "bad", "off"))

    assert (good.state, good.text) == (State.OK, "acme-good 1.2; ops: 1, kernels: 2")
    assert (bad.state, bad.text) == (State.BROKEN, "OSError: bad.so is cut off")
    assert bad.fix == "install acme-bad 0.1 again, or leave it out: NPU_DISABLE_PLUGINS=bad"
    assert off.state is State.ABSENT


def test_commands_that_were_refused_are_broken(install: Install) -> None:
    install(acme={"npu_add_commands": lambda commands: commands.add_parser("info")})

    assert main(["plugins"]) == 0
    assert found("plugins", "acme").state is State.BROKEN
    assert "the command 'info' is already there" in found("plugins", "acme").text


@each_row("backend, state, text", [
    (Device(torch.device("cpu")), State.OK, "runs on cpu"),
    (Device(), State.ABSENT, "no driver"),
    (Device(error=OSError("lost")), State.BROKEN, "OSError: lost"),
])  # fmt: skip
def test_a_backend_says_where_it_runs(install: Install, backend: Device, state: State, text: str) -> None:
    install(acme={"npu_backends": lambda: [backend]})

    check = found("backends", "toy")

    assert (check.state, check.text) == (state, text)


def test_a_runner_that_computes_something_else_is_broken(install: Install) -> None:
    class Wrong(Interpreter):
        def run_flat(self, *args: Any, **kwargs: Any) -> Any:
            (result,), mutations = super().run_flat(*args, **kwargs)
            return [result + 1], mutations

    install(acme={"npu_runners": lambda: {"wrong": Wrong}})

    check = found("runners", "wrong")

    assert check.state is State.BROKEN
    assert check.text == "ValueError: relu of [-1.0, 0.0, 2.0] is [1.0, 1.0, 3.0]"


@each_row(
    "hook, text",
    [
        (lambda: 1 // 0, "npu_doctor failed: ZeroDivisionError: integer division or modulo"),
        (lambda: ["fine"], "npu_doctor returns 'fine', which is not an npu_ir.cli.doctor.Check"),
    ],
)
def test_a_hook_that_fails_is_told_and_the_rest_goes_on(
    install: Install, hook: Callable[[], Any], text: str
) -> None:
    install(acme={"npu_doctor": hook}, other={"npu_doctor": lambda: [Check("other", "x", State.OK, "y")]})

    check = found("acme", "npu_doctor")

    assert check.state is State.BROKEN
    assert text in check.text
    assert found("other", "x").state is State.OK


def test_a_pytorch_that_sees_no_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    check = found("environment", "CUDA of PyTorch")

    assert (check.state, check.text) == (State.ABSENT, "13.0, and no device it can use")
