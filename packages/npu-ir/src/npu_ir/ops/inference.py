"""Inference of the result types of an op, by running it on fake values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from npu_ir._torch.ops import OpOverload
from npu_ir.core.literals import Literal
from npu_ir.core.node import Value
from npu_ir.core.types import ScalarType, TensorType, Type
from npu_ir.errors import GraphError, NpuError
from npu_ir.ops.calls import Binding, bind_arguments
from npu_ir.ops.execution import FUNCTIONAL_FIX, run_op, write_problem
from npu_ir.ops.fake_values import CPU, LARGE, FakeValues, nearest_value
from npu_ir.ops.meta_types import types_on_meta
from npu_ir.ops.schema import Op, find_op, schema_of
from npu_ir.ops.torch_sizes import NotExpressibleError
from npu_ir.ops.type_rules import types_by_rule
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Dim

_STATE_TYPES = "state them: types="
_OFFSET = "aten.sym_storage_offset.default"  # tensor types have no storage offset, so its result is unknown


def infer_types(
    op_type: str,
    inputs: Sequence[Value],
    attrs: Mapping[str, Literal],
    *,
    operands: Sequence[str] | None,
    symbols: Mapping[str, Range],
) -> list[Type]:
    """Return the types of the results of ``op_type`` on these inputs, in the order of a node's outputs.

    The op is an operator or a function of numbers, without regions. ``symbols`` are those of the graph.

    Raises:
        GraphError: There is no such operator; it does not accept the arguments; it mutates them; or the types
            depend on data, or on symbolic sizes in a way that their ranges do not decide.
    """
    op = find_op(op_type)
    if op is None:
        raise GraphError(
            f"there is no operator {op_type} to infer the types of its results from", fix=_STATE_TYPES
        )
    types = [value.type for value in inputs]
    known = None if symbols else types_by_rule(op_type, types, operands, attrs)
    return list(known or _infer(TypedCall.of(op_type, op, inputs, attrs, operands, symbols)))


@dataclass(frozen=True, slots=True)
class TypedCall:
    """A call of an op on values of known types: a cache key of all that the result types depend on."""

    op_type: str
    op: Op
    types: tuple[Type, ...]
    operands: tuple[str, ...] | None
    ranges: tuple[tuple[str, Range], ...]
    attrs_text: str
    attrs: Mapping[str, Literal] = field(compare=False)

    @classmethod
    def of(
        cls,
        op_type: str,
        op: Op,
        inputs: Sequence[Value],
        attrs: Mapping[str, Literal],
        operands: Sequence[str] | None,
        symbols: Mapping[str, Range],
    ) -> TypedCall:
        """Return the call of ``op`` on the types of these inputs; arguments as for `infer_types`."""
        types = tuple([value.type for value in inputs])
        names = sorted({name for type in types for name in type.symbols}) if symbols else ()
        ranges = tuple([(name, symbols[name]) for name in names])
        record = None if operands is None else tuple(operands)
        return cls(op_type, op, types, record, ranges, repr(attrs), attrs)

    @property
    def input_text(self) -> str:
        """The inputs, for messages."""
        return ", ".join(map(str, self.types)) or "no inputs"

    @property
    def binding(self) -> Binding:
        """The prepared call of the op.

        Raises:
            GraphError: As for `npu_ir.ops.calls.bind_arguments`.
        """
        return bind_arguments(schema_of(self.op), len(self.types), self.operands, self.attrs)


@functools.lru_cache(maxsize=4096)
def _infer(call: TypedCall) -> tuple[Type, ...]:
    problem = write_problem(call.op_type, schema_of(call.op))
    if problem is not None:
        raise GraphError(problem, fix=FUNCTIONAL_FIX)
    binding = call.binding
    if not call.ranges and (known := types_on_meta(call.op, binding, call.types)) is not None:
        return known
    fakes = FakeValues(dict(call.ranges))
    types = _infer_for_examples(call, binding, fakes)
    problem = _size_problem(call, fakes, types) if call.ranges else None
    if problem is not None:
        raise GraphError(
            f"what {call.op_type} returns on {call.input_text} cannot be inferred for all sizes: {problem}",
            fix=f"if the graph's constraints decide it, {_STATE_TYPES}",
        )
    return types


def _infer_for_examples(call: TypedCall, binding: Binding, fakes: FakeValues) -> tuple[Type, ...]:
    """Return the result types that PyTorch infers for the example values of symbolic sizes."""
    try:
        with fakes.activate():
            inputs = [fakes.fake_value(type) for type in call.types]
            results = run_op(call.op, binding, inputs, CPU)
            if isinstance(call.op, OpOverload) and not call.op._schema.returns and results == [None]:
                return ()  # an op without results returns None
            types = tuple(map(fakes.type_of, results))
            return (ScalarType("int"),) if call.op_type == _OFFSET else types
    except NpuError:
        raise
    except Exception as error:
        kind = "" if isinstance(error, NotExpressibleError) else f"{type(error).__name__}: "
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(
            f"what {call.op_type} returns on {call.input_text} cannot be inferred: {kind}{reason}",
            fix=f"if the call is right, {_STATE_TYPES}",
        ) from error


def _size_problem(call: TypedCall, fakes: FakeValues, types: Sequence[Type]) -> str | None:
    """Return the sizes for which the types are wrong; None if they are right for all accepted sizes.

    PyTorch assumes that symbolic sizes are not 0 or 1, and follows the example where an op branches by sizes,
    mostly to choose an implementation. So the types are compared with those for 0, 1 and a large size, as far
    as the ranges allow.
    """
    if not fakes.assumes_bounds_only:
        return f"only where {fakes.assumptions}"
    for wanted in (0, 1, LARGE):
        values: dict[str, Dim] = {name: nearest_value(known, wanted) for name, known in call.ranges}
        try:
            inputs = tuple(type.substitute(values) for type in call.types)
            found = _infer(replace(call, types=inputs, ranges=()))  # static sizes: recurses once
            expected = [type.substitute(values) for type in types]
        except GraphError:
            continue  # the op does not accept such sizes
        if len(found) != len(types) or not all(map(_is_same_type, found, expected)):
            sizes = ", ".join(f"{name} = {value}" for name, value in values.items())
            return f"{', '.join(map(str, found))} where {sizes}"
    return None


def _is_same_type(actual: Type, expected: Type) -> bool:
    if isinstance(actual, TensorType):
        return actual.same_shape_and_dtype(expected)
    return replace(actual, value=None) == expected or actual == expected
