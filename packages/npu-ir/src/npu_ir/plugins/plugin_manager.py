"""Discovery, loading and reporting of plugins.

Plugins are loaded once, when something that they may offer is first requested: those of this project first,
then in the order of their entry-point names, never in the order of installation. A plugin that cannot be
loaded, or that offers a name that another one already does, is refused as a whole and reported; the others
are not affected. ``NPU_DISABLE_PLUGINS=name,name`` disables plugins.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

import pluggy

from npu_ir.errors import PluginError, RegistryError
from npu_ir.plugins import hookspecs
from npu_ir.plugins.distributions import OWN
from npu_ir.plugins.op_registry import OpRegistry

GROUP = "npu"
DISABLE_VARIABLE = "NPU_DISABLE_PLUGINS"
INTERPRETER = "interpreter"  # the built-in runner


class PluginWarning(UserWarning):
    """A plugin was refused; the message has its name and the reason."""


@dataclass(slots=True)
class PluginReport:
    """The result of loading one plugin.

    Attributes:
        name: Its entry-point name.
        distribution: The distribution that it belongs to, with version.
        refused: The reason for its refusal; None if it is in use.
        commands_refused: The reason why only its commands are refused; None if they are in use.
        offers: The names that it offers, by kind: ``{"execution": [...], "passes": [...], ...}``.
        group: The entry-point group that it was found in.
    """

    name: str
    distribution: str
    refused: str | None = None
    commands_refused: str | None = None
    offers: dict[str, list[str]] = field(default_factory=dict)
    group: str = GROUP


@dataclass(slots=True)
class Plugins:
    """The loaded plugins, and everything that they offer."""

    manager: pluggy.PluginManager
    registry: OpRegistry
    reports: list[PluginReport]
    passes: dict[str, Any]
    pipelines: dict[str, Any]
    backends: dict[str, Any]
    runners: dict[str, Any]


_lock = threading.RLock()
_loading = threading.Event()


def get_plugins() -> Plugins:
    """Return the plugins of this process, loading them on the first call.

    Raises:
        PluginError: A plugin requests them while they are being loaded.
    """
    with _lock:
        return _load_installed()


@functools.cache
def _load_installed() -> Plugins:
    if _loading.is_set():
        raise PluginError(
            "plugins are being loaded: nothing can be registered or looked up yet",
            fix="a plugin registers in its hook npu_register_ops(registry), with registry.register_executor",
        )
    disabled = {name.strip() for name in os.environ.get(DISABLE_VARIABLE, "").split(",")} - {""}
    _loading.set()
    try:
        return load(installed_points(GROUP), disabled)
    finally:
        _loading.clear()


def installed_points(group: str) -> EntryPoints:
    """Return the entry points of a group, of all installed distributions."""
    return _read_entry_points().select(group=group)


# Every distribution has a file of them: reading all takes milliseconds.
_read_entry_points = functools.cache(entry_points)


def all_reports() -> list[PluginReport]:
    """Return the reports on all plugins, including those that plugins load from groups of their own."""
    plugins = get_plugins()
    reports = list(plugins.reports)
    for report in (report for report in plugins.reports if report.refused is None):
        try:
            reports += _reports_of(plugins.manager, report.name)
        except Exception as error:
            # As in `load`: an exception of a plugin is its report.
            reason = f"its hook npu_plugin_reports failed: {type(error).__name__}: {error}"
            reports.append(PluginReport(report.name, report.distribution, reason))
    return reports


def _reports_of(manager: pluggy.PluginManager, name: str) -> list[PluginReport]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reports say what was refused
        answers = call_hook(manager, manager.get_plugin(name), "npu_plugin_reports")
    reports = [report for answer in answers for report in answer]
    for report in reports:
        if not isinstance(report, PluginReport):
            raise PluginError(
                f"npu_plugin_reports returns {report!r}",
                fix="return a list of npu_ir.plugins.plugin_manager.PluginReport",
            )
    return reports


def registry() -> OpRegistry:
    """Return the process's registry of conversions and executors."""
    return get_plugins().registry


