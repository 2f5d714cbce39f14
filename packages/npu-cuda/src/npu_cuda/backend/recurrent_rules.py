"""Rules of recurrent layers, whose inputs are projected and whose weights are packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu_cuda.backend.op_builder import Lowered, OpBuilder
from npu_cuda.backend.pointwise_rules import Pack
from npu_ir import OpNode

_TENSORS = ("projected", "panels", "h", "c", "bias")
_CELLS: Mapping[object, int] = {"tanh": 0, "relu": 1, "lstm": 2, "gru": 3}


def _lower_layer(node: OpNode, pack: Pack) -> Lowered:
    build = OpBuilder(node, pack, *_TENSORS)
    cell = _CELLS[node.attrs.get("cell", "lstm")]
    attrs = {
        "cell": cell,
        "reverse": int(bool(node.attrs["reverse"])),
        "has_bias": int("bias" in build.tensors),
    }
    return build.add("Recurrent", build.present(*_TENSORS), node.outputs, "RCUR", **attrs)


RECURRENT_RULES: Mapping[str, tuple[Any, ...]] = {
    "npu.lstm_layer.default": (_lower_layer,),
    "npu.rnn_layer.default": (_lower_layer,),
}
