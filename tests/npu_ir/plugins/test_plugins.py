"""Plugins: discovery, loading, refusal, and the interface of backends."""

import itertools
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch

from npu_ir import RegistryError, list_registered_ops
from npu_ir._torch.tensors import negated_view
from npu_ir.core.storage import copy_memory, copy_with_strides
from npu_ir.ops import register_executor
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.hookspecs import hookimpl
from npu_ir.plugins.plugin_manager import Plugins, PluginWarning, load
from tests.support.passes.plugins import Point, plugin
from tests.support.rows import each_row

# Plugins: all of one or nothing, refused with a reason, never fatal, in no order but that of their names.


@dataclass
class Named:
    name: Any


def with_executor(*op_types: str) -> types.ModuleType:
    def npu_register_ops(registry: Any) -> None:
        for op_type in op_types:
            registry.register_executor(op_type)(len)

    return plugin(npu_register_ops=npu_register_ops)


def with_pass(*names: Any) -> types.ModuleType:
    return plugin(npu_passes=lambda: [Named(name) for name in names])


def loaded(*points: Point, disabled: str = "") -> Plugins:
    return load(list(points), {disabled} - {""})  # type: ignore[arg-type]


def refused(*points: Point) -> tuple[Plugins, dict[str, str]]:
    """Return what is loaded, and why each of the others was refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = loaded(*points)
    reasons = {report.distribution: report.refused for report in found.reports if report.refused is not None}
    assert [str(warning.message) for warning in caught] == [
        f"plugin {report.name!r} ({report.distribution}) was refused: {report.refused}"
        for report in found.reports
        if report.refused is not None
    ]
    assert all(warning.category is PluginWarning for warning in caught)
    return found, reasons


@pytest.mark.smoke
def test_what_plugins_offer_is_collected_and_reported() -> None:
    everything = plugin(
        npu_register_ops=lambda registry: (
            registry.register_executor("x")(len),
            registry.register_conversion("y")(len),
            None,
        )[2],
        npu_passes=lambda: [Named("fold"), Named("drop")],
        npu_backends=lambda: [Named("fast")],
        npu_runners=lambda: {"quick": len},
    )

    found = loaded(Point("b", everything), Point("a", plugin()))

    assert [report.name for report in found.reports] == ["a", "b"]
    assert found.reports[1].offers == {
        "execution": ["x"],
        "conversion": ["y"],
        "passes": ["drop", "fold"],
        "backends": ["fast"],
        "runners": ["quick"],
    }
    assert found.reports[0].offers == {}
    assert list(found.passes) == ["fold", "drop"]
    assert list(found.backends) == ["fast"]
    assert found.runners == {"quick": len}
    assert found.registry.table("execution")["x"].origin == "b (b-dist 1.0)"
    assert not any(report.refused for report in found.reports)


def test_a_plugin_without_a_distribution_is_loaded() -> None:
    point = EntryPoint("a", "npu_ir.plugins.builtin", "npu")

    found = load([point], set())

    assert found.reports[0].distribution == "unknown distribution"
    assert found.reports[0].refused is None
    assert list(found.registry.table("execution")) == ["<built-in function getitem>"]


def test_the_order_of_installation_does_not_matter() -> None:
    points = [
        Point("c", with_executor("x")),
        Point("a", with_pass("p")),
        Point("b", with_executor("y", "x")),
        Point("d", with_pass("p", "q")),
    ]

    for order in itertools.permutations(points):
        found, reasons = refused(*order)
        assert [report.name for report in found.reports] == ["a", "b", "c", "d"]
        assert list(reasons) == ["c-dist 1.0", "d-dist 1.0"]
        assert sorted(found.registry.table("execution")) == ["x", "y"]
        assert list(found.passes) == ["p"]


BROKEN = "broken (broken-dist 1.0)"
NOT_BY_NAME = f"PluginError: {BROKEN} offers runners that are not a dict of functions by name: "
HAS_EXECUTION = "already has a registered execution: by"


@each_row("broken, reason", {
    "missing": (ModuleNotFoundError("No module named 'gone'"), "ModuleNotFoundError: No module named 'gone'"),
    "syntax": (SyntaxError("invalid syntax"), "SyntaxError: invalid syntax"),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "hook_raises": (plugin(npu_register_ops=lambda registry: 1 / 0), "ZeroDivisionError: division by zero"),
    "hook_exits": (plugin(npu_register_ops=lambda registry: sys.exit("no device")), "SystemExit: no device"),
    "unknown_hook": (plugin(npu_pases=lambda: None),
        f"PluginError: {BROKEN} implements an unknown hook 'npu_pases'\n  fix: known hooks: npu_register_o"),
    "hook_argument": (plugin(npu_passes=lambda device: []), "PluginValidationError: "),
    "no_list": (plugin(npu_passes=lambda: 5), "TypeError: 'int' object is not iterable"),
    "no_name": (with_pass(None), f"PluginError: {BROKEN} offers passes without a name: Named(name=None)"),
    "text": (plugin(npu_backends=lambda: ["fast"]),
        f"PluginError: {BROKEN} offers backends without a name: 'fast'"),
    "runners_without_names": (plugin(npu_runners=lambda: [len]), f"{NOT_BY_NAME}[<built-in function len>]"),
    "runners_not_callable": (plugin(npu_runners=lambda: {"quick": 1}), NOT_BY_NAME + "{'quick': 1}"),
    "interpreter": (plugin(npu_runners=lambda: {"interpreter": len}),
        f"RegistryError: {BROKEN} offers runners called 'interpreter', and so does npu-ir"),
    "own_pass_twice": (with_pass("p", "p"),
        f"RegistryError: {BROKEN} offers passes called 'p', and so does {BROKEN}"),
    "own_op_twice": (with_executor("x", "x"),
        f"RegistryError: x {HAS_EXECUTION} {BROKEN}, and now by {BROKEN}"),
    "op_of_another": (with_executor("shared"),
        f"RegistryError: shared {HAS_EXECUTION} a (a-dist 1.0), and now by {BROKEN}"),
    "pass_of_another": (with_pass("shared"),
        f"RegistryError: {BROKEN} offers passes called 'shared', and so does a (a-dist 1.0)"),
    "half": (plugin(npu_passes=lambda: [Named("good"), Named("shared")], npu_runners=lambda: {"mine": len}),
        f"RegistryError: {BROKEN} offers passes called 'shared', and so does a (a-dist 1.0)"),
})  # fmt: skip
def test_a_broken_plugin_is_refused_as_a_whole_and_the_others_go_on(broken: Any, reason: str) -> None:
    if isinstance(broken, types.ModuleType):
        broken.npu_add_commands = hookimpl(lambda commands: None)
    first = plugin(
        npu_register_ops=lambda registry: registry.register_executor("shared")(len) and None,
        npu_passes=lambda: [Named("shared")],
    )

    found, reasons = refused(Point("a", first), Point("broken", broken), Point("z", with_pass("last")))

    assert list(reasons) == ["broken-dist 1.0"]
    assert reasons["broken-dist 1.0"].startswith(reason)
    assert found.reports[1].offers == {}
    assert list(found.passes) == ["shared", "last"]
    assert list(found.registry.table("execution")) == ["shared"]
    assert found.runners == {}
    assert [name for name, _ in found.manager.list_name_plugin()] == ["a", "z"]
    assert len(found.manager.hook.npu_add_commands.get_hookimpls()) == 0


def test_two_plugins_of_one_name_are_refused_naming_both_distributions() -> None:
    found, reasons = refused(Point("same", with_pass("p"), "first"), Point("same", with_pass("q"), "second"))

    assert reasons == {
        "second 1.0": "PluginError: two plugins are called 'same': from first 1.0 and second 1.0"
    }
    assert list(found.passes) == ["p"]


def test_one_object_under_two_names_is_refused_the_second_time() -> None:
    shared = with_pass("p")

    found, reasons = refused(Point("a", shared), Point("b", shared))

    assert reasons == {"b-dist 1.0": "PluginError: the plugins 'a' and 'b' are the same object: b.plugin"}
    assert found.manager.get_plugin("a") is shared


def test_a_disabled_plugin_is_not_even_imported() -> None:
    found = loaded(Point("a", AssertionError("it was imported")), Point("b", with_pass("p")), disabled="a")

    assert found.reports[0].refused == "disabled by NPU_DISABLE_PLUGINS"
    assert list(found.passes) == ["p"]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs plugins in place of those of this environment, for what is loaded at first use."""

    def install(*points: Point) -> None:
        plugin_manager._load_installed.cache_clear()
        monkeypatch.setattr(plugin_manager, "installed_points", {"npu": points}.__getitem__)

    yield install
    monkeypatch.undo()
    plugin_manager._load_installed.cache_clear()


