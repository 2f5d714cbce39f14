"""Terms of patterns and replacements."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from npu_ir import Value
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.errors import PassError

# The ATen ops that commute in their first two arguments.
_COMMUTATIVE_OPS = frozenset(
    """
    add.Tensor mul.Tensor multiply.Tensor eq.Tensor ne.Tensor not_equal.Tensor maximum.default
    minimum.default fmax.default fmin.default max.other min.other logical_and.default logical_or.default
    logical_xor.default bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor __and__.Tensor
    __or__.Tensor __xor__.Tensor hypot.default logaddexp.default logaddexp2.default gcd.default
    lcm.default dot.default mse_loss.default l1_loss.default
    """.split()  # noqa: SIM905 - a name to a line would fill a page
)
_MAX_DEPTH = 100
Term: TypeAlias = Any  # Wildcard, Call, OneOf, a list of terms, or plain data that matches itself


class Kind(enum.Enum):
    """Kinds of arguments that wildcards match."""

    VALUE = "a value"
    DATA = "plain data"
    EITHER = "a value or plain data"


@dataclass(frozen=True, slots=True, eq=False)
class Wildcard:
    """Term that matches any argument of a kind; equal names match the same argument."""

    name: str  # the name by which the match holds the argument
    kind: Kind
    where: Callable[[Any], bool] | None = None  # a predicate that the argument must satisfy


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One output of a call of an op."""

    op_type: str
    # Its arguments, by schema name. Those of an op without schema are by position, as "0", "1", ..., and
    # plain data by name.
    args: Mapping[str, Term]
    has_schema: bool  # whether the arguments are named as in a schema
    index: int = 0
    # Whether other arguments may be anything; if not, they must be omitted or equal their defaults.
    is_open: bool = False
    is_commutative: bool = False  # whether the first two arguments may be swapped
    # In a pattern: whether its results may be read outside the match; its node then stays.
    is_shared: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """Alternative terms, tried in order; the first that makes the whole pattern match is taken."""

    options: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """An op; calling it with terms returns the term of a call."""

    op_type: str

    def __call__(self, /, *args: Term, **kwargs: Term) -> Call:
        """Return the term of a call; ``...`` as the last positional argument leaves all others open.

        Raises:
            PassError: The op has no such argument.
        """
        is_open = bool(args) and args[-1] is ...
        args = args[:-1] if is_open else args
        if any(term is ... for term in (*args, *kwargs.values())):
            raise PassError(f"{self.op_type}: ... follows the positional arguments, once")
        operator = find_op(self.op_type)
        names = [str(index) for index in range(len(args))]
        if operator is not None:
            schema = schema_of(operator)
            _check_arguments(self.op_type, [arg.name for arg in schema.args], len(args), kwargs, schema.text)
            names = [arg.name for arg in schema.args]
        by_name = {**dict(zip(names, args, strict=False)), **kwargs}
        if operator is not None:
            by_name = {name: by_name[name] for name in names if name in by_name}
        return Call(self.op_type, by_name, operator is not None, is_open=is_open)


def _check_arguments(
    op_type: str, names: list[str], count: int, kwargs: Mapping[str, Term], schema: str
) -> None:
    if count > len(names):
        raise PassError(f"{op_type} takes {len(names)} arguments, not {count}", fix=f"its schema is {schema}")
    for name in kwargs:
        if name not in names:
            raise PassError(f"{op_type} has no argument {name!r}", fix=f"its schema is {schema}")
        if name in names[:count]:
            raise PassError(f"{op_type} gets its argument {name!r} twice", fix=f"its schema is {schema}")


