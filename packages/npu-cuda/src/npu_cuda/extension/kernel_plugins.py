"""Kernels of installed packages, found by the entry points of the group ``npu_cuda.kernels``.

Each names a function without arguments. It returns the path of a shared library (npu_cuda/kernel.h), or
registers kernels in Python and returns None. ``NPU_DISABLE_PLUGINS=name,name`` leaves some out.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError

GROUP = "npu_cuda.kernels"
DISABLE_VARIABLE = "NPU_DISABLE_PLUGINS"


class KernelPluginWarning(UserWarning):
    """A refused plugin; the message names it and the reason."""


@dataclass(slots=True)
class KernelPlugin:
    """The outcome of loading one plugin.

    Attributes:
        name: Its entry-point name.
        distribution: The distribution it comes from, with version.
        path: The shared library; None if its kernels are in Python.
        ops: The ops it brought, by name.
        kernels: The kernels it brought, by id.
        refused: The reason it is not used; None if it is.
    """

    name: str
    distribution: str
    path: str | None = None
    ops: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    refused: str | None = None


_lock = threading.RLock()
_loading = threading.Event()
_loaded: dict[str, list[KernelPlugin]] = {}  # by group, of which there is one


def load_plugins(find: Callable[..., Iterable[EntryPoint]] = entry_points) -> list[KernelPlugin]:
    """Load the kernels of installed packages on the first call, and return the outcome of each plugin.

    A plugin that cannot be loaded is refused with a warning; the others are still loaded.

    Args:
        find: Returns the installed entry points of a ``group``.

    Raises:
        InvalidArgumentError: A plugin calls it while being loaded itself.
    """
    with _lock:
        if GROUP not in _loaded:
            _loaded[GROUP] = _load_installed(find)
        return list(_loaded[GROUP])


def _load_installed(find: Callable[..., Iterable[EntryPoint]]) -> list[KernelPlugin]:
    if _loading.is_set():
        raise InvalidArgumentError("load_plugins: called by a plugin while plugins are being loaded")
    disabled = {name.strip() for name in os.environ.get(DISABLE_VARIABLE, "").split(",")} - {""}
    _loading.set()
    try:
        return load_entry_points(find(group=GROUP), disabled)
    finally:
        _loading.clear()


def load_entry_points(points: Iterable[EntryPoint], disabled: set[str]) -> list[KernelPlugin]:
    """Load plugins from entry points in the order of their names; warn for each that is refused."""
    plugins: list[KernelPlugin] = []
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        plugin = KernelPlugin(point.name, _distribution_name(point))
        twin = next((other for other in plugins if other.name == plugin.name), None)
        plugins.append(plugin)
        if point.name in disabled:
            plugin.refused = f"disabled by {DISABLE_VARIABLE}"
            continue
        try:
            if twin is not None:
                raise InvalidArgumentError(
                    f"there is already a plugin of this name, from {twin.distribution}"
                )
            _load_one(point, plugin)
        except (Exception, SystemExit) as error:
            # Any error of a plugin is reported with it: one broken plugin must not stop the others.
            plugin.refused = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"the kernels of {plugin.name} ({plugin.distribution}) were refused: {plugin.refused}",
                KernelPluginWarning,
                stacklevel=2,
            )
    return plugins


def _distribution_name(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "unknown distribution"


def _load_one(point: EntryPoint, plugin: KernelPlugin) -> None:
    ops, kernels = set(_C.kinds()), _kernel_ids()
    try:
        path = point.load()()
        if path is not None:
            plugin.path = os.fspath(path)
            _C.load_library(plugin.path)
    except (Exception, SystemExit):
        for kernel_id in _kernel_ids() - kernels:  # all kernels of a plugin or none
            _C.remove_kernel(kernel_id)
        raise
    plugin.ops = sorted(set(_C.kinds()) - ops)
    plugin.kernels = sorted(_kernel_ids() - kernels)
    if not plugin.ops and not plugin.kernels:
        raise InvalidArgumentError(f"{point.value} returned no path, and registered neither op nor kernel")


def _kernel_ids() -> set[str]:
    return {kernel["id"] for kernel in _C.kernels()}
