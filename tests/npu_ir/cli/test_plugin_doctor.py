"""``npu plugins --doctor``: what is wrong with each plugin, and what to do about it."""

import functools
import json
import sys
import types
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch

from npu_ir.cli.doctor import Check, State
from npu_ir.cli.plugin_doctor import plugin_checks
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.backend import Backend
from tests.support.passes.plugins import Point
from tests.support.rows import each_row

Install = Callable[..., None]
pytestmark = pytest.mark.filterwarnings("ignore:plugin 'acme'")


class Sound(Backend):
    name = "toy"

    def devices(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def supports(self, node: Any) -> str:
        return "nothing"

    def lower(self, graph: Any) -> list[Any]:
        return []

    def prepare(self, graph: Any, ops: Any, device: Any) -> None: ...

    def run(self, program: Any, inputs: Any) -> list[Any]:
        return []


class Absent(Sound):
    def devices(self) -> list[torch.device]:
        return []

    def absence(self) -> str:
        return "no driver"


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


def returning(result: Any) -> Any:
    return lambda: result


def broken(topic: str = "acme") -> list[Check]:
    return [check for check in plugin_checks() if check.state is State.BROKEN and check.topic == topic]


def test_what_is_installed_here_is_sound(npu: Callable[..., str]) -> None:
    told = json.loads(npu("plugins --doctor --json"))

    rows = {(row["topic"], row["name"]): row["state"] for row in told["checks"]}
    assert told["ok"] is True
    assert rows["npu-ir", "loading"] == rows["npu-ir", "hooks"] == rows["npu-runtime", "backend aten"] == "ok"
    assert rows["npu-passes", "passes"] == rows["npu-passes", "pipelines"] == "ok"


def test_what_is_broken_is_said_with_its_fix_and_fails(install: Install, npu: Callable[..., str]) -> None:
    install(acme=ModuleNotFoundError("No module named 'acme_kernels'"))

    printed = npu("plugins --doctor", code=1)

    assert "\nbroken: acme, loading: ModuleNotFoundError: No module named 'acme_kernels'\n  fix: " in printed


@each_row("error, fix", [
    (ModuleNotFoundError("No module named 'missing.part'"),
        "python -m pip install missing, and name it in dependencies of the plugin"),
    (ModuleNotFoundError("No module named 'acme'"),
        'the entry point is "acme.plugin": correct [project.entry-points.npu] in pyproject.toml, or'),
    (AttributeError("module 'acme' has no attribute 'plugin'"), "correct the entry point in pyproject.toml"),
    (SyntaxError("invalid syntax (plugin.py, line 3)"), "correct the module: python -m acme.plugin"),
    (ValueError("no luck"), "correct acme.plugin, install unknown distribution again, or leave it out: "),
])  # fmt: skip
def test_a_plugin_that_cannot_be_loaded_says_what_to_do(
    error: Exception, fix: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = metadata.EntryPoint("acme", "acme.plugin", "npu")
    monkeypatch.setattr(metadata, "entry_points", lambda **kind: [point])
    install(acme=error)

    (check,) = broken()

    assert (check.name, check.text) == ("loading", f"{type(error).__name__}: {error}")
    assert check.fix.startswith(fix)


@each_row("hooks, text, fix", [
    ({"npu_passes": lambda graph: []}, "Argument(s) {'graph'} are declared in the hookimpl",
        "give the hook the arguments of its specification: npu_passes()"),
    ({"npu_pases": returning([])}, "acme (unknown distribution) implements an unknown hook 'npu_pases'",
        "known hooks: npu_register_ops, npu_passes, "),
    ({"npu_passes": lambda: [3]}, "offers passes without a name: 3", "correct its entry point"),
])  # fmt: skip
def test_a_hook_that_is_not_as_specified_says_how_it_is(
    hooks: dict[str, Any], text: str, fix: str, install: Install
) -> None:
    install(acme=hooks)

    (check,) = broken()

    assert text in check.text
    assert check.fix.startswith(fix)


def test_a_name_that_is_taken_names_both_and_how_to_leave_one_out(install: Install) -> None:
    offer = {"npu_passes": lambda: [Named("fold")]}
    install(aaa=offer, acme=offer)

    (check,) = broken()

    assert "acme (unknown distribution) offers passes called 'fold', and so does aaa (unknown" in check.text
    assert check.fix == (
        "rename it, with the name of the distribution in front, or leave one plugin out: "
        "NPU_DISABLE_PLUGINS=acme"
    )


def test_a_function_that_is_not_marked_as_a_hook_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("acme")
    vars(module)["npu_passes"] = returning([])
    load = functools.cache(lambda: plugin_manager.load([Point("acme", module)], set()))  # type: ignore[list-item]
    monkeypatch.setattr(plugin_manager, "_load_installed", load)

    assert broken() == [
        Check("acme", "npu_passes", State.BROKEN, "npu_passes is not marked as a hook, so it is never called",
            "put @hookimpl of npu_ir.hookspecs in front of it"),
    ]  # fmt: skip


@each_row("hooks, name, text, fix", [
    ({"npu_backends": returning([])}, "npu_backends", "it returns no backends", "return them, or rem"),
    ({"npu_passes": lambda: None}, "npu_passes", "it returns no passes", "return them, or remove npu_passes"),
    ({"npu_backends": lambda: [Sound]}, "backend toy", "is a class", "return an instance of it from npu_"),
    ({"npu_backends": lambda: [Named("toy")]}, "backend toy", "is not a backend", "derive its class from "),
    ({"npu_register_ops": lambda registry: registry.register_executor("acme.op")(lambda inputs: inputs)},
        "execution of acme.op", "(inputs) does not take (inputs, attrs)", "it is called as function(in"),
    ({"npu_register_ops": lambda registry: registry.register_conversion("acme.op")(lambda: None)},
        "conversion of acme.op", "() does not take (converter, node)", "it is called as function(con"),
])  # fmt: skip
def test_what_a_plugin_offers_is_looked_at(
    hooks: dict[str, Any], name: str, text: str, fix: str, install: Install
) -> None:
    install(acme=hooks)

    (check,) = broken()

    assert check.name == name
    assert text in check.text
    assert check.fix.startswith(fix)


def test_commands_that_are_refused_are_broken(install: Install, npu: Callable[..., str]) -> None:
    install(acme={"npu_add_commands": lambda commands: commands.add_parser("show")})

    printed = npu("plugins --doctor", code=1)

    assert "broken: acme, loading: its commands are refused: RegistryError: the command 'show' is" in printed
    assert "  fix: disable one of the plugins" in printed


def test_a_backend_without_a_device_and_a_disabled_plugin_are_absent(install: Install) -> None:
    install(acme={"npu_backends": lambda: [Absent()]})
    found = {(check.topic, check.name): check for check in plugin_checks()}
    install(disabled="acme", acme={})
    disabled = {(check.topic, check.name): check for check in plugin_checks()}

    assert found["acme", "backend toy"] == Check("acme", "backend toy", State.ABSENT, "no driver")
    assert disabled["acme", "loading"].state is State.ABSENT


def test_versions_that_do_not_fit_are_broken(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["npu-ir>=99", "nothing-of-this-name", "torch>=2", 'pytest>=99; extra == "test"']
    monkeypatch.setattr(metadata, "requires", lambda name: needed)
    monkeypatch.setattr("npu_ir.cli.plugin_doctor.installed_version", {"npu-ir": "0.1.0", "torch": "2.9"}.get)
    install(acme={})

    (check,) = broken()

    assert check.text == (
        "unknown needs npu-ir >=99, and 0.1.0 is installed; nothing-of-this-name, which is not installed"
    )
    assert check.fix.startswith("python -m pip install --upgrade unknown, or the versions that it needs")


def test_versions_are_not_compared_without_packaging(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    install(acme={})

    (check,) = [check for check in plugin_checks() if check.name == "versions"]

    assert (check.state, check.fix) == (State.ABSENT, "python -m pip install packaging")


def test_a_plugin_that_registers_with_pytorch_alone_is_not_said_to_offer_nothing(
    install: Install, npu: Callable[..., str]
) -> None:
    install(acme={"npu_register_ops": lambda registry: None}, idle={})

    rows = [line.split() for line in npu("plugins").splitlines()]

    assert ["acme", "unknown", "distribution", "registers", "ops", "with", "PyTorch"] in rows
    assert ["idle", "unknown", "distribution", "offers", "nothing"] in rows