class Namespace:
    """The ops of a namespace of ``torch.ops``: ``aten.add.Tensor``."""

    def __init__(self, *path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and len(self._path) == 1:
            raise AttributeError(name)
        path = (*self._path, name)
        return op(".".join(path)) if len(path) == 3 else Namespace(*path)

    def __call__(self, *_: Any, **__: Any) -> Any:
        path = ".".join(self._path)
        raise PassError(
            f"{path} is not an overload of an operator", fix=f"write {path}.default, or another overload"
        )


aten = Namespace("aten")


def op(op_type: str) -> Op:
    """Return an op by its full name: of any ``torch.ops`` namespace, or one known only to an executor.

    Raises:
        PassError: PyTorch's own namespace has no such op.
    """
    if op_type.partition(".")[0] == "aten" and find_op(op_type) is None:
        raise PassError(
            f"there is no operator {op_type}", fix="its full name ends with the overload: aten.relu.default"
        )
    return Op(op_type)


def var(name: str, where: Callable[[Value], bool] | None = None) -> Wildcard:
    """Return a wildcard for a value of the graph that satisfies the predicate ``where``."""
    return Wildcard(name, Kind.VALUE, where)


def attr(name: str, where: Callable[[Any], bool] | None = None) -> Wildcard:
    """Return a wildcard for anything but a single value: plain data, a list, None for an absent tensor.

    An omitted argument matches with its default in the schema.
    """
    return Wildcard(name, Kind.DATA, where)


def maybe(name: str, where: Callable[[Any], bool] | None = None) -> Wildcard:
    """Return a wildcard for any argument: a value, plain data, or None for an absent optional tensor."""
    return Wildcard(name, Kind.EITHER, where)


def commutative(call: Call) -> Call:
    """Return a call whose first two arguments match in either order, unless ``alpha`` scales one of them.

    Ops that are not PyTorch's own are taken to commute.

    Raises:
        PassError: The call does not state both arguments, or the op does not commute.
    """
    if call.op_type.startswith("aten.") and call.op_type.removeprefix("aten.") not in _COMMUTATIVE_OPS:
        raise PassError(f"{call.op_type} does not commute", fix="write a rule for each order")
    op = find_op(call.op_type)
    names = ["0", "1"] if op is None else [arg.name for arg in schema_of(op).args[:2]]
    if list(call.args)[:2] != names:
        raise PassError(
            f"{call.op_type} commutes in its first two arguments, and {len(call.args)} of them are stated"
            " here",
            fix="state both: commutative(aten.add.Tensor(x, y))",
        )
    return replace(call, is_commutative=True)


def shared(call: Call) -> Call:
    """Return a call whose results may be read outside the match, too; the matched node then stays."""
    return replace(call, is_shared=True)


def output(call: Call, index: int) -> Call:
    """Return output number ``index`` of a call."""
    return replace(call, index=index)


def one_of(*options: Term) -> OneOf:
    """Return a term that matches any of the given terms, which are tried in this order.

    It is for use in patterns. Wildcards of alternatives that are not taken are None.

    Raises:
        PassError: There are no terms.
    """
    if not options:
        raise PassError("one_of() has no terms: it would match nothing", fix="give terms: one_of(x, y)")
    return OneOf(options)


def required_ops(term: Term) -> frozenset[str]:
    """Return the op types that every match of a term contains."""
    if isinstance(term, OneOf):
        return frozenset.intersection(*map(required_ops, term.options)) if term.options else frozenset()
    own: frozenset[str] = frozenset()
    parts: Iterable[Term] = ()
    if isinstance(term, Call):
        own, parts = frozenset({term.op_type}), term.args.values()
    elif isinstance(term, (list, tuple)):
        parts = term
    return own.union(*map(required_ops, parts))


def subterms(term: Term, depth: int = 0) -> Iterator[Term]:
    """Yield a term and the terms in it, one for each occurrence.

    Raises:
        PassError: Calls are nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise PassError(f"a term that is nested deeper than {_MAX_DEPTH} is not supported")
    yield term
    parts: Iterable[Term] = ()
    if isinstance(term, Call):
        parts = term.args.values()
    elif isinstance(term, OneOf):
        parts = term.options
    elif isinstance(term, (list, tuple)):
        parts = term
    for part in parts:
        yield from subterms(part, depth + (not isinstance(term, (list, tuple))))
