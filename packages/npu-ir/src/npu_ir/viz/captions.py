"""Texts of a drawing: short, printable, and limited to the width of a box."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from npu_ir.core.node import InputKind, OpNode, Value
from npu_ir.core.types import TensorType, Type, dtype_name

_MAX_LENGTH = 44
_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))


def make_printable(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Return ``text`` on one line, with its middle replaced by an ellipsis if it is too long."""
    if len(text) > max_length:
        head = max_length // 2
        text = f"{text[:head]}…{text[head + 1 - max_length :]}"
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def type_caption(type: Type) -> str:
    """Return a type as edges show it: ``1x64x56x56 f32``."""
    if not isinstance(type, TensorType):
        return make_printable(str(type))
    layout = "" if type.layout is torch.strided else str(type.layout).removeprefix("torch.")
    return make_printable(" ".join(filter(None, (_sizes(type), dtype_name(type.dtype), layout))))


def _sizes(type: TensorType) -> str:
    """Return ``1x64x56x56``; with spaces around ``x`` if a size is symbolic: ``batch x 64``."""
    return (" x " if type.symbols else "x").join(map(str, type.shape))


def values_caption(values: Sequence[Value]) -> str:
    """Return the label of an edge: the type of a single value, or the number of values."""
    return type_caption(values[0].type) if len(values) == 1 else f"{len(values)} values"


def count_caption(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``25.6M parameters``."""
    # From 999.5 on, the next smaller unit would be rounded up to 1000.
    rounded = (f"{count / size:.3g}{unit}" for size, unit in _UNITS if count >= 0.9995 * size)
    return f"{next(rounded, count)} {noun}{'' if count == 1 else 's'}"


def op_caption(op_type: str) -> str:
    """Return an op's name without the usual affixes: ``conv2d`` for ``aten.conv2d.default``."""
    return make_printable(
        op_type.removeprefix("aten.").removeprefix("higher_order.").removesuffix(".default")
    )


def ops_caption(nodes: Iterable[OpNode]) -> str:
    """Return the ops of a module, the most frequent first: ``linear x4, add x2, relu``."""
    counted = Counter(node.op_type for node in nodes)
    shown = [
        op_caption(op_type) if count == 1 else f"{op_caption(op_type)} x{count}"
        for op_type, count in counted.most_common(3)
    ]
    return _join_shown(shown, len(counted))


def regions_caption(node: OpNode) -> str:
    """Return the regions of a node with their op counts: ``true_fn: 2 ops, false_fn: 1 op``."""
    shown = [
        f"{argument}: {count_caption(sum(map(len, region.graphs())), 'op')}"
        for argument, region in node.regions.items()
    ]
    return make_printable(", ".join(shown))


def weights_caption(weights: Sequence[Value]) -> str:
    """Return the weights of one op: ``weight 64x3x7x7, bias 64``."""
    names = [make_printable(value.target.rpartition(".")[2], 20) for value in weights[:2]]
    shown = [f"{name} {_shape(value.type)}" for name, value in zip(names, weights, strict=False)]
    return _join_shown(shown, len(weights))


def is_weight(value: Value) -> bool:
    """Return whether ``value`` is a parameter, a buffer, optimizer state or a constant."""
    return value.kind not in (None, InputKind.INPUT)


def names_caption(values: Sequence[Value]) -> str:
    """Return the names of several arguments: ``x, mask, ...``."""
    return _join_shown([make_printable(value.target, 24) for value in values[:3]], len(values))


def parameters_caption(weights: Iterable[Value]) -> str:
    """Return the number of elements of the parameters among ``weights``; "" for none."""
    types = [value.type for value in weights if value.kind is InputKind.PARAMETER]
    sizes = [type.static_shape for type in types if isinstance(type, TensorType) and not type.symbols]
    count = sum(map(math.prod, sizes))
    return count_caption(count, "parameter") if count else ""


def _shape(type: Type) -> str:
    if isinstance(type, TensorType) and type.shape:
        return make_printable(_sizes(type))
    return type_caption(type)


def _join_shown(shown: list[str], total: int) -> str:
    return ", ".join([*shown, "..."] if total > len(shown) else shown)
