"""Schemas of operators: their arguments, read once per operator.

An operator of ``torch.ops`` has a schema. Control-flow operators and Python functions on numbers have
none; the signature of the function is read instead.
"""

from __future__ import annotations

import builtins
import enum
import functools
import inspect
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from npu_ir._torch.ops import (
    GETITEM,
    HigherOrderOperator,
    OpOverload,
    higher_order_op,
    is_composite,
    op_types_of,
    takes_numbers_as_tensors,
)
from npu_ir.core.user_code import did_you_mean
from npu_ir.ops.attribute_types import AttributeType, attribute_type_of

# The functions of numbers that torch.export leaves in programs with symbolic sizes: they take and return
# numbers, never tensors, and have no side effects.
_MODULES: dict[Any, str] = {
    operator: (
        "add sub mul truediv floordiv mod pow neg pos abs eq ne lt le gt ge and_ or_ xor not_ lshift rshift"
    ),
    math: "ceil floor trunc sqrt pow exp log log2 sin cos tan sinh cosh tanh asin acos atan fabs",
    builtins: "abs bool float int max min pow round",
    torch: (
        "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum _sym_sqrt _sym_cos _sym_cosh "
        "_sym_sin _sym_sinh _sym_tan _sym_tanh _sym_asin _sym_acos _sym_atan _sym_log2"
    ),
}

SCALAR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module, names in _MODULES.items()
    for name in names.split()
    if hasattr(module, name)
}
# By identity: some are in two modules under two names (math.sqrt of sizes is torch.sym_sqrt).
_NAMES = {id(function): name for name, function in reversed(SCALAR_FUNCTIONS.items())}


def scalar_function_name(function: object) -> str | None:
    """Return the name of one of these functions; None for anything else."""
    if getattr(function, "__name__", "") == "cast_symbool_to_symint_guardless":
        return "builtins.int"
    return _NAMES.get(id(function))


Op: TypeAlias = "OpOverload | HigherOrderOperator | Callable[..., Any]"

HIGHER_ORDER = "higher_order"
_HIGHER_ORDER_PREFIX = f"{HIGHER_ORDER}."
# For functions whose signature has no useful names, or cannot be read; ``*`` takes any number.
_ARGUMENT_NAMES = {
    "higher_order.map_impl": ("f", "xs", "pos_args"),
    "builtins.bool": ("x",),
    "builtins.int": ("x",),
    "builtins.max": ("*args",),
    "builtins.min": ("*args",),
    "math.log": ("*args",),
}


class ArgKind(enum.Enum):
    """The kinds of arguments by the tensors that they take."""

    TENSOR = "Tensor"
    OPTIONAL_TENSOR = "Tensor?"
    TENSOR_LIST = "Tensor[]"
    OPTIONAL_TENSOR_LIST = "Tensor?[]"
    PLAIN = "plain"


_FLAT_KINDS = (ArgKind.TENSOR, ArgKind.OPTIONAL_TENSOR, ArgKind.PLAIN)
# Schemas are written with Tensor?, but the types in them print as Optional[Tensor].
_KINDS = {
    "Tensor": ArgKind.TENSOR,
    "Optional[Tensor]": ArgKind.OPTIONAL_TENSOR,
    "List[Tensor]": ArgKind.TENSOR_LIST,
    "Optional[List[Tensor]]": ArgKind.TENSOR_LIST,
    "List[Optional[Tensor]]": ArgKind.OPTIONAL_TENSOR_LIST,
}


@dataclass(frozen=True, slots=True)
class SchemaArg:
    """One argument of an operator.

    Attributes:
        required: It has no default and is not an optional tensor (whose absence means None).
        writes: The operator mutates the tensor.
        variadic: It takes all further positional arguments, as a list.
        default: What stands for it where it is not given, as PyTorch has it: an enum is an integer.
        type: The type of an attribute that fills it; None if it is not known.
    """

    name: str
    kind: ArgKind
    kwarg_only: bool
    has_default: bool
    writes: bool = False
    variadic: bool = False
    default: Any = None
    type: AttributeType | None = None

    @property
    def required(self) -> bool:
        return not self.has_default and self.kind is not ArgKind.OPTIONAL_TENSOR


@dataclass(frozen=True, slots=True)
class OpSchema:
    """The arguments of an operator, in order, and by name."""

    op: Any
    args: tuple[SchemaArg, ...]
    by_name: dict[str, SchemaArg]
    return_names: tuple[str, ...]
    text: str  # the schema or signature as text
    writes: bool = False  # whether the operator mutates any argument
    # Whether each argument is one tensor or plain data: no lists of tensors, and not a variadic one.
    is_flat: bool = False
    required: frozenset[str] = frozenset()  # the names of the required arguments, of an operator

    @property
    def name(self) -> str:
        """The name of the op in messages."""
        return str(self.op) if isinstance(self.op, OpOverload) else op_type_of(self.op)

    @property
    def runs_on_copies(self) -> bool:
        """True if the operator writes, but returns nothing that it writes: most custom ops that write.

        In a graph such an op is functional: it runs on copies of what it writes, and its outputs are its
        results followed by these copies.
        """
        return self.writes and all(item.alias_info is None for item in self.op._schema.returns)

    @property
    def is_composite(self) -> bool:
        """True if the operator is implemented by other ops on every device (``CompositeImplicitAutograd``).

        It may return an argument, or a view of one, without its schema saying so.
        """
        return isinstance(self.op, OpOverload) and is_composite(self.op)


