"""``npu doctor``: what works, what does not and why; what is broken fails it."""

import json
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch

from npu_ir import Interpreter
from npu_ir.cli.doctor import Check, State, all_checks
from npu_ir.plugins import distributions, plugin_manager
from tests.support.rows import each_row

Install = Callable[..., None]


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


def test_what_is_installed_here_works(npu: Callable[..., str]) -> None:
    printed = npu("doctor")

    assert printed.endswith("\nnothing that is installed is broken\n")
    assert torch.__version__ in printed


@each_row("version, text", [
    ("2.9.1+cpu", "2.9.1+cpu"),
    ("2.15.0", "2.15.0"),
    ("2.99.0", "2.99.0; not one of the releases that were tested, 2.9 to 2.15"),
])  # fmt: skip
def test_a_release_of_pytorch_that_was_not_tested_is_named(
    version: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)

    check = found("environment", "PyTorch")

    assert check == Check("environment", "PyTorch", State.OK, text)


@pytest.mark.filterwarnings("ignore:plugin 'broken'")
def test_json_holds_every_check(install: Install, npu: Callable[..., str]) -> None:
    install(broken=ValueError("no luck"))

    told = json.loads(npu("doctor --json", code=1).partition("\nnpu: ")[0])

    rows = {(row["topic"], row["name"]): row["state"] for row in told["checks"]}
    assert told["ok"] is False
    assert rows["plugins", "broken"] == "broken"
    assert rows["runners", "interpreter"] == "ok"


def test_what_is_broken_is_said_again_with_its_fix(install: Install, npu: Callable[..., str]) -> None:
    broken = Check("acme", "board", State.BROKEN, "it answers\nnothing", fix="plug it in")
    install(acme={"npu_doctor": lambda: [broken, Check("acme", "cable", State.OK, "1 m")]})

    printed = npu("doctor", code=1)

    assert "\nbroken: acme, board: it answers; nothing\n  fix: plug it in\n" in printed
    assert "nothing that is installed is broken" not in printed


@each_row("name, version, check", [
    ("rich", None, Check("packages", "rich", State.ABSENT, "not installed: tables on a terminal",
        "python -m pip install rich")),
    ("npu-passes", "0.9", Check("packages", "npu-passes", State.BROKEN, "0.9, with npu-ir 1.0",
        "python -m pip install npu-passes==1.0")),
    ("npu-passes", "1.0", Check("packages", "npu-passes", State.OK, "1.0")),
])  # fmt: skip
def test_a_package_is_of_the_version_of_npu_ir_or_says_how_to_get_it(
    name: str, version: str | None, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(package: str) -> str:
        found = version if package == name else "1.0"
        if found is None:
            raise metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(distributions.metadata, "version", installed)
    monkeypatch.setattr(distributions.util, "find_spec", lambda name: None)

    assert found("packages", name) == check


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


def test_commands_that_were_refused_are_broken(install: Install, npu: Callable[..., str]) -> None:
    install(acme={"npu_add_commands": lambda commands: commands.add_parser("info")})

    npu("plugins")

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


@each_row("hook, text", [
    (lambda: 1 // 0, "npu_doctor failed: ZeroDivisionError: integer division or modulo"),
    (lambda: ["fine"], "npu_doctor returns 'fine', which is not an npu_ir.cli.doctor.Check"),
])  # fmt: skip
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
