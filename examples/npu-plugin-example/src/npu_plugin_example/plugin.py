"""Hooks of this plugin; the entry point in pyproject.toml names this module."""

from __future__ import annotations

from typing import Any

from npu_ir import Converter, Value
from npu_ir.hookspecs import OpRegistry, hookimpl
from npu_passes import Pass, Pipeline

from npu_plugin_example import ops
from npu_plugin_example.fuse_add_relu import FuseAddRelu

__all__ = ["npu_passes", "npu_pipelines", "npu_register_ops", "ops"]  # ops registers with PyTorch


@hookimpl
def npu_passes() -> list[type[Pass]]:
    return [FuseAddRelu]


@hookimpl
def npu_pipelines() -> list[Pipeline]:
    passes = "canonicalize,elim-identity,cse,npu-plugin-example-fuse-add-relu,dead-code"
    return [Pipeline("npu-plugin-example", passes, "Exact clean-up, and fused sums.")]


@hookimpl
def npu_register_ops(registry: OpRegistry) -> None:
    """Register the conversion and the execution of `rescale_bits`; `add_relu` needs neither."""
    registry.register_conversion("npu_plugin_example.rescale_bits.default")(convert_rescale)
    registry.register_executor("npu_plugin_example.rescale")(execute_rescale)


def convert_rescale(converter: Converter, node: Any) -> Value:
    """Convert ``rescale_bits(x, bits)`` to a node with the factor that hardware expects."""
    x, bits = converter.value(node.args)
    rescale = converter.insert(node, "npu_plugin_example.rescale", [x], {"factor": 2.0**-bits})
    return rescale.outputs[0]


def execute_rescale(inputs: list[Any], attrs: dict[str, Any]) -> list[Any]:
    return [inputs[0] * attrs["factor"]]
