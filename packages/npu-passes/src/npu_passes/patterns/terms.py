"""The terms that patterns and replacements are written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from npu_ir import Value
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.errors import PassError


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """Stands for any value; the same name stands for the same value.

    Attributes:
        name: As the match knows it.
        where: What the value must fulfil.
    """

    name: str
    where: Callable[[Value], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Attr:
    """Stands for any plain data, the default of the schema included; the same name stands for the same data.

    Attributes:
        name: As the match knows it.
        where: What the data must fulfil.
    """

    name: str
    where: Callable[[Any], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an op.

    Attributes:
        op_type: The op's full name.
        args: Its arguments, by schema name; of an op without schema, by position as "0", "1", ...
        open: Other arguments may be anything; if not, they are absent or as by default.
        commutative: The first two arguments may be swapped.
        shared: In a pattern: what it returns may be read elsewhere, too; the node then stays.
        index: Which of its outputs is meant.
    """

    op_type: str
    args: dict[str, Term]
    open: bool = False
    commutative: bool = False
    shared: bool = False
    index: int = 0


Term: TypeAlias = Any  # Var, Attr, Call, a list of terms, or plain data that stands for itself


@dataclass(frozen=True, slots=True)
class Op:
    """An op; called with terms, a call of it."""

    op_type: str

    def __call__(self, *args: Term, **kwargs: Term) -> Call:
        """Return the term of a call; ``...`` as last argument leaves all others open.

        Raises:
            PassError: The op has no such argument.
        """
        is_open = bool(args) and args[-1] is ...
        args = args[:-1] if is_open else args
        return Call(self.op_type, {**self._by_name(args), **self._known(kwargs)}, is_open)

    def _by_name(self, args: tuple[Term, ...]) -> dict[str, Term]:
        op = find_op(self.op_type)
        if op is None:
            return {str(index): term for index, term in enumerate(args)}
        names = [arg.name for arg in schema_of(op).args]
        if len(args) > len(names):
            raise PassError(
                f"{self.op_type} takes {len(names)} arguments, not {len(args)}", where=schema_of(op).text
            )
        return dict(zip(names, args, strict=False))

    def _known(self, kwargs: dict[str, Term]) -> dict[str, Term]:
        op = find_op(self.op_type)
        names = kwargs.keys() if op is None else schema_of(op).by_name.keys()
        for name in kwargs:
            if op is not None and name not in names:
                raise PassError(f"{self.op_type} has no argument {name!r}", where=schema_of(op).text)
        return kwargs


class Namespace:
    """The ops of a namespace of ``torch.ops``: ``aten.add.Tensor``."""

    def __init__(self, *path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        path = (*self._path, name)
        if name.startswith("__"):
            raise AttributeError(name)
        if len(path) < 3:
            return Namespace(*path)
        op_type = ".".join(path)
        if find_op(op_type) is None:
            raise PassError(
                f"there is no operator {op_type}",
                fix='import the library that registers it; op("...") names one that is no operator of PyTorch',
            )
        return Op(op_type)

    def __call__(self, *_: Any, **__: Any) -> Any:
        path = ".".join(self._path)
        raise PassError(
            f"{path} names no overload of an operator", fix=f"write {path}.default, or another overload"
        )


aten = Namespace("aten")


def op(op_type: str) -> Op:
    """Return an op by its full name: any ``torch.ops`` namespace, or one that only an executor knows."""
    return Op(op_type)


def var(name: str, where: Callable[[Value], bool] | None = None) -> Var:
    """Return a wildcard for a value; ``where`` says what it must fulfil."""
    return Var(name, where)


def attr(name: str, where: Callable[[Any], bool] | None = None) -> Attr:
    """Return a wildcard for plain data; ``where`` says what it must fulfil."""
    return Attr(name, where)


def commutative(call: Call) -> Call:
    """Return a call whose first two arguments match in either order."""
    return replace(call, commutative=True)


def shared(call: Call) -> Call:
    """Return a call whose result may be read elsewhere, too; the node it matches stays where it is."""
    return replace(call, shared=True)


def output(call: Call, index: int) -> Call:
    """Return output number ``index`` of a call."""
    return replace(call, index=index)
