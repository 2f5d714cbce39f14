"""Copies that change nothing: casts to the same dtype or to a wider one and back, copies proper, dropout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.types import dtype_name
from npu_passes.library.cleanup.elim_identity.findings import Finding, Refused, is_floating, require_same_type
from npu_passes.rewriting.arguments import arguments_of


def _unpadded_input(node: OpNode) -> Value | None:
    is_empty = all(type(width) is int and width == 0 for width in arguments_of(node)["pad"])
    return node.inputs[0] if is_empty else None


def _integer_input(node: OpNode) -> Value | None:
    type_ = node.inputs[0].type
    return None if not isinstance(type_, TensorType) or is_floating(type_.dtype) else node.inputs[0]


def _common_branch(node: OpNode) -> Value | None:
    args = arguments_of(node)
    return args["self"] if isinstance(args["self"], Value) and args["self"] is args["other"] else None


# By op: returns the input that a node returns unchanged, if any.
_FINDERS: Mapping[tuple[str, ...], Callable[[OpNode], Any]] = {
    (
        *("alias.default", "clone.default", "detach.default", "lift.default", "positive.default"),
        *("lift_fresh.default", "lift_fresh_copy.default", "alias_copy.default", "detach_copy.default"),
    ): lambda node: node.inputs[0],
    ("resolve_conj.default", "resolve_neg.default"): _integer_input,
    ("copy.default",): lambda node: arguments_of(node)["src"],
    ("cat.default", "concat.default", "concatenate.default"): lambda node: (
        node.inputs[0] if len(node.inputs) == 1 else None
    ),
    ("constant_pad_nd.default", "pad.default"): _unpadded_input,
    ("ceil.default", "floor.default", "round.default", "trunc.default"): _integer_input,
    ("where.self",): _common_branch,
}
COPIES = {f"aten.{name}": find for names, find in _FINDERS.items() for name in names}


def find_copy(node: OpNode) -> Finding | None:
    """Return a finding for the input that a node copies, if it has the type of the output."""
    source = COPIES[node.op_type](node)
    if not isinstance(source, Value) or source.type != node.outputs[0].type:
        return None
    return Finding("copy", node.outputs[0], source)


_RULE = "dropout"
_NATIVE = "aten.native_dropout.default"
DROPOUTS = frozenset(
    {
        _NATIVE,
        "aten.dropout.default",
        "aten.feature_dropout.default",
        "aten.alpha_dropout.default",
        "aten.feature_alpha_dropout.default",
    }
)


def find_dropout(node: OpNode) -> Finding | Refused | None:
    """Return a finding for the input of an inactive dropout."""
    args = arguments_of(node)
    probability, train = args["p"], args["train"]
    if train is not False and not (type(probability) in (int, float) and probability == 0):
        return Refused(_RULE, f"it is in training mode, with p={probability}")
    if len(node.outputs) > 1 and node.outputs[1].uses:
        return Refused(_RULE, f"its mask %{node.outputs[1].name} is read")
    return require_same_type(_RULE, node.outputs[0], node.inputs[0])


CASTS = frozenset(
    {
        "aten.to.dtype",
        "aten.to.dtype_layout",
        "aten.to.device",
        "aten.to.other",
        "aten._to_copy.default",
        "aten.type_as.default",
        "prims.convert_element_type.default",
    }
)
_FLOATS = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
)
_INTEGERS = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)


class Casts:
    """Casts of one graph seen so far."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._devices: frozenset[torch.device] | None = None
        # By value: the tensors with the same numbers, by dtype; lossless casts share one dict.
        self._same: dict[Value, dict[torch.dtype, Value]] = {}
        # By result of a lossy cast: its input.
        self._rounded: dict[Value, Value] = {}

    def find_identity(self, node: OpNode) -> Finding | Refused | None:
        """Return an earlier value that equals the result of a cast; None if there is none."""
        result, source = node.outputs[0], node.inputs[0]
        dtype, source_dtype = result.tensor_type.dtype, source.tensor_type.dtype
        reason = self._movement_problem(node)
        known = self._same.setdefault(source, {source_dtype: source})
        same = known.get(dtype)
        if same is not None and same.type == result.type:
            rule = "cast" if same is source else "casts"
            return Finding(rule, result, same) if reason is None else Refused(rule, reason)
        if same is None and any(is_lossless(item, dtype) for item in known):
            known[dtype] = result
            self._same[result] = known
        elif same is None:
            self._rounded[result] = source
        origin = self._rounded.get(source)
        if origin is not None and origin.type == result.type:
            return Refused("casts", f"{dtype_name(source_dtype)} does not hold every {dtype_name(dtype)}")
        return None

    def _movement_problem(self, node: OpNode) -> str | None:
        """Return the reason why a cast may also move or pin the tensor; None if it cannot."""
        args = arguments_of(node)
        if args.get("pin_memory"):
            return "it pins the memory"
        names_device = args.get("device") is not None or len(node.inputs) > 1
        if names_device and len(self._all_devices()) > 1:
            named = ", ".join(sorted(map(str, self._all_devices())))
            return f"it may move the tensor: the graph names the devices {named}"
        return None

    def _all_devices(self) -> frozenset[torch.device]:
        """Return the devices named anywhere in the program; with only one, no cast moves a tensor."""
        if self._devices is None:
            root = self._graph
            while root.owner is not None and root.owner.graph is not None:
                root = root.owner.graph
            self._devices = frozenset(
                item
                for part in root.graphs()
                for node in part.nodes
                for item in node.attrs.values()
                if isinstance(item, torch.device)
            )
        return self._devices


def is_lossless(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Return whether ``wide`` represents every number of ``narrow``, including infinities and NaN."""
    if narrow == wide or (narrow == torch.bool and wide in (*_INTEGERS, *_FLOATS)):
        return True
    if narrow in _INTEGERS and wide in _INTEGERS:
        low, high = torch.iinfo(narrow), torch.iinfo(wide)
        return high.min <= low.min and low.max <= high.max
    if narrow in _INTEGERS and wide in _FLOATS:
        # 2 / eps is 2 ** (mantissa bits + 1): every integer up to it is exact.
        largest = max(torch.iinfo(narrow).max, -torch.iinfo(narrow).min)
        return largest <= 2 / torch.finfo(wide).eps
    if narrow in _FLOATS and wide in _FLOATS:
        low_float, high_float = torch.finfo(narrow), torch.finfo(wide)
        return (
            high_float.eps <= low_float.eps
            and high_float.max >= low_float.max
            and high_float.smallest_normal <= low_float.smallest_normal
        )
    return False
