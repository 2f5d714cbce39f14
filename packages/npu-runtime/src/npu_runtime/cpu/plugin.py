"""Plugin of the CPU passes, with an entry point of its own: block ``npu-runtime-cpu`` to disable them."""

from __future__ import annotations

from typing import Any

from npu_ir.plugins.hookspecs import hookimpl


@hookimpl
def npu_passes() -> list[Any]:
    from npu_runtime.cpu.passes import PASSES

    return list(PASSES)


@hookimpl
def npu_pipelines() -> list[Any]:
    from npu_runtime.cpu.passes import HOST, HOST_TRAINING, PIPELINE, TRAINING

    return [PIPELINE, TRAINING, HOST, HOST_TRAINING]
