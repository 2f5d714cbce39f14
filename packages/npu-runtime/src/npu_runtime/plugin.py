"""The plugin of npu-runtime itself, loaded through the same entry point as any other."""

from __future__ import annotations

from typing import Any

from npu_ir.plugins.hookspecs import hookimpl


@hookimpl
def npu_backends() -> list[Any]:
    from npu_runtime.executor.aten_backend import AtenBackend

    return [AtenBackend()]


@hookimpl
def npu_add_commands(commands: Any) -> None:
    from npu_runtime.cli import bench, cache, capture_step, compare, compile, explain, generate, profile, tune

    for command in (compare, explain, profile, bench, tune, compile, generate, capture_step, cache):
        command.add_to(commands)


@hookimpl
def npu_runners() -> dict[str, Any]:
    def executor(graph: Any, weights: Any, constants: Any, backends: Any = ("aten",)) -> Any:
        from npu_runtime.cli.saved_graph import select_backends
        from npu_runtime.executor.executor import IRExecutor

        # Without passes: a single run gains nothing from them, and it is the graph itself that is verified.
        return IRExecutor(graph, weights, constants=constants, backend=select_backends(backends), passes=None)

    return {"executor": executor}