def load(points: Iterable[EntryPoint], disabled: set[str]) -> Plugins:
    """Load plugins from entry points, ours first, in the order of their names; warn of each refusal."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    plugins = Plugins(manager, OpRegistry(), [], {}, {}, {}, {})
    for point in sorted(points, key=lambda point: (not _is_own(point), point.name, point.value)):
        dist = point.dist
        distribution = "unknown distribution" if dist is None else f"{dist.name} {dist.version}"
        report = PluginReport(point.name, distribution)
        plugins.reports.append(report)
        if point.name in disabled:
            report.refused = f"disabled by {DISABLE_VARIABLE}"
            continue
        try:
            _load_one(plugins, point, report)
        except (Exception, SystemExit) as error:
            # An exception of a plugin is its report: one broken plugin must not stop the others.
            report.refused = f"{type(error).__name__}: {error}"
            report.offers = {}
            warnings.warn(
                f"plugin {point.name!r} ({report.distribution}) was refused: {report.refused}",
                PluginWarning,
                stacklevel=2,
            )
    return plugins


def _is_own(point: EntryPoint) -> bool:
    """Return whether a plugin is of this project: these load first, so that no other claims their names."""
    return point.dist is not None and point.dist.name in OWN


def _load_one(plugins: Plugins, point: EntryPoint, report: PluginReport) -> None:
    namesake = next((other for other in plugins.reports[:-1] if other.name == point.name), None)
    if namesake is not None:
        raise PluginError(
            f"two plugins are called {point.name!r}: from {namesake.distribution} and {report.distribution}"
        )
    plugin = point.load()
    registered_name = plugins.manager.get_name(plugin)
    if registered_name is not None:
        raise PluginError(
            f"the plugins {registered_name!r} and {point.name!r} are the same object: {point.value}"
        )
    origin = f"{point.name} ({report.distribution})"
    try:
        plugins.manager.register(plugin, name=point.name)
        _require_known_hooks(plugins.manager, plugin, origin)
        _collect(plugins, plugin, origin, report)
    except (Exception, SystemExit):
        if plugins.manager.is_registered(plugin):  # pluggy 1.5 registers some hooks before it raises
            plugins.manager.unregister(plugin)
        raise


def _require_known_hooks(manager: pluggy.PluginManager, plugin: object, origin: str) -> None:
    for caller in manager.get_hookcallers(plugin) or ():
        if not caller.has_spec():
            known = [name for name in vars(hookspecs) if name.startswith("npu_")]
            raise PluginError(
                f"{origin} implements an unknown hook {caller.name!r}", fix=f"known hooks: {', '.join(known)}"
            )


def _collect(plugins: Plugins, plugin: object, origin: str, report: PluginReport) -> None:
    """Call the hooks of a plugin, and accept everything that it offers, or nothing."""
    ops = OpRegistry(origin)

    def answers(hook: str, **arguments: Any) -> list[Any]:
        return call_hook(plugins.manager, plugin, hook, **arguments)

    answers("npu_register_ops", registry=ops)
    items = {
        kind: _items_by_name(answers(f"npu_{kind}"), kind, plugins.reports, origin)
        for kind in ("passes", "pipelines", "backends")
    }
    items["runners"] = _runners_by_name(answers("npu_runners"), plugins.reports, origin)
    plugins.registry.merge(ops)
    for kind, named in items.items():
        getattr(plugins, kind).update(named)
    tables = {kind: ops.table(kind) for kind in ("conversion", "execution")}
    report.offers = {kind: sorted(names) for kind, names in {**tables, **items}.items() if names}


def call_hook(manager: pluggy.PluginManager, plugin: object, hook: str, **arguments: Any) -> list[Any]:
    """Return the result of a hook of one plugin, as a list of at most one."""
    others = [other for other in manager.get_plugins() if other is not plugin]
    return manager.subset_hook_caller(hook, others)(**arguments)  # type: ignore[no-any-return]


def _items_by_name(
    answers: list[list[Any]], kind: str, reports: list[PluginReport], origin: str
) -> dict[str, Any]:
    """Return the items that a plugin offers, by names that no other plugin has claimed."""
    items = [item for answer in answers for item in answer]
    for item in items:
        if not isinstance(getattr(item, "name", None), str):
            raise PluginError(f"{origin} offers {kind} without a name: {item!r}")
    return _require_unclaimed([(item.name, item) for item in items], kind, _owners(kind, reports), origin)


def _runners_by_name(answers: list[Any], reports: list[PluginReport], origin: str) -> dict[str, Any]:
    """Return the runners that a plugin offers, by names that no other plugin has claimed."""
    for answer in answers:
        if not isinstance(answer, dict) or not all(map(callable, answer.values())):
            raise PluginError(f"{origin} offers runners that are not a dict of functions by name: {answer!r}")
    items = [item for answer in answers for item in answer.items()]
    owners = {INTERPRETER: "npu-ir", **_owners("runners", reports)}
    return _require_unclaimed(items, "runners", owners, origin)


def _owners(kind: str, reports: list[PluginReport]) -> dict[str, str]:
    return {
        name: f"{report.name} ({report.distribution})"
        for report in reports
        for name in report.offers.get(kind, ())
    }


def _require_unclaimed(
    items: list[tuple[str, Any]], kind: str, owners: dict[str, str], origin: str
) -> dict[str, Any]:
    """Return the items by name; every name must be unclaimed."""
    named: dict[str, Any] = {}
    for name, item in items:
        if name in owners:
            raise RegistryError(f"{origin} offers {kind} called {name!r}, and so does {owners[name]}")
        owners[name] = origin
        named[name] = item
    return named


def add_commands(commands: Any) -> None:
    """Add the ``npu`` subcommands of every plugin, for each all or none; the reports say which were refused.

    Args:
        commands: The `npu_ir.cli.parser.Commands` to add them to.
    """
    plugins = get_plugins()
    for report in (report for report in plugins.reports if report.refused is None):
        plugin = plugins.manager.get_plugin(report.name)
        commands.begin(f"{report.name} ({report.distribution})")
        try:
            call_hook(plugins.manager, plugin, "npu_add_commands", commands=commands)
        except Exception as error:
            # As in `load`: the command line must start despite a broken plugin.
            commands.withdraw()
            report.commands_refused = f"{type(error).__name__}: {error}"
        if added := commands.added_commands():
            report.offers["commands"] = sorted(added)