@pytest.mark.parametrize("value", ["b", "b,c", " c , b ,", "unknown,b"])
def test_the_environment_disables_plugins(
    value: str, installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPU_DISABLE_PLUGINS", value)
    installed(Point("a", with_executor("x")), Point("b", with_executor("y")))

    assert list_registered_ops()["execution"] == ["x"]


def test_plugins_are_loaded_once(installed: Callable[..., None]) -> None:
    calls: list[str] = []
    installed(Point("a", plugin(npu_passes=lambda: calls.append("asked") or [])))

    assert plugin_manager.get_plugins() is plugin_manager.get_plugins()
    assert calls == ["asked"]


def test_code_and_plugins_share_one_registry(installed: Callable[..., None]) -> None:
    installed(Point("a", with_executor("x")))

    with pytest.raises(RegistryError, match=rf"x {HAS_EXECUTION} a \(a-dist 1.0\), and now by {__name__}"):
        register_executor("x")(lambda inputs, attrs: [])


def test_a_plugin_that_registers_past_its_hook_is_refused(installed: Callable[..., None]) -> None:
    def npu_register_ops(registry: Any) -> None:
        register_executor("lost")(len)

    installed(Point("a", plugin(npu_register_ops=npu_register_ops)), Point("b", with_executor("kept")))

    reason = r"plugin 'a' .* nothing can be registered or looked up yet[\s\S]*in its hook npu_register_ops"
    with pytest.warns(PluginWarning, match=reason):
        found = plugin_manager.get_plugins()
    assert list(found.registry.table("execution")) == ["kept"]
    register_executor("now")(len)
    assert "now" in found.registry.table("execution")


# Copies that backends work on: strides stay, and memory holds the values.


@each_row("lazily", [torch.conj, negated_view, lambda x: negated_view(x.conj())])
@each_row("shape, strides", [((4, 3), (3, 1)), ((2, 3), (6, 2)), ((3, 4), (0, 2)), ((3, 2), (1, 1))])
def test_the_copy_of_a_lazy_tensor_holds_its_values_in_the_same_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], lazily: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    item = lazily(torch.randn(12, dtype=torch.complex64).as_strided(shape, strides))
    target = copy_with_strides(torch.zeros(12, dtype=torch.complex64).as_strided(shape, strides))

    copy = copy_with_strides(item)
    copy_memory(item, target)

    for found in (copy, target):
        assert torch.equal(found, item)
        assert found.stride() == strides
        assert not found.is_conj()
        assert not found.is_neg()
