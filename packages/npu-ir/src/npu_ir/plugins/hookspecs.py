"""Hook specifications for plugins. A plugin is a module or object in the entry-point group ``npu``.

```toml
[project.entry-points.npu]
my-plugin = "my_package.plugin"
```
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from npu_ir.plugins.op_registry import OpRegistry

hookspec = pluggy.HookspecMarker("npu")
hookimpl = pluggy.HookimplMarker("npu")


@hookspec
def npu_register_ops(registry: OpRegistry) -> None:
    """Register executors and conversions: ``registry.register_executor(op_type)(function)``."""


@hookspec
def npu_passes() -> list[Any]:  # type: ignore[empty-body]
    """Return the passes of this plugin: subclasses of ``npu_passes.Pass``, each with a unique ``name``."""


@hookspec
def npu_pipelines() -> list[Any]:  # type: ignore[empty-body]
    """Return the pipelines of this plugin: ``npu_passes.Pipeline``, each with a unique ``name``."""


@hookspec
def npu_backends() -> list[Any]:  # type: ignore[empty-body]
    """Return the backends of this plugin, each an `npu_ir.backend.Backend` with a unique ``name``."""


@hookspec
def npu_runners() -> dict[str, Any]:  # type: ignore[empty-body]
    """Return the runners of this plugin, by unique name.

    Each is a function ``make(graph, weights, constants)`` that returns an `npu_ir.hookspecs.Runner`.
    """


@hookspec
def npu_doctor() -> list[Any]:  # type: ignore[empty-body]
    """Return the checks of this plugin for ``npu doctor``: a list of `npu_ir.hookspecs.Check`."""


@hookspec
def npu_plugin_reports() -> list[Any]:  # type: ignore[empty-body]
    """Return a report on each plugin that this plugin loads from an entry-point group of its own.

    A list of `npu_ir.hookspecs.PluginReport`.
    """


@hookspec
def npu_add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``npu`` subcommands: ``commands.add_parser(name).set_defaults(run=function)``."""
