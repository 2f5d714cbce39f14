"""Every hook a plugin may implement. A plugin is a module or object in the entry-point group ``npu``.

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
    """Return the passes this plugin offers: classes derived from ``npu_passes.Pass``, each with a unique ``name``."""


@hookspec
def npu_pipelines() -> list[Any]:  # type: ignore[empty-body]
    """Return the named pipelines this plugin offers: ``npu_passes.Pipeline``, each with a unique ``name``."""


@hookspec
def npu_backends() -> list[Any]:  # type: ignore[empty-body]
    """Return the backends this plugin offers: instances of `npu_ir.plugins.backend.Backend`, each with a unique ``name``."""


@hookspec
def npu_runners() -> dict[str, Any]:  # type: ignore[empty-body]
    """Return what runs graphs, by unique name: functions ``make(graph, weights, constants)`` of an `npu_ir.interpreter.runners.Runner`."""


@hookspec
def npu_doctor() -> list[Any]:  # type: ignore[empty-body]
    """Return what ``npu doctor`` is to say of this plugin: a list of `npu_ir.cli.doctor.Check`."""


@hookspec
def npu_plugin_reports() -> list[Any]:  # type: ignore[empty-body]
    """Return what became of the plugins that this plugin finds in an entry-point group of its own: `npu_ir.plugins.plugin_manager.PluginReport`."""


@hookspec
def npu_add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``npu`` subcommands: ``commands.add_parser(name).set_defaults(run=function)``."""
