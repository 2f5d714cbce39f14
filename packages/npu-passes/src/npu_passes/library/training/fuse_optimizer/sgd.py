"""Matcher of the step of SGD for one parameter.

The step as ``torch.optim.SGD`` computes it with ``foreach=True`` (PyTorch 2.13), each list op for one tensor:

```text
g' = g, or -g (maximize); plus weight_decay * p
b' = b * momentum + (1 - dampening) * g'
s  = g' without momentum, b' with it, g' + momentum * b' (nesterov)
p' = p + (-lr) * s
```
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir import OpNode, Value
from npu_passes.library.training.fuse_optimizer.chain import (
    Chain,
    MismatchError,
    Trail,
    require,
    require_complement,
    require_number,
    require_tensor,
)
from npu_passes.library.training.fuse_optimizer.gradients import match_gradient
from npu_passes.library.training.fuse_optimizer.operands import (
    Call,
    Number,
    Reader,
    is_number,
    is_same,
    negative_of,
)
from npu_passes.ops.training import SGD_STEP


def sgd_chain(reader: Reader, root: OpNode, new: Value) -> Chain | None:
    """Return the chain that ends in ``new``, an output of ``root``, if it is a step of SGD."""
    try:
        return _chain(Trail(reader), root, new)
    except MismatchError:
        return None


def _chain(trail: Trail, root: OpNode, new: Value) -> Chain:
    old, moved, scale = _take_scaled_sum(trail, new)
    # A literal is -lr with lr >= 0: `p + 0.1 * s` is not a step of SGD.
    lr = negative_of(scale)
    require(lr is not None and (isinstance(lr, Value) or lr >= 0) and is_number(lr))
    assert lr is not None
    parameter = require_tensor(old)
    momentum = _momentum(trail, moved)
    seen = moved if momentum is None else momentum.gradient
    grad = match_gradient(trail, seen, parameter, decays=True)
    return Chain(
        SGD_STEP,
        tensors={
            "params": parameter,
            "grads": grad.value,
            "momentum_buffers": None if momentum is None else momentum.old,
        },
        results={"params": new} if momentum is None else {"params": new, "momentum_buffers": momentum.new},
        numbers={
            "lr": lr,
            "momentum": 0.0 if momentum is None else momentum.factor,
            "dampening": 0.0 if momentum is None else momentum.dampening,
            "weight_decay": grad.weight_decay,
        },
        flags={"nesterov": momentum is not None and momentum.nesterov, "maximize": grad.maximize},
        root=root,
        nodes=trail.nodes,
    )


@dataclass(frozen=True, slots=True)
class _Momentum:
    """Momentum buffer before and after a step, and the terms of its update."""

    old: Value
    new: Value
    gradient: Value
    factor: Number
    dampening: Number
    nesterov: bool


def _momentum(trail: Trail, moved: Value) -> _Momentum | None:
    """Return the momentum in the update of a parameter; None if the update is the gradient."""
    plain = _buffer(trail, moved)
    if plain is not None:
        return plain
    # Nesterov: s = g' + momentum * b', with the same g' and momentum as in b'.
    ahead = trail.look(moved, "add")
    if ahead is None or not _is_scaled_sum(ahead):
        return None
    seen, buffer, factor = ahead.operands
    nesterov = _buffer(trail, require_tensor(buffer), seen, factor)
    if nesterov is not None:
        trail.keep(ahead)
    return nesterov


def _buffer(trail: Trail, value: Value, seen: object = None, factor: object = None) -> _Momentum | None:
    """Return the momentum whose new buffer is ``value``; with Nesterov, of this gradient and factor."""
    whole = trail.look(value, "add")
    if whole is None or not _is_scaled_sum(whole):
        return None
    scaled, gradient, share = whole.operands
    call = trail.look(scaled, "mul")
    if call is None or not is_number(call.operands[1]):
        return None
    nesterov = seen is not None
    if nesterov and not (is_same(gradient, seen) and is_same(call.operands[1], factor)):
        return None
    try:
        dampening = require_complement(share)
    except MismatchError:
        return None
    trail.keep(whole)
    old, used = trail.keep(call)
    return _Momentum(
        require_tensor(old),
        require_tensor(value),
        require_tensor(gradient),
        require_number(used),
        dampening,
        nesterov,
    )


def _take_scaled_sum(trail: Trail, value: Value) -> tuple[object, Value, object]:
    """Return the two terms of the sum ``value``, and the factor of the second one."""
    call = trail.look(value, "add")
    if call is None or not _is_scaled_sum(call):
        raise MismatchError
    first, second, scale = trail.keep(call)
    return first, require_tensor(second), scale


def _is_scaled_sum(call: Call) -> bool:
    """Return whether an ``add`` is a sum of two tensors with a factor for the second."""
    first, second = call.operands[:2]
    return (
        len(call.operands) == 3
        and isinstance(first, Value)
        and isinstance(second, Value)
        and not (is_number(first) or is_number(second))
    )
