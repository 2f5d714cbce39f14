"""Inactive dropout."""

from __future__ import annotations

from npu_ir import OpNode
from npu_passes.library.cleanup.elim_identity.findings import Finding, Refused, require_same_type
from npu_passes.rewriting.arguments import arguments_of

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
