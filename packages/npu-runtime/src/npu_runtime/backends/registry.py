"""Lookup of backends, which plugins provide, by name."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from npu_ir.core.user_code import did_you_mean
from npu_ir.errors import BackendError
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.backend import Backend
from npu_ir.plugins.distributions import install_hint

AUTO = "auto"  # in place of the name of a backend: whatever takes the least time


def find_backend(name: str) -> Backend:
    """Return a backend by name.

    Raises:
        BackendError: There is none of this name.
    """
    backends: Mapping[str, Backend] = plugin_manager.get_plugins().backends
    if name not in backends:
        raise BackendError(
            f"there is no backend {name!r}{did_you_mean(name, backends)}",
            fix=install_hint("backends", name)
            or f"there are {', '.join(sorted(backends))}; `npu plugins` shows what is installed",
        )
    return backends[name]


def named_backends(given: str | Backend | Sequence[str | Backend]) -> list[Backend]:
    """Return the requested backends, usable here or not, in order of preference; ``aten`` is always the last.

    ``"auto"`` stands for all that states costs.

    Raises:
        BackendError: There is no such backend, or an item is not a backend.
    """
    if given == AUTO:
        given = automatic_backends()
    named = [given] if isinstance(given, (str, Backend)) or not isinstance(given, Iterable) else list(given)
    if AUTO in named:
        raise BackendError(
            f"{AUTO!r} stands for all backends, and is one of several here",
            fix=f"backend={AUTO!r}, without others",
        )
    backends = [find_backend(item) if isinstance(item, str) else item for item in named]
    for item in backends:
        if not isinstance(item, Backend):
            raise BackendError(
                f"{item!r} is not a backend", fix="give a name or an instance of npu_runtime.Backend"
            )
    aten = find_backend("aten")
    return [*(item for item in backends if item.name != aten.name), aten]


def automatic_backends() -> list[Backend]:
    """Return what ``backend="auto"`` considers besides ATen, usable here or not.

    Raises:
        BackendError: A backend does not say properly what competes for it.
    """
    found = []
    for backend in plugin_manager.get_plugins().backends.values():
        chosen: Any = backend.by_cost()
        if chosen is None:
            continue
        if not isinstance(chosen, Backend) or chosen.name != backend.name:
            raise BackendError(
                f"the backend {backend.name!r} answers {reprlib.repr(chosen)}"
                " where it should say what competes for it",
                where=provider_text(backend),
                fix="by_cost() returns None, or a backend of the same name",
            )
        found.append(chosen)
    return found


def usable_backends(given: str | Backend | Sequence[str | Backend]) -> list[Backend]:
    """Return the requested backends, all usable here, in order of preference; ``aten`` is always the last.

    Raises:
        BackendError: There is no such backend, it cannot run here, or an item is not a backend.
    """
    backends = named_backends(given)
    for item in backends:
        if not item.devices():
            raise BackendError(f"the backend {item.name!r} cannot run here: {item.absence()}")
    return backends


def distribution_of(kind: str, name: str) -> str:
    """Return the distribution, with version, of the plugin that provides something; "not installed" if none.

    Args:
        kind: "backends" or "passes".
        name: Its name.
    """
    reports = plugin_manager.get_plugins().reports
    return next((item.distribution for item in reports if name in item.offers.get(kind, ())), "not installed")


def provider_text(backend: Backend) -> str:
    """Return the plugin that provides a backend, or the class of one that was given as an instance."""
    plugins = plugin_manager.get_plugins()
    if plugins.backends.get(backend.name) is backend:
        for report in plugins.reports:
            if backend.name in report.offers.get("backends", ()):
                return f"plugin {report.name} ({report.distribution})"
    return f"class {type(backend).__module__}.{type(backend).__qualname__}"
