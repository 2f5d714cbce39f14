"""What an operator's schema says about its arguments, read once per operator."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass

import torch

from npu_ir._torch import OpOverload


class ArgKind(enum.Enum):
    """How an argument takes tensors."""

    TENSOR = "Tensor"
    OPTIONAL_TENSOR = "Tensor?"
    TENSOR_LIST = "Tensor[]"
    OPTIONAL_TENSOR_LIST = "Tensor?[]"
    PLAIN = "plain"


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
        required: It has no default and is no optional tensor (whose absence means None).
        writes: The operator changes the tensor in place.
    """

    name: str
    kind: ArgKind
    kwarg_only: bool
    has_default: bool
    writes: bool

    @property
    def required(self) -> bool:
        return not self.has_default and self.kind is not ArgKind.OPTIONAL_TENSOR


@dataclass(frozen=True, slots=True)
class OpSchema:
    """The arguments of an operator, in order, and by name."""

    op: OpOverload
    args: tuple[SchemaArg, ...]
    by_name: dict[str, SchemaArg]
    return_names: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Whether the operator changes any argument in place."""
        return any(arg.writes for arg in self.args)

    @property
    def runs_on_copies(self) -> bool:
        """Whether the operator writes, but returns nothing that it writes: most custom ops that write.

        A graph holds such an op in functional form: it runs on copies of what it writes, and its
        outputs are its results followed by these copies.
        """
        return self.writes and all(item.alias_info is None for item in self.op._schema.returns)


@functools.cache
def schema_of(op: OpOverload) -> OpSchema:
    """Return what ``op``'s schema says."""
    schema = op._schema
    args = tuple(
        SchemaArg(
            name=arg.name,
            kind=_KINDS.get(str(arg.type), ArgKind.PLAIN),
            kwarg_only=arg.kwarg_only,
            has_default=arg.has_default_value(),
            writes=arg.alias_info is not None and arg.alias_info.is_write,
        )
        for arg in schema.arguments
    )
    return OpSchema(op, args, {arg.name: arg for arg in args}, tuple(item.name for item in schema.returns))


def op_type_of(op: OpOverload) -> str:
    """Return the name a node of ``op`` carries: ``aten.conv2d.default``."""
    return f"{op.namespace}.{op._opname}.{op._overloadname}"


def resolve(op_type: str) -> OpOverload | None:
    """Return the operator called ``namespace.name.overload``, or None if none is registered."""
    parts = op_type.split(".")
    if len(parts) != 3 or not all(part.isidentifier() for part in parts):
        return None
    namespace, name, overload = parts
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except (AttributeError, RuntimeError):
        return None
    return found if isinstance(found, OpOverload) else None
