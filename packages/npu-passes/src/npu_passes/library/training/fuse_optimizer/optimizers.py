"""Steps of Adam, AdamW and SGD for one parameter, as ``torch.optim`` computes them with ``foreach=True``.

Adam and AdamW, with ``capturable=True`` (PyTorch 2.13):

```text
t' = t + 1
g' = g, or -g (maximize); plus weight_decay * p (not decoupled)
m' = lerp(m, g', 1 - beta1)
v' = addcmul(v * beta2, g', g', 1 - beta2)
u  = v', or maximum(u, v') (amsgrad)
d  = (sqrt(u) / sqrt(-(beta2 ** t' - 1)) + eps) / (1 / ((beta1 ** t' - 1) / lr))
p' = p + m' / d, or p * (1 - lr * weight_decay) + m' / d (decoupled)
```

``beta1 ** t' - 1`` is negative, so ``d`` is, too, and ``p'`` descends. SGD, with the same ``g'``:

```text
b' = b * momentum + (1 - dampening) * g'
s  = g' without momentum, b' with it, g' + momentum * b' (nesterov)
p' = p + (-lr) * s
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npu_ir import OpNode, Value
from npu_ir.ops.effects import aten_name
from npu_passes.library.training.fuse_optimizer.groups import Chain
from npu_passes.library.training.fuse_optimizer.step_patterns import (
    Complement,
    Flag,
    Negative,
    Product,
    Reader,
    StepSearch,
    call,
)
from npu_passes.ops.training import ADAM_STEP, SGD_STEP
from npu_passes.patterns.terms import Term, attr, one_of, var


@dataclass(frozen=True, slots=True)
class _Optimizer:
    """Patterns of a step, and the op for it."""

    op_type: str
    # Tried in this order; their wildcards are called as the arguments of the op, and the new content of a
    # tensor as the tensor, with "new".
    patterns: tuple[Term, ...]
    tensors: tuple[str, ...]  # the arguments of the op that are lists of tensors
    numbers: tuple[str, ...]  # those that are hyperparameters, 0.0 where a pattern has none
    flags: tuple[str, ...]  # those that are options


_PARAMS = var("params")
_GRADIENT = one_of((Flag("maximize"), call("neg", var("grads"))), var("grads"))
_DECAYED = one_of(call("add", _GRADIENT, _PARAMS, attr("weight_decay")), _GRADIENT)


def _adam(params: Term, gradient: Term) -> Term:
    """Return the pattern of a step; each hyperparameter occurs in several places, all of which must agree."""
    mean = call(
        "lerp", var("exp_avgs"), (var("seen"), gradient), Complement(attr("beta1")), result="new exp_avgs"
    )
    scaled = call("mul", var("exp_avg_sqs"), attr("beta2"))
    square = call(
        "addcmul", scaled, var("seen"), var("seen"), Complement(attr("beta2")), result="new exp_avg_sqs"
    )
    # With lower-foreach, _foreach_maximum is a clamp_min per tensor.
    maximum = call("maximum|clamp_min", var("max_exp_avg_sqs"), square, result="new max_exp_avg_sqs")
    root = call("sqrt", one_of((Flag("amsgrad"), maximum), square))
    corrected = call("div", root, call("sqrt", call("neg", _power("beta2"))))
    step_size = call("reciprocal", call("div", _power("beta1"), attr("lr")))
    denominator = call("div", call("add", corrected, attr("eps")), step_size)
    return call("addcdiv", params, mean, denominator, 1, result="new params")


def _power(base: str) -> Term:
    return call("sub", call("pow", attr(base), call("add", var("steps"), 1, result="new steps")), 1)


_BUFFER = call(
    "add",
    call("mul", var("momentum_buffers"), attr("momentum")),
    (var("seen"), _DECAYED),
    Complement(attr("dampening")),
    result="new momentum_buffers",
)
_MOVED = one_of(_BUFFER, (Flag("nesterov"), call("add", var("seen"), _BUFFER, attr("momentum"))), _DECAYED)
_ADAM = _Optimizer(
    ADAM_STEP,
    (
        _adam(
            (Flag("decoupled"), call("mul", _PARAMS, Complement(Product("lr", attr("weight_decay"))))),
            _GRADIENT,
        ),
        _adam(_PARAMS, _DECAYED),
    ),
    ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "steps"),
    ("lr", "beta1", "beta2", "eps", "weight_decay"),
    ("decoupled", "amsgrad", "maximize"),
)
_SGD = _Optimizer(
    SGD_STEP,
    (call("add", _PARAMS, _MOVED, Negative(attr("lr")), result="new params"),),
    ("params", "grads", "momentum_buffers"),
    ("lr", "momentum", "dampening", "weight_decay"),
    ("nesterov", "maximize"),
)
# By the op that computes new parameters.
_OPTIMIZERS: Mapping[str, _Optimizer] = {
    "addcdiv": _ADAM,
    "_foreach_addcdiv": _ADAM,
    "add": _SGD,
    "_foreach_add": _SGD,
}


def find_chains(reader: Reader, root: OpNode) -> list[Chain]:
    """Return the steps that end in the outputs of a node; none if it is not the last one of a step."""
    optimizer = _OPTIMIZERS.get(aten_name(root))
    if optimizer is None:
        return []
    chains = (_find_chain(optimizer, reader, root, value) for value in root.outputs if value.uses)
    return [chain for chain in chains if chain is not None]


def _find_chain(optimizer: _Optimizer, reader: Reader, root: OpNode, new: Value) -> Chain | None:
    for pattern in optimizer.patterns:
        search = StepSearch(reader)
        for _ in search.solve([(new, pattern)]):
            names = [name for name in optimizer.tensors if f"new {name}" in search.bound]
            return Chain(
                optimizer.op_type,
                tensors={name: search.bound.get(name) for name in optimizer.tensors},
                results={name: search.bound[f"new {name}"] for name in names},
                numbers={name: search.bound.get(name, 0.0) for name in optimizer.numbers},
                flags={name: name in search.bound for name in optimizer.flags},
                root=root,
                nodes=tuple(search.nodes),
            )
    return None
