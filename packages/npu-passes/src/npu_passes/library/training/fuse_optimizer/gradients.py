"""Preprocessing of gradients by optimizers: negation and weight decay."""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir import Value
from npu_passes.library.training.fuse_optimizer.chain import Trail, require_number, require_tensor
from npu_passes.library.training.fuse_optimizer.operands import Number, is_number, is_same


@dataclass(frozen=True, slots=True)
class Gradient:
    """Gradient ``value`` of the backward pass, used as ``-value + weight_decay * parameter``.

    Attributes:
        weight_decay: 0.0 if there is none.
        maximize: True if the gradient is negated.
    """

    value: Value
    weight_decay: Number
    maximize: bool


def match_gradient(trail: Trail, value: Value, parameter: Value, *, decays: bool) -> Gradient:
    """Return the gradient behind ``value``; with ``decays``, coupled weight decay may be added to it."""
    weight_decay: Number = 0.0
    added = trail.look(value, "add") if decays else None
    if (
        added is not None
        and len(added.operands) == 3
        and is_same(added.operands[1], parameter)
        and is_number(added.operands[2])
    ):
        value, weight_decay = require_tensor(added.operands[0]), require_number(added.operands[2])
        trail.keep(added)
    negated = trail.look(value, "neg")
    if negated is None:
        return Gradient(require_tensor(value), weight_decay, maximize=False)
    return Gradient(require_tensor(trail.keep(negated)[0]), weight_decay, maximize=True)
