"""Changes of arguments: new, renamed, removed, with another default or another type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npu_ir.core.literals import literal_to_json, to_literal
from npu_ir.core.node import OpNode
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import RECORD_ATTRS, path_of_operand
from npu_ir.serial.compatibility.report import ArgumentEdit, Change, Verdict

_EXPORT_AGAIN = "use the PyTorch the file was made with, or export the model again"
_MIGRATE = "npu check-compat FILE -o NEW"
_NO_DEFAULT = object()
# Their defaults are numbers in a schema, which do not say of what.
_ENCODED_TYPES = ("ScalarType", "Layout", "MemoryFormat", "Device", "Stream")


def argument_changes(old: Any, new: Any, calls: Sequence[OpNode]) -> Iterator[Change]:
    """Yield the changes from the schema ``old`` to ``new``, as they concern these calls of ``old``."""
    before = {arg.name: arg for arg in old.arguments}
    after = {arg.name: arg for arg in new.arguments}
    renamed = _renamed(old.arguments, new.arguments)
    stated = [(node, _stated_arguments(node, before)) for node in calls]
    for name, arg in before.items():
        users = tuple(node.name for node, names in stated if name in names)
        others = tuple(node.name for node, names in stated if name not in names)
        if name in after:
            yield from _kept(arg, after[name], others)
        elif name in renamed:
            yield _rename(name, renamed[name], users)
            yield from _kept(arg, after[renamed[name]], others)
        else:
            yield _removal(arg, users, calls)
    for name in after.keys() - before.keys() - set(renamed.values()):
        yield _addition(after[name])
    yield from _order_changes(old, new, renamed, calls)


def _stated_arguments(node: OpNode, before: Mapping[str, Any]) -> set[str]:
    """Return the arguments that a call states; without a record of its operands, all that take tensors."""
    attrs = {name for name in node.attrs if name not in RECORD_ATTRS}
    if node.operands is None:
        return attrs | {name for name, arg in before.items() if "Tensor" in str(arg.type)}
    return attrs | {path_of_operand(operand)[0] for operand in node.operands}


def _renamed(before: Sequence[Any], after: Sequence[Any]) -> dict[str, str]:
    """Return the arguments that differ in nothing but their name from the one in the same position."""
    if len(before) != len(after):
        return {}
    names = {arg.name for arg in before} & {arg.name for arg in after}
    return {
        one.name: other.name
        for one, other in zip(before, after, strict=True)
        if one.name not in names and other.name not in names and _form(one) == _form(other)
    }


def _form(arg: Any) -> tuple[object, ...]:
    return str(arg.real_type), arg.N, arg.kwarg_only, _writes(arg), _default_text(arg)


def _writes(arg: Any) -> bool:
    return arg.alias_info is not None and bool(arg.alias_info.is_write)


def _default_of(arg: Any) -> Any:
    """Return the value that an absent argument has; an optional tensor is None without a default, too."""
    if arg.has_default_value() or str(arg.type) == "Optional[Tensor]":
        return arg.default_value
    return _NO_DEFAULT


def _default_text(arg: Any) -> str:
    default = _default_of(arg)
    return "no default" if default is _NO_DEFAULT else repr(default)


def _kept(old: Any, new: Any, leave_out: tuple[str, ...]) -> Iterator[Change]:
    """Yield the changes of an argument that is there before and after."""
    problem = _type_problem(old, new)
    if problem is not None:
        text = f"{old.name!r} {problem}"
        yield Change("changed type", Verdict.INCOMPATIBLE, text, old.name, _EXPORT_AGAIN)
    default = _default_of(old)
    if default is _NO_DEFAULT or _default_text(old) == _default_text(new):
        return
    text = f"{old.name!r} had the default {default!r}, and has {_default_text(new)}"
    if not leave_out:
        yield Change("changed default", Verdict.COMPATIBLE, f"{text}: every call states it", old.name)
        return
    content = _default_to_json(old, default)
    if content is _NO_DEFAULT:
        yield Change("changed default", Verdict.INCOMPATIBLE, text, old.name, _EXPORT_AGAIN, leave_out)
        return
    fix = f"{_MIGRATE} writes {new.name}={default!r} where it is left out"
    edit = ArgumentEdit("write", new.name, content)
    yield Change("changed default", Verdict.MIGRATABLE, text, old.name, fix, leave_out, edit)


def _type_problem(old: Any, new: Any) -> str | None:
    if not old.type.isSubtypeOf(new.type):
        return f"was of type {old.type}, and is of {new.type}"
    if old.N != new.N:
        return f"was a list of length {old.N or 'any'}, and is of length {new.N or 'any'}"
    if _writes(old) != _writes(new):
        return "is written to here" if _writes(new) else "was written to, and is not"
    return None


def _default_to_json(arg: Any, default: Any) -> Any:
    if default is not None and any(name in str(arg.real_type) for name in _ENCODED_TYPES):
        return _NO_DEFAULT
    try:
        return literal_to_json(to_literal(default))
    except GraphError:
        return _NO_DEFAULT


def _rename(old: str, new: str, users: tuple[str, ...]) -> Change:
    text = f"{old!r} is gone; {new!r} has its position, type and default"
    fix = f"read that {new!r} means the same; then {_MIGRATE} renames it"
    edit = ArgumentEdit("rename", old, new)
    return Change("renamed argument", Verdict.MIGRATABLE, text, old, fix, users, edit)


def _removal(arg: Any, users: tuple[str, ...], calls: Sequence[OpNode]) -> Change:
    default = _default_of(arg)
    text = f"{arg.name!r} is gone, whose default was {default!r}"
    if default is _NO_DEFAULT:
        text = f"{arg.name!r} is gone, which every call states"
    elif not any(node.name in users and not _states_default(node, arg.name, default) for node in calls):
        fix = f"read that the op does now what {arg.name}={default!r} did; then {_MIGRATE} leaves it out"
        edit = ArgumentEdit("drop", arg.name)
        return Change("removed argument", Verdict.MIGRATABLE, text, arg.name, fix, users, edit)
    return Change("removed argument", Verdict.INCOMPATIBLE, text, arg.name, _EXPORT_AGAIN, users)


def _states_default(node: OpNode, name: str, default: Any) -> bool:
    is_input = any(path_of_operand(operand)[0] == name for operand in node.operands or ())
    return not is_input and name in node.attrs and repr(node.attrs[name]) == repr(default)


def _addition(arg: Any) -> Change:
    default = _default_of(arg)
    if default is _NO_DEFAULT:
        text = f"{arg.name!r} is new, has no default, and no call states it"
        return Change("new argument", Verdict.INCOMPATIBLE, text, arg.name, _EXPORT_AGAIN)
    text = f"{arg.name!r} is new, with the default {default!r}"
    promise = "the graph means what it did if this default is what the op did before"
    return Change("new argument", Verdict.COMPATIBLE, f"{text}: {promise}", arg.name)


def _order_changes(
    old: Any, new: Any, renamed: Mapping[str, str], calls: Sequence[OpNode]
) -> Iterator[Change]:
    """Yield a change if calls are bound by the order of arguments, which is another one now.

    Lists of tensors are recorded in the order of the schema; inputs without a record are bound in it.
    """
    is_by_order = any(node.operands is None for node in calls)
    kinds = ("Tensor",) if is_by_order else ("List[Tensor]", "List[Optional[Tensor]]")
    before, after = (
        [arg.name for arg in schema.arguments if any(kind in str(arg.type) for kind in kinds)]
        for schema in (old, new)
    )
    names = [renamed.get(name, name) for name in before]
    if any(one != other for one, other in itertools.zip_longest(names, after[: len(names)])) or (
        not is_by_order and len(names) != len(after)
    ):
        text = f"its tensors were {', '.join(before)}, in this order, and are {', '.join(after)}"
        yield Change("changed order", Verdict.INCOMPATIBLE, text, fix=_EXPORT_AGAIN)
