"""Costs of nodes on the native backends, beside those of ATen: by them ``backend="auto"`` chooses.

They are on the scale of the estimates of the backend ``aten``, which are those of one core with data in the
cache. What counts is the ratio of both, which is measured where it is not about 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from npu_cuda import _C
from npu_cuda.backend.op_builder import number
from npu_cuda.backend.selection import kind_of, pointwise_instructions, specs_of
from npu_cuda.backend.tensor_views import TensorView, views_of
from npu_cuda.backend.view_rules import VIEW
from npu_ir import OpNode
from npu_ir.core.storage import span_bytes
from npu_ir.plugins.backend import BackendOp

# Seconds that a partition adds to a call: a Python function, results, bound memory. Less on the host,
# where one call of C++ does most of that.
CALL_OVERHEAD, CALL_OVERHEAD_ON_CUDA = 3e-6, 5e-6
# Seconds of an op in a program beside its data, and the bytes and operations (float32) per second.
_OP, _BYTES, _FLOPS = 0.15e-6, 2e10, 1e11
# Elements of a matrix that a product copies into panels, per second: 1024 x 1024 took 30 to 120 us.
_PACKED = 8e9
# Time relative to ATen's. Most ops on 64k to 1M elements of float32 take 0.3 to 0.9 of it.
_USUAL = 0.8
_RELATIVE = {"GroupNormFwd": 1.3, "GroupNormBwd": 1.3, "MaxPoolBwd": 5.0}
# Means of windows are faster than ATen's where channels come first; others and interpolation are not.
_RESAMPLING, _AS_SLOW = "Resample", 1.3
# Convolutions by weights that are not packed are written for channels-last.
_CONVOLUTIONS = ("Conv", "ConvWeightGradient")
_CHANNELS_LAST, _CHANNELS_FIRST = 1.2, 3.0
# Of volumes ATen's are slow: 16 to 32 channels of 24 x 24 x 24 by 3 x 3 x 3 take 8.6 ms, 2.2 ms here. Each
# element whose channels are not side by side takes some time more.
_VOLUMES, _SPREAD = 0.6, 0.5e-9
# Products of floats other than float32: ATen's use instructions that multiply tiles.
_PRODUCT, _OTHER_PRODUCTS = "Gemm", 3.0
# Pointwise ops compute integers in 8 bytes: ATen's have vectors of each dtype. Truth values are left out:
# masks are a small part of a model, and to leave a native program for them costs more.
_NARROW_INTEGERS, _NARROW = frozenset({"uint8", "int8", "int16", "int32"}), 5.0
# Functions of float64 are those of the C library, for one number after another.
_FUNCTIONS = frozenset({"cos", "erf", "exp", "expm1", "log", "log1p", "pow", "sigmoid", "sin", "tanh"})
_OF_FLOAT64 = 3.0
# Over an axis whose elements are not neighbours.
_SOFTMAX = ("SoftmaxBwd", "LogSoftmaxBwd")
_COLUMNS = 3.0
# On an H200, of tensors larger than its cache; a pointwise op may become part of a chain.
_USUAL_ON_CUDA = 0.8
_RELATIVE_ON_CUDA = {
    "BatchNormFwd": 2.0, "GroupNormFwd": 2.3, "GroupNormBwd": 2.3, "MaxPool": 1.0, "MaxPoolBwd": 1.3,
    "Resample": 3.0, "IndexSelect": 1.5, "EmbeddingBwd": 3.0, "Gather": 1.5, "Scatter": 27.0, "IndexPut": 3.0,
    "Sort": 3.6, "Argmax": 1.2, "Argmin": 1.2, "Cat": 2.3,
}  # fmt: skip
# Ops that exist for these kernels: ATen computes them, but slowly.
_OWN_OPS = (
    *("npu.packed_", "npu.winograd_conv2d.", "npu.quantized_linear.", "npu.dynamic_quantized_linear."),
    *("npu.lstm_layer.", "npu.rnn_layer."),
)


def seconds_of(node: OpNode, ops: Sequence[BackendOp]) -> float | None:
    """Return the seconds of a node in a program, which are mostly those of its slowest op.

    None for a node that is to run here at any cost.

    Args:
        node: A supported node.
        ops: Those that compute it, with their kernels.
    """
    if node.op_type.startswith(_OWN_OPS):
        return None
    traffic, kernels = _traffic(node), [op for op in ops if op.kind != VIEW]
    pairs = [(op, views_of(op)) for op in kernels]
    work = [
        max(traffic / _BYTES, _flops(op, views) / _FLOPS) * _relative_time(op, views, node)
        for op, views in pairs
    ]
    copies = sum(_copy_seconds(op, views) for op, views in pairs)
    return _OP * len(kernels) + max(work, default=0.0) + copies


def seconds_on_cuda(node: OpNode, ops: Sequence[BackendOp]) -> float:
    """Return the seconds of a node on a GPU, on the same scale: what counts is the ratio to ATen's."""
    kernels = [op for op in ops if op.kind != VIEW]
    relative = (_RELATIVE_ON_CUDA.get(op.kind, _USUAL_ON_CUDA) for op in kernels)
    return _OP * len(kernels) + _traffic(node) / _BYTES * max(relative, default=0.0)


def _traffic(node: OpNode) -> int:
    return sum(span_bytes(value.type) for value in dict.fromkeys((*node.inputs, *node.outputs)))


def _copy_seconds(op: BackendOp, views: Sequence[TensorView]) -> float:
    """Return the seconds in which an op lays out its operands.

    A product copies its right matrix where that is read more than once, a convolution of volumes its images.
    """
    if _is_of_volumes(op, views):
        images = (view for view in (views[0], views[-1]) if view.strides[1] != 1)
        return _SPREAD * sum(math.prod(image.shape) for image in images)
    if op.kind != _PRODUCT:
        return 0.0
    left, right, *_ = views
    return math.prod(right.shape) / _PACKED if math.prod(left.shape[:-1]) > 1 else 0.0


def _is_of_volumes(op: BackendOp, views: Sequence[TensorView]) -> bool:
    return op.kind in _CONVOLUTIONS and len(views[0].shape) == 5


def _flops(op: BackendOp, views: Sequence[TensorView]) -> float:
    specs = specs_of(views, 0)
    count = len(op.inputs)
    kind = kind_of(op.kind)
    return _C.select(kind, specs[:count], specs[count:], op.schema_id, op.attrs, device="host").flops


def _relative_time(op: BackendOp, views: Sequence[TensorView], node: OpNode) -> float:
    strides = views[0].strides
    if op.kind == _PRODUCT and views[0].dtype != "float32":
        return _OTHER_PRODUCTS
    if _is_of_volumes(op, views):
        return _VOLUMES
    if op.kind in _CONVOLUTIONS:
        return _CHANNELS_LAST if strides[1] == 1 else _CHANNELS_FIRST
    if op.kind == _RESAMPLING and ("upsample" in node.op_type or strides[-1] != 1):
        return _AS_SLOW
    if op.kind in _SOFTMAX and strides and strides[int(number(node, "dim", -1))] != 1:
        return _COLUMNS
    return _relative_pointwise_time(op, views) or _RELATIVE.get(op.kind, _USUAL)


def _relative_pointwise_time(op: BackendOp, views: Sequence[TensorView]) -> float | None:
    instructions = pointwise_instructions().get(int(kind_of(op.kind)))
    if instructions is None:
        return None
    dtypes = {view.dtype for view in views}
    if dtypes <= _NARROW_INTEGERS:
        return _NARROW
    return _OF_FLOAT64 if "float64" in dtypes and instructions & _FUNCTIONS else None
