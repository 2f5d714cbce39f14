"""Matcher of the step of Adam and AdamW for one parameter.

The step as ``torch.optim.Adam`` computes it with ``foreach=True, capturable=True`` (PyTorch 2.13):

```text
t' = t + 1
g' = g, or -g (maximize); plus weight_decay * p (not decoupled)
m' = lerp(m, g', 1 - beta1)
v' = addcmul(v * beta2, g', g', 1 - beta2)
u  = v', or maximum(u, v') (amsgrad)
d  = (sqrt(u) / sqrt(-(beta2 ** t' - 1)) + eps) / (1 / ((beta1 ** t' - 1) / lr))
p' = p + m' / d, or p * (1 - lr * weight_decay) + m' / d (decoupled)
```

``beta1 ** t' - 1`` is negative, so ``d`` is, too, and ``p'`` descends.
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
    Number,
    Reader,
    is_same,
    other_factor,
    strip_aliases,
)
from npu_passes.ops.training import ADAM_STEP


def adam_chain(reader: Reader, root: OpNode, new: Value) -> Chain | None:
    """Return the chain that ends in ``new``, an output of ``root``, if it is a step of Adam."""
    try:
        return _chain(Trail(reader), root, new)
    except MismatchError:
        return None


def _chain(trail: Trail, root: OpNode, new: Value) -> Chain:
    # Backwards from p'. Each hyperparameter occurs in several places; all of them must agree.
    decayed, mean, denominator, scale = trail.take(new, "addcdiv")
    require(scale == 1)
    parts = _denominator(trail, denominator)
    parameter, decoupled_decay = _parameter(trail, decayed, parts.lr)
    old_mean, seen, weight = trail.take(mean, "lerp")
    require(is_same(require_complement(weight), parts.beta1))
    scaled, first, second, value = trail.take(parts.square, "addcmul")
    require(
        is_same(first, seen) and is_same(second, seen) and is_same(require_complement(value), parts.beta2)
    )
    old_square, beta2 = trail.take(scaled, "mul")
    require(is_same(beta2, parts.beta2))
    grad = match_gradient(trail, require_tensor(seen), parameter, decays=decoupled_decay is None)
    results = {"params": new, "exp_avgs": strip_aliases(mean)[0], "exp_avg_sqs": parts.square}
    if parts.maximum is not None:
        results["max_exp_avg_sqs"] = parts.maximum
    return Chain(
        ADAM_STEP,
        tensors={
            "params": parameter,
            "grads": grad.value,
            "exp_avgs": require_tensor(old_mean),
            "exp_avg_sqs": require_tensor(old_square),
            "max_exp_avg_sqs": parts.old_maximum,
            "steps": parts.old_step,
        },
        results={**results, "steps": parts.step},
        numbers={
            "lr": parts.lr,
            "beta1": parts.beta1,
            "beta2": parts.beta2,
            "eps": parts.eps,
            "weight_decay": grad.weight_decay if decoupled_decay is None else decoupled_decay,
        },
        flags={
            "decoupled": decoupled_decay is not None,
            "amsgrad": parts.maximum is not None,
            "maximize": grad.maximize,
        },
        root=root,
        nodes=trail.nodes,
    )


@dataclass(frozen=True, slots=True)
class _Denominator:
    """Operands of ``d``; ``maximum`` and ``old_maximum`` with amsgrad only."""

    square: Value
    maximum: Value | None
    old_maximum: Value | None
    step: Value
    old_step: Value
    lr: Number
    beta1: Number
    beta2: Number
    eps: Number


def _denominator(trail: Trail, value: object) -> _Denominator:
    whole, step_size = trail.take(value, "div")[:2]
    (divided,) = trail.take(step_size, "reciprocal")
    correction, lr = trail.take(divided, "div")[:2]
    beta1, step = _power(trail, correction)
    corrected, eps = trail.take(whole, "add")[:2]
    root, square_correction = trail.take(corrected, "div")[:2]
    (negated,) = trail.take(square_correction, "sqrt")
    (power,) = trail.take(negated, "neg")
    beta2, same_step = _power(trail, power)
    require(same_step is step)
    old_step, one = trail.take(step, "add")[:2]
    require(one == 1)
    (largest,) = trail.take(root, "sqrt")
    square, maximum, old_maximum = strip_aliases(largest)[0], None, None
    # With lower-foreach, _foreach_maximum is a clamp_min per tensor.
    amsgrad = trail.look(square, "maximum", "clamp_min")
    if amsgrad is not None:
        maximum = square
        old, new = trail.keep(amsgrad)
        old_maximum, square = require_tensor(old), require_tensor(new)
    return _Denominator(
        square,
        maximum,
        old_maximum,
        step,
        require_tensor(old_step),
        require_number(lr),
        beta1,
        beta2,
        require_number(eps),
    )


def _power(trail: Trail, value: object) -> tuple[Number, Value]:
    """Return base and exponent of ``base ** exponent - 1``."""
    power, one = trail.take(value, "sub")[:2]
    require(one == 1)
    base, exponent = trail.take(power, "pow")
    return require_number(base), require_tensor(exponent)


def _parameter(trail: Trail, value: object, lr: Number) -> tuple[Value, Number | None]:
    """Return the parameter that the step updates, and the weight decay if it is decoupled."""
    scaled = trail.look(value, "mul")
    if scaled is not None and not isinstance(scaled.operands[1], list):
        try:
            decay = other_factor(require_complement(scaled.operands[1]), lr)
        except MismatchError:
            decay = None
        if decay is not None:
            return require_tensor(trail.keep(scaled)[0]), decay
    return require_tensor(value), None
