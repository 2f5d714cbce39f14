"""The plugin of npu-cuda for npu-ir: backends ``host`` and ``cuda``, kernel plugin reports, checks."""

from __future__ import annotations

from typing import Any

from npu_ir.plugins.hookspecs import hookimpl


@hookimpl
def npu_backends() -> list[Any]:
    from npu_cuda.backend import CudaBackend, HostBackend

    return [HostBackend(), CudaBackend()]


@hookimpl
def npu_plugin_reports() -> list[Any]:
    from npu_cuda.extension.kernel_plugins import GROUP, load_plugins
    from npu_ir.plugins.plugin_manager import PluginReport, installed_points

    return [
        PluginReport(
            plugin.name,
            plugin.distribution,
            plugin.refused,
            offers={
                kind: names for kind, names in (("ops", plugin.ops), ("kernels", plugin.kernels)) if names
            },
            group=GROUP,
        )
        for plugin in load_plugins(installed_points)
    ]


@hookimpl
def npu_doctor() -> list[Any]:
    from npu_cuda.doctor import all_checks

    return all_checks()
