"""Built-in plugin of npu-passes, loaded through the same entry point as any other plugin."""

from __future__ import annotations

from typing import Any

from npu_ir.plugins.hookspecs import hookimpl
from npu_passes.core.registry import PIPELINES
from npu_passes.library import PASSES


@hookimpl
def npu_passes() -> list[Any]:
    return list(PASSES)


@hookimpl
def npu_pipelines() -> list[Any]:
    return list(PIPELINES)


@hookimpl
def npu_add_commands(commands: Any) -> None:
    from npu_passes.cli import new_plugin, opt, passes

    for command in (opt, passes, new_plugin):
        command.add_to(commands)


@hookimpl
def npu_doctor() -> list[Any]:
    from npu_passes.cli.diagnosis import all_checks

    return all_checks()


@hookimpl
def npu_register_ops() -> None:
    import npu_passes.ops.dynamic_quantized
    import npu_passes.ops.folded
    import npu_passes.ops.fused
    import npu_passes.ops.packed
    import npu_passes.ops.quantized
    import npu_passes.ops.recurrent
    import npu_passes.ops.rotary
    import npu_passes.ops.training
    import npu_passes.ops.winograd  # noqa: F401 - they register them with PyTorch
