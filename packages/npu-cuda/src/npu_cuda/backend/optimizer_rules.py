"""Rules of optimizer steps and loss scaling: one native op for all tensors of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from npu_cuda.backend.op_builder import Lowered, OpBuilder, Rule, number
from npu_cuda.backend.pointwise_rules import ElementwiseRule
from npu_cuda.backend.tensor_views import tensor_type
from npu_cuda.backend.view_rules import view_of
from npu_ir import OpNode
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

# Flags of the native ops.
_NESTEROV, _FIRST_STEP, _SGD_MAXIMIZE = 1, 2, 4
_DECOUPLED, _ADAM_MAXIMIZE = 1, 2
# What may be a tensor, in the order in which native ops take them.
_NUMBERS = ("lr", "beta1", "beta2", "eps", "momentum", "weight_decay", "dampening")

Lists = Mapping[str, Sequence[Operand]]


def _lists_of(node: OpNode) -> dict[str, list[Operand]]:
    """Return the tensors of a node by argument; of a single tensor, a list of one."""
    lists: dict[str, list[Operand]] = {}
    for name, value in zip(node.operands or (), node.inputs, strict=True):
        lists.setdefault(name.partition("[")[0], []).append(value)
    return lists


class _Step:
    """The ops of a step of an optimizer.

    Args:
        names: The arguments with parameters, gradients and states.
    """

    def __init__(self, node: OpNode, *names: str) -> None:
        self.build = OpBuilder(node)
        lists = _lists_of(node)
        self.columns = [lists[name] for name in names if name in lists]
        self.count = len(self.columns[0]) if self.columns else 0
        self.lists = lists
        # Those that are tensors: one for each parameter.
        self.numbers = {name: list(lists[name]) * self.count for name in _NUMBERS if name in lists}

    @property
    def problem(self) -> str | None:
        """The reason why list ops do not take the tensors; None if they do."""
        node = self.build.node
        if not self.count:
            return "a step of no parameters"
        if given := {"grad_scale", "found_inf"}.intersection(self.lists):
            return f"optimizer steps take no {' and '.join(sorted(given))}"
        dtypes = {tensor_type(operand).dtype for column in self.columns for operand in column}
        if len(dtypes) > 1:
            return f"a step takes tensors of one dtype, not {', '.join(sorted(map(str, dtypes)))}"
        if len(self.columns) < 2 or len({len(column) for column in self.columns}) > 1:
            return f"{node.op_type} takes lists of one length"
        return None

    @property
    def dtype(self) -> torch.dtype:
        return tensor_type(self.columns[0][0]).dtype

    def plain_numbers(self, *names: str) -> dict[str, float]:
        """Return those of these arguments that are numbers."""
        plain = (name for name in names if name not in self.numbers)
        return {name: float(number(self.build.node, name, 0.0)) for name in plain}

    def number_tensors(self, *names: str) -> list[Operand]:
        """Return the tensors of those of these arguments that are tensors, for all parameters."""
        return [tensor for name in names for tensor in self.numbers.get(name, ())]

    def add(
        self,
        kind: str,
        outputs: Sequence[Operand],
        more: Sequence[Operand],
        names: Sequence[str],
        **attrs: float,
    ) -> None:
        """Add the op of the step, with gradients in the layout of their parameters.

        Args:
            kind: The op.
            outputs: What it updates.
            more: Its inputs between the columns and the numbers.
            names: The numbers that it takes as attributes or, behind all other inputs, as tensors.
            attrs: Its other attributes.
        """
        grads = [self._like(grad, param) for param, grad in zip(*self.columns[:2], strict=True)]
        columns = [self.columns[0], grads, *self.columns[2:]]
        inputs = [operand for column in columns for operand in column]
        numbers, attrs = self.number_tensors(*names), attrs | self.plain_numbers(*names)
        self.build.add(kind, [*inputs, *more, *numbers], outputs, **attrs)

    def _like(self, grad: Operand, param: Operand) -> Operand:
        type = tensor_type(param)
        if tensor_type(grad).static_strides == type.static_strides:
            return grad
        copy = Temporary(f"{grad.name}.copy", type)
        self.build.add("Copy", [grad], [copy])
        return copy

    def bias_corrections(self, steps: Sequence[Operand]) -> list[Operand]:
        dtype = torch.float64 if self.dtype is torch.float64 else torch.float32
        made = [
            self.build.temporary(f"bc{moment}_inv_{i}", tensor_type(step).static_shape, dtype)
            for moment in (1, 2)
            for i, step in enumerate(steps)
        ]
        betas = ("beta1", "beta2")
        inputs = [*steps, *self.number_tensors(*betas)]
        self.build.add("MultiBiasCorr", inputs, made, **self.plain_numbers(*betas))
        return list(made)


def _add_adam(step: _Step, outputs: Sequence[Operand], steps: Sequence[Operand], *, decoupled: bool) -> None:
    kind = "MultiAmsgrad" if len(step.columns) == 5 else "MultiAdam"
    corrections = step.bias_corrections(steps)
    flags = _DECOUPLED * decoupled + _ADAM_MAXIMIZE * bool(step.build.node.attrs.get("maximize"))
    names = ("lr", "beta1", "beta2", "eps", "weight_decay")
    step.add(kind, outputs, corrections, names, flags=flags)


def _adam_step(node: OpNode) -> Lowered:
    step = _Step(node, "params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs")
    if (problem := step.problem) is not None:
        return problem
    states, steps = node.outputs[: -step.count], node.outputs[-step.count :]
    step.build.add("MultiStepInc", step.lists["steps"], steps)
    _add_adam(step, states, steps, decoupled=bool(node.attrs["decoupled"]))
    return step.build.ops


def _fused_adam(node: OpNode) -> Lowered:
    step = _Step(node, "self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs")
    if (problem := step.problem) is not None:
        return problem
    _add_adam(step, _without_grads(step), step.lists["state_steps"], decoupled="adamw" in node.op_type)
    return [*step.build.ops, *_unchanged_grads(step)]


def _add_sgd(step: _Step, outputs: Sequence[Operand]) -> str | None:
    """Add the op of a step; return the reason if there is none."""
    node = step.build.node
    flags = _SGD_MAXIMIZE * bool(node.attrs.get("maximize"))
    has_momentum = len(step.columns) == 3
    names = ("lr", "momentum", "weight_decay", "dampening") if has_momentum else ("lr", "weight_decay")
    if (reason := _lost_digits(step, names)) is not None:
        return reason
    if not has_momentum:
        step.add("MultiSgd", outputs, (), names, flags=flags)
        return None
    flags += _NESTEROV * bool(node.attrs.get("nesterov")) + _FIRST_STEP * bool(
        node.attrs.get("is_first_step")
    )
    step.add("MultiSgdMomentum", outputs, (), names, flags=flags)
    return None


def _lost_digits(step: _Step, names: Sequence[str]) -> str | None:
    """Return which number a step has in float32 that needs more digits; None if there is none."""
    if step.dtype is not torch.float64:
        return None
    for name, value in step.plain_numbers(*names).items():
        if float(torch.tensor(value, dtype=torch.float32)) != value:
            return f"{name}={value} is stored in float32"
    in_memory = [name for name in names if name in step.numbers]
    return "numbers in memory are stored in float32" if len(in_memory) > 1 else None


def _sgd_step(node: OpNode) -> Lowered:
    step = _Step(node, "params", "grads", "momentum_buffers")
    reason = step.problem or _add_sgd(step, node.outputs)
    return step.build.ops if reason is None else reason


def _fused_sgd(node: OpNode) -> Lowered:
    step = _Step(node, "self", "grads", "momentum_buffer_list")
    reason = step.problem or _add_sgd(step, _without_grads(step))
    return [*step.build.ops, *_unchanged_grads(step)] if reason is None else reason


def _without_grads(step: _Step) -> tuple[Operand, ...]:
    """Return the results of an op of PyTorch that returns the gradients, too."""
    outputs = step.build.node.outputs
    return (*outputs[: step.count], *outputs[2 * step.count :])


def _unchanged_grads(step: _Step) -> list[BackendOp]:
    node = step.build.node
    outputs = node.outputs[step.count : 2 * step.count]
    return [
        view_of(node, grad, (output,), [0]) for grad, output in zip(step.columns[1], outputs, strict=True)
    ]


# ---- loss scaling ----


def _unscale(node: OpNode) -> Lowered:
    build, lists = OpBuilder(node), _lists_of(node)
    grads, found_inf, inv_scale = (lists.get(name, []) for name in ("self", "found_inf", "inv_scale"))
    if not grads:
        return "a list of no gradients"
    build.add("FoundInf", [*found_inf, *grads], node.outputs[-1:])
    return build.add("MultiUnscale", [*grads, *inv_scale * len(grads)], node.outputs[:-1])


_UPDATE_SCALE = ElementwiseRule(
    "LossScaleUpdate",
    {
        "growth_factor": "scale_growth_factor",
        "backoff_factor": "scale_backoff_factor",
        "growth_interval": "growth_interval",
    },
)

_OVERLOADS = ("default", "tensor_lr", "tensor_numbers")
_BY_NAME: Mapping[str, Rule] = {
    **{f"npu.adam_step.{overload}": _adam_step for overload in _OVERLOADS},
    **{f"npu.sgd_step.{overload}": _sgd_step for overload in _OVERLOADS},
    **{
        f"aten._fused_{name}.{overload}": rule
        for name, rule in (("adam", _fused_adam), ("adamw", _fused_adam), ("sgd", _fused_sgd))
        for overload in ("default", "tensor_lr")
    },
    "aten._amp_foreach_non_finite_check_and_unscale.default": _unscale,
    "aten._amp_update_scale.default": _UPDATE_SCALE,
    "aten.native_dropout_backward.default": ElementwiseRule("DropoutBwd", {"value": "scale"}),
}

# Their results may be in the memory of the parameters and states that they update.
OPTIMIZER_STEPS = frozenset(name for name in _BY_NAME if name.startswith(("npu.adam_step", "npu.sgd_step")))

OPTIMIZER_RULES = {name: (rule,) for name, rule in _BY_NAME.items()}
