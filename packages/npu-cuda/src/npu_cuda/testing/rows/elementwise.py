"""The rows of pointwise ops: a table of references by PyTorch in float64, from which all cases are made."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from npu_cuda import _C
from npu_cuda.testing.case import Array, Attrs, Case, Domain, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS, special_count

aten = torch.ops.aten
Reference = Callable[..., Any]

DTYPES = {"f32": FLOATS, "f64": ("float64",), "i64": ("int64", "int32", "int16", "int8", "uint8")}
BOOLEANS = {"condition", "mask", "found_inf"}  # inputs of dtype bool
SINGLE = {"bc1_inv", "bc2_inv", "lr", "norm", "inv_scale"}  # inputs of one element


@dataclass(frozen=True, slots=True)
class Sample:
    """The test of an op.

    Attributes:
        reference: Computes the outputs from tensors, in float64 or integers, and the attributes by name.
        attrs: The sets of attributes to test; the defaults are tested, too.
        domain: The numbers that inputs have.
        exact: The result is the reference, rounded once.
        special: Special values give those of PyTorch.
        dtypes: Of all inputs; empty for those that the op is computed for.
        yields: The dtype of outputs where it is not that of the inputs.
    """

    reference: Reference
    attrs: tuple[Attrs, ...] = ()
    domain: Domain = "any"
    exact: bool = False
    special: bool = True
    dtypes: tuple[str, ...] = ()
    yields: str | None = None


def _adam_moments(param: Any, grad: Any, m: Any, v: Any, rate: Any, **p: Any) -> list[Any]:
    decay, is_adamw = p["weight_decay"], p["flags"] & 1
    gradient = -grad if p["flags"] & 2 else grad
    slope = gradient if is_adamw else gradient + decay * param
    start = param * (1 - rate * decay) if is_adamw else param
    next_m = p["beta1"] * m + (1 - p["beta1"]) * slope
    return [start, next_m, p["beta2"] * v + (1 - p["beta2"]) * slope * slope]


def _adam(param: Any, grad: Any, m: Any, v: Any, bc1: Any, bc2: Any, step: Any = None, **p: Any) -> list[Any]:
    rate = p["lr"] if step is None else step
    start, next_m, next_v = _adam_moments(param, grad, m, v, rate, **p)
    return [start - rate * (next_m * bc1) / (torch.sqrt(next_v * bc2) + p["eps"]), next_m, next_v]


def _amsgrad(param: Any, grad: Any, m: Any, v: Any, *others: Any, **p: Any) -> list[Any]:
    largest, bc1, bc2, *step = others
    rate = step[0] if step else p["lr"]
    start, next_m, next_v = _adam_moments(param, grad, m, v, rate, **p)
    most = torch.maximum(largest, next_v)
    return [start - rate * (next_m * bc1) / (torch.sqrt(most * bc2) + p["eps"]), next_m, next_v, most]


def _sgd_slope(param: Any, grad: Any, **p: Any) -> Any:
    return (-grad if p["flags"] & 4 else grad) + p["weight_decay"] * param


def _sgd(param: Any, grad: Any, step: Any = None, **p: Any) -> Any:
    return param - (p["lr"] if step is None else step) * _sgd_slope(param, grad, **p)


def _sgd_momentum(param: Any, grad: Any, buffer: Any, rate: Any = None, **p: Any) -> list[Any]:
    slope = _sgd_slope(param, grad, **p)
    following = slope if p["flags"] & 2 else p["momentum"] * buffer + (1 - p["dampening"]) * slope
    step = slope + p["momentum"] * following if p["flags"] & 1 else following
    return [param - (p["lr"] if rate is None else rate) * step, following]


def _loss_scale_update(scale: Any, growth: Any, found_inf: Any, **p: Any) -> list[Any]:
    count = growth + 1
    is_due = count == p["growth_interval"]
    grown = torch.where(is_due, scale * p["growth_factor"], scale)
    return [
        torch.where(found_inf != 0, scale * p["backoff_factor"], grown),
        torch.where((found_inf != 0) | is_due, 0, count),
    ]


def _hardsigmoid_bwd(dy: Any, x: Any) -> Any:
    """Return the gradient; that of PyTorch has a sixth in float32, whatever the dtype."""
    return torch.where((x > -3) & (x < 3), dy / 6, 0)


def _elu(x: Any, alpha: float, scale: float, input_scale: float, is_result: float) -> Any:  # noqa: ARG001
    return aten.elu(x, alpha, scale, input_scale)


def _elu_bwd(dy: Any, x: Any, alpha: float, scale: float, input_scale: float, is_result: float) -> Any:
    return aten.elu_backward(dy, alpha, scale, input_scale, bool(is_result), x)


def _bias_corr(step: Any, beta1: float, beta2: float) -> list[Any]:
    count = step.double().clamp(min=1)
    return [1 / (1 - torch.tensor(beta, dtype=torch.float64) ** count) for beta in (beta1, beta2)]


def _of_number(function: Reference) -> Reference:
    return lambda x, other: function(x, _number(x, other))


def _number(x: Any, value: float) -> Any:
    """Return a number as one of the dtype of a tensor: of integers, an integer, also for infinity."""
    if x.is_floating_point():
        return value
    limits = torch.iinfo(x.dtype)
    return int(value) if math.isfinite(value) else limits.max if value > 0 else limits.min


OTHER = ({"other": 3.0}, {"other": -2.0})
SGD = {"lr": 0.25, "weight_decay": 0.125}
ADAM = {"lr": 0.01, "weight_decay": 0.25}
ADAMS = tuple({**ADAM, "flags": flags} for flags in range(4))

# Ops of one tensor without attributes, which are functions of PyTorch.
UNARY: Mapping[str, Sample] = {
    "Neg": Sample(torch.neg, exact=True),
    "Abs": Sample(torch.abs, exact=True),
    "Sign": Sample(torch.sign, exact=True),
    "Square": Sample(torch.square, exact=True),
    "Reciprocal": Sample(torch.reciprocal),
    "Floor": Sample(torch.floor, exact=True),
    "Ceil": Sample(torch.ceil, exact=True),
    "Round": Sample(torch.round, exact=True),
    "Trunc": Sample(torch.trunc, exact=True),
    "Exp": Sample(torch.exp),
    "Expm1": Sample(torch.expm1),
    "Log": Sample(torch.log, domain="positive"),
    "Log1p": Sample(torch.log1p, domain="positive"),
    "Sqrt": Sample(torch.sqrt, domain="positive"),
    "Rsqrt": Sample(torch.rsqrt, domain="positive"),
    "Sin": Sample(torch.sin),
    "Cos": Sample(torch.cos),
    "Tanh": Sample(torch.tanh),
    "Erf": Sample(torch.erf),
    "EltwiseRelu": Sample(torch.relu, exact=True),
    "Sigmoid": Sample(torch.sigmoid),
    "Gelu": Sample(functional.gelu, special=False),
    "GeluTanh": Sample(lambda x: functional.gelu(x, approximate="tanh"), special=False),
    "Silu": Sample(functional.silu, special=False),
    "Hardswish": Sample(functional.hardswish, special=False),
    "Hardsigmoid": Sample(functional.hardsigmoid),
    "LogicalNot": Sample(torch.logical_not, yields="bool"),
    "BitwiseNot": Sample(torch.bitwise_not),
}

# Ops of two tensors, which have a twin whose second operand is a number.
PAIRS: Mapping[str, Sample] = {
    "Mul": Sample(torch.mul, exact=True),
    "Div": Sample(torch.div),
    "Remainder": Sample(torch.remainder, domain="not zero", special=False),
    "Fmod": Sample(torch.fmod, domain="not zero", special=False),
    "FloorDivideIntegers": Sample(torch.floor_divide, domain="not zero"),
    "Equal": Sample(torch.eq, yields="bool"),
    "NotEqual": Sample(torch.ne, yields="bool"),
    "Less": Sample(torch.lt, yields="bool"),
    "LessEqual": Sample(torch.le, yields="bool"),
    "Greater": Sample(torch.gt, yields="bool"),
    "GreaterEqual": Sample(torch.ge, yields="bool"),
    "BitwiseAnd": Sample(torch.bitwise_and),
    "BitwiseOr": Sample(torch.bitwise_or),
    "BitwiseXor": Sample(torch.bitwise_xor),
}

FURTHER: Mapping[str, Sample] = {
    "EltwiseAdd": Sample(
        lambda x, other, alpha: x + _number(x, alpha) * other, ({"alpha": 2.0}, {"alpha": -1.0})
    ),
    "Sub": Sample(lambda x, other, alpha: x - _number(x, alpha) * other, ({"alpha": 2.0},)),
    "Rsub": Sample(lambda x, other, alpha: other - _number(x, alpha) * x, ({"alpha": 2.0},)),
    "AddScalar": Sample(
        lambda x, other, alpha: x + _number(x, alpha * other), ({"other": 3.0, "alpha": -2.0},)
    ),
    "SubScalar": Sample(
        lambda x, other, alpha: x - _number(x, alpha * other), ({"other": 3.0, "alpha": -2.0},)
    ),
    "RsubScalar": Sample(
        lambda x, other, alpha: _number(x, other) - _number(x, alpha) * x, ({"other": 3.0, "alpha": 2.0},)
    ),
    "Pow": Sample(torch.pow, domain="positive"),
    "PowScalar": Sample(_of_number(torch.pow), tuple({"other": n} for n in (2.0, 3.0, 1.0)), special=False),
    "ScalarPow": Sample(
        lambda x, other: torch.pow(_number(x, other), x), ({"other": 2.0},), domain="positive", special=False
    ),
    "Maximum": Sample(torch.maximum, special=False, exact=True),
    "Minimum": Sample(torch.minimum, special=False, exact=True),
    "Clamp": Sample(
        lambda x, low, high: torch.clamp(x, _number(x, low), _number(x, high)), ({"low": -1.0, "high": 2.0},)
    ),
    "Lerp": Sample(torch.lerp, special=False),
    "LerpScalar": Sample(torch.lerp, ({"weight": 0.25}, {"weight": 0.75}), special=False),
    "Addcmul": Sample(lambda x, a, b, value: x + _number(x, value) * a * b, ({"value": 2.0},), special=False),
    "Addcdiv": Sample(
        lambda x, a, b, value: x + value * a / b, ({"value": 0.5},), domain="positive", special=False
    ),
    "Where": Sample(
        lambda condition, x, other: torch.where(condition != 0, x, other), exact=True, special=False
    ),
    "MaskedFill": Sample(
        lambda x, mask, value: torch.masked_fill(x, mask != 0, _number(x, value)),
        ({"value": 7.0},),
        exact=True,
        special=False,
    ),
    "BiasAdd": Sample(lambda x, bias, **_: x + bias, exact=True),
    "LogicalAnd": Sample(torch.logical_and, yields="bool"),
    "LogicalOr": Sample(torch.logical_or, yields="bool"),
    "LogicalXor": Sample(torch.logical_xor, yields="bool"),
    "ReluBwd": Sample(lambda dy, y: aten.threshold_backward(dy, y, 0), exact=True),
    "SigmoidBwd": Sample(aten.sigmoid_backward, special=False),
    "TanhBwd": Sample(aten.tanh_backward, special=False),
    "GeluBwd": Sample(aten.gelu_backward, special=False),
    "GeluTanhBwd": Sample(lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh"), special=False),
    "SiluBwd": Sample(aten.silu_backward, special=False),
    "Softplus": Sample(aten.softplus, ({"beta": 2.0, "threshold": 1.0},), special=False),
    "SoftplusBwd": Sample(aten.softplus_backward, ({"beta": 2.0, "threshold": 1.0},), special=False),
    "HardswishBwd": Sample(aten.hardswish_backward, special=False),
    "HardsigmoidBwd": Sample(_hardsigmoid_bwd, special=False),
    "HardtanhBwd": Sample(
        lambda dy, x, low, high: aten.hardtanh_backward(dy, x, min_val=low, max_val=high),
        ({"low": -0.5, "high": 0.5},),
        special=False,
    ),
    "LeakyRelu": Sample(
        lambda x, slope: functional.leaky_relu(x, negative_slope=slope), ({"slope": 0.25},), special=False
    ),
    "LeakyReluBwd": Sample(
        lambda dy, x, slope: aten.leaky_relu_backward(dy, x, slope, False), ({"slope": 0.25},), special=False
    ),
    "Elu": Sample(_elu, ({"alpha": 0.5, "scale": 1.5, "input_scale": 2.0},), special=False),
    "EluBwd": Sample(_elu_bwd, ({"alpha": 0.5, "scale": 1.5}, {"alpha": 0.5, "is_result": 1}), special=False),
    "MseGrad": Sample(
        lambda pred, target, scale: (scale or 2 / max(pred.numel(), 1)) * (pred - target),
        ({"scale": 0.5},),
        special=False,
    ),
    "SquaredError": Sample(lambda pred, target: (pred - target) ** 2, special=False),
    "MseBwd": Sample(
        lambda dy, pred, target, scale: (scale or 2 / max(pred.numel(), 1)) * dy * (pred - target),
        ({"scale": 2.0},),
        special=False,
    ),
    "SgdStep": Sample(_sgd, (SGD, {**SGD, "flags": 4}), special=False),
    "SgdMomentumStep": Sample(
        _sgd_momentum,
        tuple({**SGD, "momentum": 0.5, "dampening": 0.25, "flags": flags} for flags in range(8)),
        special=False,
    ),
    "AdamStep": Sample(_adam, ADAMS, domain="positive", special=False, dtypes=(*FLOATS, "float64")),
    "AmsgradStep": Sample(_amsgrad, ADAMS, domain="positive", special=False, dtypes=(*FLOATS, "float64")),
    "ClipByNorm": Sample(
        lambda grad, norm, max_norm, eps: grad * (max_norm / (norm + eps)).clamp(max=1),
        ({"max_norm": 0.25}, {"max_norm": 100.0}),
        domain="positive",
        special=False,
    ),
    "Unscale": Sample(lambda grad, inv_scale: grad * inv_scale, special=False),
    "LossScaleUpdate": Sample(
        _loss_scale_update,
        ({"growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3},),
        domain="positive",
        special=False,
        dtypes=("int32", "float32", "float64"),
    ),
    "DropoutBwd": Sample(lambda dy, mask, value: dy * (mask * value), ({"value": 2.0},), special=False),
    "StepInc": Sample(lambda step: step + 1),
    "BiasCorr": Sample(
        _bias_corr, special=False, dtypes=("int32", "int64"), domain="positive", yields="float32"
    ),
    "GradZero": Sample(lambda: torch.tensor(0.0)),
    "Fill": Sample(lambda value: torch.tensor(value).double(), ({"value": 3.0},)),
}


def samples() -> dict[str, Sample]:
    """Return the sample of each op."""
    twins = {
        f"{name}Scalar": replace(sample, reference=_of_number(sample.reference), attrs=OTHER, special=False)
        for name, sample in PAIRS.items()
    }
    return {**UNARY, **PAIRS, **twins, **FURTHER}


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the cases of an op from its sample and its line in the table.

    Attributes:
        lines: That of the op, and of the same op with further inputs.
    """

    name: str
    sample: Sample
    lines: tuple[Mapping[str, Any], ...] = field(repr=False)

    def dtypes(self) -> tuple[str, ...]:
        computed = self.lines[0]["computed_in"]
        return self.sample.dtypes or tuple(dtype for each in computed for dtype in DTYPES[each])

    def layouts(self, line: Mapping[str, Any], layout: TensorLayout) -> tuple[TensorLayout, ...]:
        """Return the layouts of the inputs: one for all, but for masks and single numbers."""
        single = TensorLayout((), layout.dtype)
        return tuple(
            single if name in SINGLE else replace(layout, dtype="bool") if name in BOOLEANS else layout
            for name in line["inputs"]
        )

    def case(self, name: str, layout: TensorLayout, line: Mapping[str, Any] | None = None) -> Case:
        line = line or self.lines[0]
        output = replace(layout, dtype=self.sample.yields or layout.dtype)
        return Case(
            f"{layout.dtype}, {name}", self.layouts(line, layout), (output,) * len(line["outputs"]),
            domain=self.sample.domain, exact=self.sample.exact, attrs=dict(self.required()),
        )  # fmt: skip

    def required(self) -> Attrs:
        """Return the attributes without which the op computes nothing that could be compared."""
        if self.name == "BiasCorr":
            return {"beta1": 0.9}
        return {"other": 3.0} if self.sample.domain == "not zero" and self.sample.attrs else {}

    def cases(self) -> Iterator[Case]:
        first, *others = self.dtypes()
        for dtype in (first, *others):
            yield self.case("a vector", TensorLayout((257,), dtype))
            if BOOLEANS.intersection(self.lines[0]["inputs"]):
                plain = self.case("a mask of its dtype", TensorLayout((257,), dtype))
                yield replace(plain, inputs=plain.outputs[:1] * len(plain.inputs))
            for index, attrs in enumerate(self.sample.attrs):
                if dtype != "uint8" or attrs.get("other", 0) >= 0:  # PyTorch wraps a negative number around
                    yield replace(self.case(f"attributes {index}", TensorLayout((33,), dtype)), attrs=attrs)
        for shape in ((), (0,), (1,), (3, 0, 5), (2047,), (5, 7, 11), (1, 2, 1, 3, 1, 2, 1, 5)):
            yield self.case(f"{list(shape)}", TensorLayout(shape, first))
        yield self.case("misaligned", TensorLayout((1029,), first, shift=1))
        yield from self.strided(first, "transposed", "a slice")
        for dtype in others:
            yield from self.strided(dtype, "transposed")
        yield from self.broadcast(first)
        yield from self.in_place(first)
        yield from self.special()
        for line in self.lines[1:]:
            for dtype in self.dtypes():
                yield self.case("with a number in memory", TensorLayout((257,), dtype), line)

    def strided(self, dtype: str, *names: str) -> Iterator[Case]:
        shape = (33, 20)
        plain = self.case("", TensorLayout(shape, dtype))
        for name in names:
            change = {"strides": (1, 33)} if name == "transposed" else {"strides": (24, 1), "shift": 3}
            changed = tuple(replace(x, **change) if x.shape == shape else x for x in plain.inputs)
            if changed:
                yield replace(plain, name=f"{dtype}, inputs {name}", inputs=changed)
            outputs = tuple(replace(y, **change) for y in plain.outputs)
            yield replace(plain, name=f"{dtype}, outputs {name}", outputs=outputs)

    def broadcast(self, dtype: str) -> Iterator[Case]:
        if self.name in {"MseGrad", "MseBwd"}:  # whose scale depends on the shape
            return
        # Rows of 36 are whole accesses of 16 bytes.
        for width, shapes in ((33, ((33,), (6, 1), (), (1, 1))), (36, ((36,), (6, 1)))):
            plain = self.case("", TensorLayout((6, width), dtype))
            for (i, x), shape in itertools.product(enumerate(plain.inputs), shapes):
                changed = (*plain.inputs[:i], replace(x, shape=shape), *plain.inputs[i + 1 :])
                yield replace(plain, name=f"{dtype}, input {i} of {width} is {list(shape)}", inputs=changed)

    def in_place(self, dtype: str) -> Iterator[Case]:
        (info,) = (info for info in _C.ops() if info["name"] == self.name)
        for output, source in info["in_place"]:
            for shape in ((33,), (2050,)):
                case = self.case(
                    f"{list(shape)}, output {output} is input {source}", TensorLayout(shape, dtype)
                )
                if source < len(case.inputs) and case.inputs[source] == case.outputs[output]:
                    yield replace(case, aliases={output: source})

    def special(self) -> Iterator[Case]:
        arity = len(self.lines[0]["inputs"])
        if not self.sample.special or not 0 < arity < 3:
            return
        for dtype in FLOATS:
            if dtype in self.dtypes():
                layout = TensorLayout((special_count(arity),), dtype)
                yield replace(self.case("special values", layout), special=True)

    def refusals(self) -> Iterator[Refusal]:
        first = self.dtypes()[0]
        plain = self.case("", TensorLayout((4, 6), first))
        other = tuple(replace(y, shape=(6, 4)) for y in plain.outputs)
        if any(x.shape for x in plain.inputs):
            yield Refusal("another shape", plain.inputs, other, "the output is [6, 4]", plain.attrs)
        numbers = tuple(replace(x, dtype="complex64") for x in (*plain.inputs, *plain.outputs))
        count = len(plain.inputs)
        yield Refusal("complex64", numbers[:count], numbers[count:], "complex64, not", plain.attrs)
        yield from misuses(self.name, replace(plain, name="right"))
        for i, x in enumerate(plain.inputs):
            if x == plain.outputs[0]:
                yield Refusal(
                    f"an output that overlaps input {i}",
                    plain.inputs,
                    plain.outputs,
                    f"output 0 overlaps input {i}",
                    plain.attrs,
                    overlaps={0: (i, 4)},
                    status="InvalidArgument",
                )

    def reference(self, inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
        tensors = [torch.from_numpy(np.array(x)) for x in inputs]
        with np.errstate(all="ignore"):
            result = self.sample.reference(*tensors, **attrs)
        return [each.numpy() for each in (result if isinstance(result, list) else [result])]

    def row(self) -> OpRow:
        schema = self.lines[0]["schema"]
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", self.name.removeprefix("Eltwise")).lower()
        return OpRow(name, self.name, schema, self.reference, self.cases, self.refusals)


def pointwise_rows() -> tuple[OpRow, ...]:
    """Return a row for each op of the table, but for those that another module has."""
    lines: dict[int, list[dict[str, Any]]] = {}
    for line in _C.pointwise_ops():
        lines.setdefault(line["kind"], []).append(line)
    known = samples()
    return tuple(
        _Maker(of_kind[0]["name"], known[of_kind[0]["name"]], tuple(of_kind)).row()
        for of_kind in lines.values()
        if of_kind[0]["name"] != "Cast"
    )
