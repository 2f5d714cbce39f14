"""Ops that return a copy of an input, always or in a special case, and inactive dropout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npu_ir import OpNode, TensorType, Value
from npu_passes.library.cleanup.elim_identity.findings import Finding, Refused, is_floating, require_same_type
from npu_passes.rewriting.arguments import arguments_of


def _first_input(node: OpNode) -> Value | None:
    return node.inputs[0]


def _copied_source(node: OpNode) -> Value | None:
    source = arguments_of(node)["src"]
    return source if isinstance(source, Value) else None


def _single_input(node: OpNode) -> Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _unpadded_input(node: OpNode) -> Value | None:
    return node.inputs[0] if all(_is_zero(width) for width in arguments_of(node)["pad"]) else None


def _integer_input(node: OpNode) -> Value | None:
    type_ = node.inputs[0].type
    return None if not isinstance(type_, TensorType) or is_floating(type_.dtype) else node.inputs[0]


def _common_branch(node: OpNode) -> Value | None:
    args = arguments_of(node)
    return args["self"] if isinstance(args["self"], Value) and args["self"] is args["other"] else None


def _is_zero(width: Any) -> bool:
    return type(width) is int and width == 0


# By op: returns the input that a node returns unchanged, if any.
_FINDERS: Mapping[tuple[str, ...], Callable[[OpNode], Value | None]] = {
    ("alias.default", "clone.default", "detach.default", "lift.default", "positive.default"): _first_input,
    (
        "lift_fresh.default",
        "lift_fresh_copy.default",
        "alias_copy.default",
        "detach_copy.default",
    ): _first_input,
    ("resolve_conj.default", "resolve_neg.default"): _integer_input,
    ("copy.default",): _copied_source,
    ("cat.default", "concat.default", "concatenate.default"): _single_input,
    ("constant_pad_nd.default", "pad.default"): _unpadded_input,
    ("ceil.default", "floor.default", "round.default", "trunc.default"): _integer_input,
    ("where.self",): _common_branch,
}
COPIES = {f"aten.{name}": find for names, find in _FINDERS.items() for name in names}


def find_copy(node: OpNode) -> Finding | None:
    """Return a finding for the input that a node copies, if it has the type of the output."""
    source = COPIES[node.op_type](node)
    if source is None or source.type != node.outputs[0].type:
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
