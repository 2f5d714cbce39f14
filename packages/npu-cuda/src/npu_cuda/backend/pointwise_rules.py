"""Rules of elementwise nodes: which native op computes each, and which of its arguments are attributes.

A node has alternatives, of which the first that takes it computes it. In a row, an argument of the node
that is a number becomes a field of the attributes; tensors are inputs, in the order of the schema.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_cuda import _C
from npu_cuda.backend.op_builder import Lowered, make_op, op_info
from npu_ir import BackendError, OpNode, TensorType, Value
from npu_ir.ops.schema import find_op, schema_of

# Returns why a node is not computed by the op of a row; None if it is.
Condition = Callable[[OpNode], "str | None"]

_SHORT_FLOATS = (torch.float16, torch.bfloat16)
_EXACT_INTEGERS = 2**53  # of float64, in which attributes are stored
_EXACT_IN_FLOAT32 = 2**24  # PyTorch compares integers with a float in float32
# Where PyTorch converts a scalar tensor first, their integers are the same, since they wrap around, and their
# floats the same but for rounding.
_ROUND_LAST = ("EltwiseAdd", "Sub", "Rsub", "Mul")
# PyTorch raises an error for truth values: for any among the inputs, or if there is nothing else. Its
# functions for types do not.
_WITHOUT_TRUTH_VALUES = ("Sub", "SubScalar", "Rsub", "RsubScalar")
_NOT_OF_TRUTH_VALUES = ("Abs", "EltwiseRelu", "Pow", "Addcmul")
# Arguments that the type of the result has taken into account.
_OF_THE_RESULT = {"dtype", "layout", "device", "pin_memory", "memory_format"}


def _always(node: OpNode) -> str | None:  # noqa: ARG001 - the condition of most rows
    return None


@dataclass(frozen=True, slots=True)
class ElementwiseRule:
    """The native op of a node.

    Attributes:
        kind: Its name in the registry.
        numbers: Field of its attributes to argument of the node.
        fixed: Fields with a value of their own where the node has none.
        values: Argument to the values that it may have; None stands for its default.
        order: The inputs of the op, as places among the tensors of the node; None for all in their order.
        condition: Further reasons to refuse.
        are_rounded: Whether PyTorch rounds the numbers to the 16 bits of a tensor before it computes.
        is_added: Whether a user added it.
    """

    kind: str
    numbers: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    order: tuple[int, ...] | None = None
    condition: Condition = _always
    are_rounded: bool = False
    is_added: bool = False

    def __call__(self, node: OpNode) -> Lowered:
        info = op_info(self.kind)
        inputs = node.inputs if self.order is None else tuple(node.inputs[place] for place in self.order)
        least, most = info["inputs"]
        if not least <= len(inputs) <= most or len(node.outputs) != info["outputs"]:
            return f"{self.kind} takes {counted(least, most)}, not {len(inputs)}"
        reason = self._refused_argument(node) or _truth_values(node, self.kind)
        reason = reason or _mixed_dtypes(node, self.kind) or self._refusal(node)
        if reason is not None:
            return reason
        return [make_op(node, self.kind, inputs, node.outputs, **self._fields(node, info["schema"]))]

    def _refusal(self, node: OpNode) -> str | None:
        """Return what the condition says.

        Raises:
            BackendError: That is neither a reason nor None.
        """
        reason = self.condition(node)
        if reason is not None and not isinstance(reason, str):
            raise BackendError(
                f"the condition of the rule of {node.op_type} by {self.kind} returned {reason!r}",
                where=f"node {node.name!r}",
                fix="condition= returns why a node is not computed by it, in words, or None",
            )
        return reason

    def _refused_argument(self, node: OpNode) -> str | None:
        for name, value in node.attrs.items():
            if name in self.values:
                if value not in self.values[name]:
                    return f"{self.kind} has no {name}={value!r}"
            elif name in self.numbers.values():
                if (reason := refused_number(node, self.kind, name, value)) is not None:
                    return reason
            elif name not in _OF_THE_RESULT and value is not None:
                return f"{self.kind} takes no {name}={value!r}"
        return None

    def _fields(self, node: OpNode, schema: str | None) -> dict[str, float]:
        if schema is None:
            return {}
        given = {**_default_numbers(node.op_type), **node.attrs}
        values = {name: given.get(argument) for name, argument in self.numbers.items()}
        if self.are_rounded:
            values = {name: _rounded(value, node) for name, value in values.items()}
        fields = {**self.fixed, **{name: value for name, value in values.items() if value is not None}}
        codes = field_codes(schema)
        return {name: int(value) if codes[name] in "iIqQ" else float(value) for name, value in fields.items()}


def counted(least: int, most: int | None = None) -> str:
    """Return a number of tensors in words, or a range of it: ``1 tensor``, ``2 to 3 tensors``."""
    most = least if most is None else most
    return f"{least if least == most else f'{least} to {most}'} tensor{'s' * (most != 1)}"


@functools.cache
def _default_numbers(op_type: str) -> Mapping[str, float]:
    """Return the numbers that an op has where an argument is not given: a graph does not state them."""
    op = find_op(op_type)
    arguments = () if op is None else schema_of(op).args
    return {arg.name: arg.default for arg in arguments if isinstance(arg.default, (bool, int, float))}


def _rounded(value: Any, node: OpNode) -> Any:
    """Return a number as the tensors of a node have it, if these are 16-bit floats."""
    short = _dtypes_of(node.inputs).intersection(_SHORT_FLOATS)
    if value is None or not short:
        return value
    return torch.tensor(value, dtype=torch.float64).to(next(iter(short))).item()


@functools.cache
def field_codes(schema: str) -> dict[str, str]:
    """Return the fields of attributes, with the codes of their types."""
    return {name: code for name, code, _ in _C.attr_schemas()[schema]["fields"]}


def _dtypes(node: OpNode) -> set[torch.dtype]:
    return _dtypes_of((*node.inputs, *node.outputs))


def _dtypes_of(values: Iterable[Value]) -> set[torch.dtype]:
    return {value.type.dtype for value in values if isinstance(value.type, TensorType)}


def _has_fractions(node: OpNode) -> bool:
    return any(dtype.is_floating_point or dtype.is_complex for dtype in _dtypes(node))


def _integers_of(node: OpNode) -> set[torch.dtype]:
    """Return the integers that the tensors of a node are computed with, and those of its results."""
    inputs, outputs = (
        {value.type.dtype for value in values if isinstance(value.type, TensorType)} - {torch.bool}
        for values in (node.inputs, node.outputs)
    )
    return outputs | ({functools.reduce(torch.promote_types, inputs)} if inputs else set())


def refused_number(node: OpNode, kind: str, name: str, value: object) -> str | None:
    """Return why the number of an attribute would not be the one that PyTorch computes with."""
    if value is None or name == "is_result":
        return None
    if type(value) not in (int, float):
        return f"{kind} takes a real {name} and nothing else, not {value!r}"
    assert isinstance(value, (int, float))
    if _has_fractions(node):
        return None
    if isinstance(value, float) and not (value.is_integer() and abs(value) < _EXACT_IN_FLOAT32):
        return f"{kind} takes no {name}={value} for integers"
    for dtype in _integers_of(node):
        if not torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max:
            return f"{name}={value} is not in the range of {dtype}"
    return None if abs(value) <= _EXACT_INTEGERS else f"{name}={value} has more than 53 bits"


def _truth_values(node: OpNode, kind: str) -> str | None:
    """Return why PyTorch would raise an error."""
    inputs = _dtypes_of(node.inputs[1:] if kind == "Addcdiv" else node.inputs)  # two of them are divided
    is_refused = kind in _WITHOUT_TRUTH_VALUES and torch.bool in inputs
    is_refused |= kind in (*_NOT_OF_TRUTH_VALUES, "Addcdiv") and inputs == {torch.bool}
    return f"PyTorch takes no truth values for {kind}" if is_refused else None


def _mixed_dtypes(node: OpNode, kind: str) -> str | None:
    """Return why PyTorch would convert an input first, so that it is another number."""
    inputs = _dtypes_of(node.inputs) - {torch.bool}
    if len(inputs) < 2:
        return None
    names = ", ".join(sorted(map(str, inputs)))
    if not inputs.isdisjoint(_SHORT_FLOATS):
        return f"{names} in one op are rounded before they are computed with"
    has_axes = [value for value in node.inputs if isinstance(value.type, TensorType) and value.type.shape]
    if kind in _ROUND_LAST or not has_axes:
        return None
    # Scalar tensors of the same category do not widen tensors with axes.
    wide, common = (functools.reduce(torch.promote_types, of) for of in (inputs, _dtypes_of(has_axes)))
    if wide.is_floating_point == common.is_floating_point and common not in (wide, torch.bool):
        return f"{names} in one op: a scalar tensor becomes {common} before it is computed with"
    return None


# ---- conditions ----


def is_float32(value: float) -> bool:
    """Return whether float32 has this number."""
    return abs(value) < 2**127 and float(torch.tensor(value, dtype=torch.float32)) == value


def _takes_alpha(node: OpNode) -> str | None:
    return _is_truth_factor(node) or _is_float_alpha(node)


def _is_truth_factor(node: OpNode) -> str | None:
    """Refuse what makes true and true false: PyTorch takes the number for whether it is 0."""
    alpha = node.attrs.get("alpha")
    if node.outputs[0].tensor_type.dtype != torch.bool or not isinstance(alpha, (int, float)) or alpha >= 0:
        return None
    return f"alpha={alpha} of truth values"


def _is_float_alpha(node: OpNode) -> str | None:
    alpha = node.attrs.get("alpha")
    is_wide = not _dtypes(node).isdisjoint({torch.float64, torch.int64})
    if not isinstance(alpha, (int, float)) or not is_wide or abs(alpha) > 2**127:
        return None
    return None if is_float32(alpha) else f"alpha={alpha} is stored in float32"


def _divides(node: OpNode) -> str | None:
    """Refuse what raises an error in PyTorch for some values: integers by a tensor, or by 0."""
    if _has_fractions(node) or node.attrs.get("other"):
        return None
    return "PyTorch raises an error where an integer is divided by 0"


def _is_power(node: OpNode) -> str | None:
    exponent = node.attrs.get("exponent")
    if _has_fractions(node) or not isinstance(exponent, (int, float)) or exponent >= 0:
        return None
    return "integers have no negative powers"


def _is_bool(node: OpNode) -> str | None:
    return None if _dtypes(node) == {torch.bool} else "LogicalNot takes bool"


def _is_integer(node: OpNode) -> str | None:
    return None if _dtypes(node).isdisjoint({torch.bool}) else "BitwiseNot takes integers"


def _has_fractions_alone(node: OpNode) -> str | None:
    is_float = all(dtype.is_floating_point for dtype in _dtypes(node))
    return None if is_float else "PyTorch takes no integers here"


# ---- rows ----

_ARITHMETIC = {"mul": "Mul", "div": "Div", "remainder": "Remainder", "fmod": "Fmod"}
_COMPARISONS = {
    "eq": "Equal", "ne": "NotEqual", "lt": "Less", "le": "LessEqual", "gt": "Greater", "ge": "GreaterEqual",
}  # fmt: skip
_BITWISE = {
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
    "__and__": "BitwiseAnd", "__or__": "BitwiseOr", "__xor__": "BitwiseXor",
}  # fmt: skip
_OF_ONE = {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "square": "Square", "reciprocal": "Reciprocal",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "trunc": "Trunc", "exp": "Exp", "expm1": "Expm1",
    "log": "Log", "log1p": "Log1p", "sqrt": "Sqrt", "rsqrt": "Rsqrt", "sin": "Sin", "cos": "Cos",
    "tanh": "Tanh", "erf": "Erf", "sigmoid": "Sigmoid", "relu": "EltwiseRelu", "silu": "Silu",
    "hardswish": "Hardswish", "hardsigmoid": "Hardsigmoid", "logical_not": "LogicalNot",
}  # fmt: skip
_OF_SEVERAL = {
    "maximum": "Maximum", "minimum": "Minimum", "logical_and": "LogicalAnd", "logical_or": "LogicalOr",
    "logical_xor": "LogicalXor", "sigmoid_backward": "SigmoidBwd", "tanh_backward": "TanhBwd",
    "silu_backward": "SiluBwd", "hardswish_backward": "HardswishBwd",
    "hardsigmoid_backward": "HardsigmoidBwd",
}  # fmt: skip
_OF_TWO = {**_ARITHMETIC, **_COMPARISONS, **_BITWISE}
_ALPHA = {"alpha": "alpha"}
_OTHER = {"other": "other"}
_BOUNDS = {"low": "min", "high": "max"}
_HARDTANH = {"low": "min_val", "high": "max_val"}
_ELU = {"alpha": "alpha", "scale": "scale", "input_scale": "input_scale"}
_SOFTPLUS = {"beta": "beta", "threshold": "threshold"}
_SLOPE = {"slope": "negative_slope"}
_VALUE = {"value": "value"}
_EXACT = {"approximate": (None, "none")}
_TANH = {"approximate": ("tanh",)}


def _pairs() -> Iterator[tuple[str, tuple[ElementwiseRule, ...]]]:
    """Yield the ops of two operands, of which the second may be a number."""
    for name, kind in _OF_TWO.items():
        condition = _divides if name in {"remainder", "fmod"} else _always
        is_rounded = name not in {"mul", "div"}
        of_number = ElementwiseRule(f"{kind}Scalar", _OTHER, condition=condition, are_rounded=is_rounded)
        yield f"{name}.Tensor", (ElementwiseRule(kind, condition=condition), of_number)
        yield f"{name}.Scalar", (of_number,)
    for name, kind, number in (
        ("add", "EltwiseAdd", "AddScalar"),
        ("sub", "Sub", "SubScalar"),
        ("rsub", "Rsub", "RsubScalar"),
    ):
        of_number = ElementwiseRule(number, _OTHER | _ALPHA, are_rounded=True)
        of_tensors = ElementwiseRule(kind, _ALPHA, condition=_takes_alpha, are_rounded=True)
        yield f"{name}.Tensor", (of_tensors, of_number)
        yield f"{name}.Scalar", (of_number,)


_SINGLE: Mapping[str, ElementwiseRule] = {
    **{f"{name}.default": ElementwiseRule(kind) for name, kind in {**_OF_ONE, **_OF_SEVERAL}.items()},
    "floor_divide.Scalar": ElementwiseRule("FloorDivideIntegersScalar", _OTHER, condition=_divides),
    "max.other": ElementwiseRule("Maximum"),
    "min.other": ElementwiseRule("Minimum"),
    "pow.Tensor_Tensor": ElementwiseRule("Pow"),
    "pow.Tensor_Scalar": ElementwiseRule(
        "PowScalar", {"other": "exponent"}, condition=_is_power, are_rounded=True
    ),
    "pow.Scalar": ElementwiseRule("ScalarPow", {"other": "self"}),
    "clamp.default": ElementwiseRule("Clamp", _BOUNDS),
    "clamp_min.default": ElementwiseRule("Clamp", {"low": "min"}),
    "clamp_max.default": ElementwiseRule("Clamp", {"high": "max"}),
    "hardtanh.default": ElementwiseRule("Clamp", _HARDTANH, {"low": -1, "high": 1}),
    "relu6.default": ElementwiseRule("Clamp", fixed={"low": 0, "high": 6}),
    "hardtanh_backward.default": ElementwiseRule("HardtanhBwd", _HARDTANH),
    "lerp.Tensor": ElementwiseRule("Lerp"),
    "lerp.Scalar": ElementwiseRule("LerpScalar", {"weight": "weight"}),
    "addcmul.default": ElementwiseRule("Addcmul", _VALUE),
    "addcdiv.default": ElementwiseRule("Addcdiv", _VALUE),
    "where.self": ElementwiseRule("Where"),
    "where.ScalarSelf": ElementwiseRule("MaskedFill", {"value": "self"}, order=(1, 0)),
    "masked_fill.Scalar": ElementwiseRule("MaskedFill", _VALUE),
    "fill.Scalar": ElementwiseRule("Fill", _VALUE, order=()),
    "full_like.default": ElementwiseRule("Fill", {"value": "fill_value"}, order=()),
    "zeros_like.default": ElementwiseRule("GradZero", order=()),
    "ones_like.default": ElementwiseRule("Fill", fixed={"value": 1}, order=()),
    "threshold_backward.default": ElementwiseRule("ReluBwd", values={"threshold": (0,)}),
    "softplus.default": ElementwiseRule("Softplus", _SOFTPLUS),
    "softplus_backward.default": ElementwiseRule("SoftplusBwd", _SOFTPLUS),
    "leaky_relu.default": ElementwiseRule("LeakyRelu", _SLOPE),
    "leaky_relu_backward.default": ElementwiseRule(
        "LeakyReluBwd", _SLOPE, values={"self_is_result": (False,)}
    ),
    "elu.default": ElementwiseRule("Elu", _ELU),
    "elu_backward.default": ElementwiseRule("EluBwd", {**_ELU, "is_result": "is_result"}),
    "mse_loss.default": ElementwiseRule("SquaredError", values={"reduction": (0,)}),
}

ELEMENTWISE_RULES: Mapping[str, tuple[ElementwiseRule, ...]] = {
    **{f"aten.{name}": alternatives for name, alternatives in _pairs()},
    **{f"aten.{name}": (rule,) for name, rule in _SINGLE.items()},
    "aten.gelu.default": (
        ElementwiseRule("Gelu", values=_EXACT),
        ElementwiseRule("GeluTanh", values=_TANH),
    ),
    "aten.gelu_backward.default": (
        ElementwiseRule("GeluBwd", values=_EXACT, condition=_has_fractions_alone),
        ElementwiseRule("GeluTanhBwd", values=_TANH, condition=_has_fractions_alone),
    ),
    "aten.bitwise_not.default": (
        ElementwiseRule("LogicalNot", condition=_is_bool),
        ElementwiseRule("BitwiseNot", condition=_is_integer),
    ),
    "aten.mse_loss_backward.default": (
        ElementwiseRule("MseBwd", values={"reduction": (None, 1)}),
        ElementwiseRule("MseBwd", fixed={"scale": 2}, values={"reduction": (0, 2)}),
    ),
    "npu.relu.default": (ElementwiseRule("EltwiseRelu"),),
}
