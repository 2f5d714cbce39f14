"""Diagnosis of plugins: whether each loads, and whether its hooks and all that it offers are as specified."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from npu_ir.cli.doctor import Check, State, hook_checks, list_devices, run_check
from npu_ir.plugins import hookspecs, plugin_manager
from npu_ir.plugins.backend import Backend
from npu_ir.plugins.distributions import installed_version
from npu_ir.plugins.plugin_manager import PluginReport

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("npu_"))
# The hooks that return what a plugin offers, and its kind.
_OFFERING = {f"npu_{kind}": kind for kind in ("passes", "pipelines", "backends", "runners")}
# The arguments that functions of these tables are called with.
_CALLED_WITH = {"execution": ("inputs", "attrs"), "conversion": ("converter", "node")}
# The remedy for the error that loading a plugin raised, by what its text matches.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"PluginValidationError: .*", "give the hook the arguments of its specification: {hook}"),
    (
        r"RegistryError: .*",
        "rename it, with the name of the distribution in front, or leave one plugin out: {disable}",
    ),
    (
        r"AttributeError: module .* has no attribute .*",
        "correct the entry point in pyproject.toml, or the name in the module, and install again",
    ),
    (r"(SyntaxError|IndentationError|NameError|TypeError)\b.*", "correct the module: python -m {module}"),
)


def plugin_checks() -> list[Check]:
    """Check every installed plugin; never raises for those that are broken. The topic is the plugin."""
    reports = plugin_manager.all_reports()
    checks = [check for report in reports for check in _checks_of(report)]
    names = [report.name for report in reports]
    checks += [check for check in hook_checks() if check.topic in names]
    return sorted(checks, key=lambda check: names.index(check.topic))


def _checks_of(report: PluginReport) -> Iterator[Check]:
    yield _loading_check(report)
    yield _version_check(report)
    if report.refused is not None or report.group != plugin_manager.GROUP:
        return
    yield from _hook_mark_checks(report)
    yield from _empty_hook_checks(report)
    yield from _function_checks(report)
    yield from _backend_checks(report)


def _loading_check(report: PluginReport) -> Check:
    if report.refused is not None:
        is_disabled = plugin_manager.DISABLE_VARIABLE in report.refused
        text, _, fix = report.refused.partition("\n  fix: ")
        return Check(
            report.name,
            "loading",
            State.ABSENT if is_disabled else State.BROKEN,
            text,
            "" if is_disabled else fix or _remedy(report),
        )
    if report.commands_refused is not None:
        text, _, fix = report.commands_refused.partition("\n  fix: ")
        fix = fix or "correct its hook npu_add_commands"
        return Check(report.name, "loading", State.BROKEN, f"its commands are refused: {text}", fix)
    offers = [f"{kind}: {len(names)}" for kind, names in report.offers.items()]
    return Check(report.name, "loading", State.OK, f"{report.distribution}; {', '.join(offers) or 'loaded'}")


def _remedy(report: PluginReport) -> str:
    """Return what to do about a plugin that was refused, by the error of its loading."""
    reason = str(report.refused)
    disable = f"{plugin_manager.DISABLE_VARIABLE}={report.name}"
    missing = re.search(r"No module named '([\w.]+)'", reason)
    if missing is not None:
        return _missing_module_fix(report, missing[1])
    for pattern, fix in _REMEDIES:
        if re.match(pattern, reason, re.DOTALL):
            module = _entry_value(report).split(":", maxsplit=1)[0]
            return fix.format(hook=_specification(reason), disable=disable, module=module)
    return f"correct {_entry_value(report)}, install {report.distribution} again, or leave it out: {disable}"


def _specification(reason: str) -> str:
    """Return the specification of the hook that an error of pluggy names; the names of all otherwise."""
    named = re.search(r"for hook '(\w+)'", reason)
    if named is None or named[1] not in HOOKS:
        return ", ".join(HOOKS)
    return f"{named[1]}({', '.join(inspect.signature(getattr(hookspecs, named[1])).parameters)})"


def _missing_module_fix(report: PluginReport, module: str) -> str:
    value, package = _entry_value(report), module.split(".", maxsplit=1)[0]
    if package == value.split(".", maxsplit=1)[0]:
        return (
            f'the entry point is "{value}": correct [project.entry-points.{report.group}] in pyproject.toml, '
            "or the name of the module, and install again"
        )
    return f"python -m pip install {package}, and name it in dependencies of the plugin"


def _entry_value(report: PluginReport) -> str:
    points = metadata.entry_points(group=report.group, name=report.name)
    return next((point.value for point in points), "its entry point")


def _version_check(report: PluginReport) -> Check:
    """Compare what a distribution requires with what is installed."""
    name = report.distribution.split(" ")[0]
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return Check(report.name, "versions", State.ABSENT, "not compared", "python -m pip install packaging")
    try:
        required = [Requirement(text) for text in metadata.requires(name) or ()]
    except metadata.PackageNotFoundError:
        return Check(report.name, "versions", State.ABSENT, f"{name} has no metadata to compare")
    unmet = []
    stated = [item for item in required if item.marker is None or item.marker.evaluate({"extra": ""})]
    for item in stated:
        version = installed_version(item.name)
        is_unknown = version is not None and not version[0].isdigit()
        if version is None:
            unmet.append(f"{item.name}, which is not installed")
        elif not is_unknown and not item.specifier.contains(version, prereleases=True):
            unmet.append(f"{item.name} {item.specifier}, and {version} is installed")
    if unmet:
        fix = f"python -m pip install --upgrade {name}, or the versions that it needs: python -m pip check"
        return Check(report.name, "versions", State.BROKEN, f"{name} needs {'; '.join(unmet)}", fix)
    texts = [str(item) for item in stated]
    return Check(report.name, "versions", State.OK, f"needs {', '.join(texts)}" if texts else "needs nothing")


def _plugin_of(report: PluginReport) -> Any:
    return plugin_manager.get_plugins().manager.get_plugin(report.name)


def _hook_mark_checks(report: PluginReport) -> Iterator[Check]:
    """Yield a check for each function that has the name of a hook, but is not marked as one."""
    plugin = _plugin_of(report)
    marked = []
    for name in HOOKS:
        function = getattr(plugin, name, None)
        if function is None:
            continue
        if hasattr(function, "npu_impl"):
            marked.append(name)
        elif inspect.isfunction(function):
            text = f"{name} is not marked as a hook, so it is never called"
            yield Check(
                report.name, name, State.BROKEN, text, "put @hookimpl of npu_ir.hookspecs in front of it"
            )
    yield Check(report.name, "hooks", State.OK, ", ".join(marked) or "none")


def _empty_hook_checks(report: PluginReport) -> Iterator[Check]:
    """Yield a check for each hook that returned nothing."""
    plugin = _plugin_of(report)
    for hook, kind in _OFFERING.items():
        if hasattr(getattr(plugin, hook, None), "npu_impl") and not report.offers.get(kind):
            yield Check(
                report.name, hook, State.BROKEN, f"it returns no {kind}", f"return them, or remove {hook}"
            )


def _function_checks(report: PluginReport) -> Iterator[Check]:
    """Yield a check for each executor and conversion that cannot be called as it will be."""
    registry = plugin_manager.registry()
    for table, arguments in _CALLED_WITH.items():
        for op_type in report.offers.get(table, ()):
            function = registry.table(table)[op_type].function
            if (problem := _call_problem(function, arguments)) is not None:
                fix = f"it is called as function({', '.join(arguments)})"
                yield Check(report.name, f"{table} of {op_type}", State.BROKEN, problem, fix)


def _call_problem(function: Callable[..., Any], arguments: tuple[str, ...]) -> str | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # written in C, without a signature
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        return f"{name}{signature} does not take ({', '.join(arguments)})"
    return None


def _backend_checks(report: PluginReport) -> Iterator[Check]:
    for name in report.offers.get("backends", ()):
        backend = plugin_manager.get_plugins().backends[name]
        if isinstance(backend, Backend):
            look = _device_look(report.name, backend)
            fix = f"correct devices() and absence() of {type(backend).__name__}"
            yield run_check(report.name, f"backend {name}", look, fix)
            continue
        is_class = isinstance(backend, type)
        text = f"{backend!r} is a class" if is_class else f"{backend!r} is not a backend"
        fix = (
            f"return an instance of it from npu_backends: [{backend.__name__}()]"
            if is_class
            else ("derive its class from npu_ir.backend.Backend")
        )
        yield Check(report.name, f"backend {name}", State.BROKEN, text, fix)


def _device_look(plugin: str, backend: Backend) -> Callable[[], Check | str]:
    def look() -> Check | str:
        found = list_devices(backend.name, backend)
        if isinstance(found, str):
            return found
        return Check(plugin, f"backend {backend.name}", found.state, found.text)

    return look