@functools.cache
def schema_of(op: Op) -> OpSchema:
    """Return the schema of ``op``."""
    if not isinstance(op, OpOverload):
        return _signature_of(op)
    schema = op._schema
    takes_numbers = takes_numbers_as_tensors(op)
    args = tuple(
        SchemaArg(
            name=arg.name,
            kind=_KINDS.get(str(arg.type), ArgKind.PLAIN),
            kwarg_only=arg.kwarg_only,
            has_default=arg.has_default_value(),
            default=arg.default_value,
            writes=arg.alias_info is not None and arg.alias_info.is_write,
            type=attribute_type_of(arg, takes_numbers),
        )
        for arg in schema.arguments
    )
    returns = tuple(item.name for item in schema.returns)
    writes = any(arg.writes for arg in args)
    is_flat = all(arg.kind in _FLAT_KINDS for arg in args)
    required = frozenset(arg.name for arg in args if arg.required)
    return OpSchema(
        op, args, {arg.name: arg for arg in args}, returns, str(schema), writes, is_flat, required
    )


def _signature_of(op: Op) -> OpSchema:
    name = op_type_of(op)
    if name in _ARGUMENT_NAMES:
        named = [(item.removeprefix("*"), item.startswith("*")) for item in _ARGUMENT_NAMES[name]]
        args = tuple(SchemaArg(item, ArgKind.PLAIN, False, many, variadic=many) for item, many in named)
    else:
        signature = inspect.signature(op)
        args = tuple(
            SchemaArg(
                name=item.name,
                kind=ArgKind.PLAIN,
                kwarg_only=item.kind is item.KEYWORD_ONLY,
                has_default=item.default is not item.empty or item.kind is item.VAR_POSITIONAL,
                variadic=item.kind is item.VAR_POSITIONAL,
            )
            for item in signature.parameters.values()
            if item.kind is not item.VAR_KEYWORD
        )
    text = f"{name}({', '.join('*' * arg.variadic + arg.name for arg in args)})"
    return OpSchema(op, args, {arg.name: arg for arg in args}, (), text)


def op_type_of(op: Op) -> str:
    """Return the op type of ``op``: ``aten.conv2d.default``, ``higher_order.cond``, ``operator.add``."""
    if isinstance(op, OpOverload):
        return f"{op.namespace}.{op._opname}.{op._overloadname}"
    if isinstance(op, HigherOrderOperator):
        return f"{HIGHER_ORDER}.{op.name()}"  # type: ignore[no-untyped-call]
    if op is GETITEM:
        return str(op)
    module = getattr(op, "__module__", None) or getattr(getattr(op, "__self__", None), "__name__", "")
    return scalar_function_name(op) or f"{module}.{getattr(op, '__name__', op)}"


def resolve(op_type: str) -> OpOverload | None:
    """Return the operator called ``namespace.name.overload``, or None if none is registered."""
    op = find_op(op_type)
    return op if isinstance(op, OpOverload) else None


class _UnknownOpError(Exception):
    """There is no such operator: unlike a result, this is not cached, because it may be registered later."""


@functools.lru_cache(maxsize=4096)
def _permanent_op(op_type: str) -> Op | None:
    """Return a function of numbers, or an operator of PyTorch, which stays registered; None for others."""
    if op_type in SCALAR_FUNCTIONS:
        return SCALAR_FUNCTIONS[op_type]
    op = _look_up(op_type) if is_permanent(op_type) else None
    if op is None and is_permanent(op_type):
        raise _UnknownOpError
    return op


def is_permanent(op_type: str) -> bool:
    """Return whether an operator of this name stays registered, as those of other libraries may not."""
    return op_type.startswith("aten.")


def _look_up(op_type: str) -> OpOverload | None:
    parts = _split_op_type(op_type)
    if parts is None:
        return None
    namespace, name, overload = parts
    try:
        op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except (AttributeError, RuntimeError):
        return None
    return op if isinstance(op, OpOverload) else None


@functools.lru_cache(maxsize=4096)
def _split_op_type(op_type: str) -> tuple[str, str, str] | None:
    """Return namespace, name and overload of an op type; None if it is not of this format."""
    parts = tuple(op_type.split("."))
    return parts if len(parts) == 3 and all(part.isidentifier() for part in parts) else None


def absence_of(op_type: str) -> str | None:
    """Return that there is no such operator, with the name that may be meant.

    None if there is one, or if no op of its namespace is registered, which a library may do later.
    """
    known = [] if find_op(op_type) is not None else op_types_of(op_type.partition(".")[0])
    if not known:
        return None
    default = f"{op_type}.default"
    overloads = [name for name in known if name.startswith(f"{op_type}.")]
    near = [default] if default in overloads else overloads or known
    return f"there is no op {op_type}{did_you_mean(op_type, near)}"


def find_op(op_type: str) -> Op | None:
    """Return the operator or function of numbers that ``op_type`` names; None if unknown."""
    try:
        op = _permanent_op(op_type)
    except _UnknownOpError:
        return None
    if op is not None:
        return op
    if op_type.startswith(_HIGHER_ORDER_PREFIX):
        return higher_order_op(op_type.removeprefix(_HIGHER_ORDER_PREFIX))
    return _look_up(op_type)
