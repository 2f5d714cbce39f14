"""Checks of the passes and pipelines of all plugins, for ``npu doctor`` and ``npu plugins --doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from npu_ir.cli.doctor import Check, State
from npu_ir.errors import NpuError
from npu_ir.plugins import plugin_manager
from npu_passes.core.pass_text import passes_of
from npu_passes.core.registry import find_pass


def all_checks() -> list[Check]:
    """Return a check for each plugin that offers passes or pipelines, and one for each that is broken."""
    reports = plugin_manager.get_plugins().reports
    return [check for report in reports for check in _checks_of(report)]


def _checks_of(report: plugin_manager.PluginReport) -> Iterator[Check]:
    for kind, look in (("passes", _make_pass), ("pipelines", _make_passes_of)):
        names = report.offers.get(kind, [])
        broken = [check for name in names if (check := _check(report.name, kind, name, look)) is not None]
        yield from broken
        if names and not broken:
            yield Check(report.name, kind, State.OK, f"{len(names)} can be made")


def _check(plugin: str, kind: str, name: str, look: Callable[[str], object]) -> Check | None:
    """Return a broken check if ``look`` raises for a name; None if it does not."""
    try:
        look(name)
    except NpuError as error:
        return Check(plugin, f"{kind} {name}", State.BROKEN, error.message, error.fix or "correct it")
    except Exception as error:  # noqa: BLE001 - the failure is the result of the check
        text = f"{type(error).__name__}: {error}"
        return Check(
            plugin, f"{kind} {name}", State.BROKEN, text, "give each option a default, and no __init__"
        )
    return None


def _make_pass(name: str) -> object:
    return find_pass(name)()


def _make_passes_of(name: str) -> object:
    return passes_of(name)
