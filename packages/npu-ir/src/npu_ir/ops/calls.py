"""Argument binding: the call of a node, prepared once from its record and attributes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from npu_ir._torch.ops import OpOverload
from npu_ir.core.literals import Literal
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import (
    LIST_KINDS,
    LIST_SIZES,
    NONE_MASKS,
    RECORD_ATTRS,
    insert_at,
    list_operand,
    path_of_operand,
    record_problem,
)
from npu_ir.ops.schema import ArgKind, OpSchema, SchemaArg

if TYPE_CHECKING:
    from npu_ir.core.node import OpNode


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder for input number ``index`` in a prepared call."""

    index: int


# A prepared argument: a Slot, a nested list with Slots in it, or plain data.
Template: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Binding:
    """The prepared call of a node, in which only the inputs are missing."""

    positional: tuple[Template, ...]  # the leading arguments, without gaps
    keyword: dict[str, Template]  # the rest by name; keyword-only arguments are always here
    written: tuple[int, ...] = ()  # the numbers of the inputs that the op mutates, in the order of the schema
    # The type of nested arguments: control-flow operators take tuples.
    sequence: type[list[Any]] | type[tuple[Any, ...]] = list

    def arguments(self, inputs: Sequence[Any], device: torch.device) -> tuple[list[Any], dict[str, Any]]:
        """Return args and kwargs for these inputs; the device ``meta`` is replaced by ``device``."""
        args = [self._fill(item, inputs, device) for item in self.positional]
        return args, {name: self._fill(item, inputs, device) for name, item in self.keyword.items()}

    def _fill(self, item: Template, inputs: Sequence[Any], device: torch.device) -> Any:
        if type(item) is Slot:
            return inputs[item.index]
        if type(item) is list:
            return self.sequence(self._fill(part, inputs, device) for part in item)
        if isinstance(item, torch.device) and item.type == "meta":
            return device
        return item


def bind_arguments(
    schema: OpSchema, count: int, operands: Sequence[str] | None, attrs: Mapping[str, Literal]
) -> Binding:
    """Prepare the call of ``schema.op`` on ``count`` inputs; the regions of a node are inputs, too.

    With ``operands`` each input fills the argument that the record names. Without it they fill the tensor
    arguments in schema order; an argument named in ``attrs`` is plain data and takes none.

    Raises:
        GraphError: An argument is missing or unknown, inputs are left over, or the record is wrong.
    """
    if schema.is_flat and operands is not None and (binding := _bind_flat(schema, count, operands, attrs)):
        return binding
    _require_known(schema, operands, attrs)
    taker = _ArgumentAssigner(schema, count, operands, attrs)
    positional: list[Template] = []
    keyword: dict[str, Template] = {}
    written: list[int] = []
    # After the first argument left at its default, the rest goes by keyword.
    for position, arg in enumerate(schema.args):
        found, template = taker.assign(arg)
        if not found and arg.required:
            raise GraphError(
                f"{schema.name} needs its argument {arg.name!r}", fix=f"its schema is {schema.text}"
            )
        if not found and arg.has_default:
            continue
        written += _slot_indices(template) if arg.writes else []
        if arg.variadic and isinstance(template, list):
            positional += template
        elif arg.kwarg_only or len(positional) < position:
            keyword[arg.name] = template
        else:
            positional.append(template)
    if taker.has_spare_record:
        raise GraphError(f"{LIST_SIZES} or {NONE_MASKS} records more lists than {schema.name} has")
    if taker.left:
        raise GraphError(
            f"{schema.name} leaves {taker.left} of {count} inputs unused",
            fix=f"its schema is {schema.text}",
        )
    sequence = list if isinstance(schema.op, OpOverload) else tuple
    return Binding(tuple(positional), keyword, tuple(written), sequence)


def _bind_flat(
    schema: OpSchema, count: int, operands: Sequence[str], attrs: Mapping[str, Literal]
) -> Binding | None:
    """Return the call where each input fills an argument of its own, as in most; None if one is in a list.

    None, too, where something is wrong, which `bind_arguments` then says.
    """
    slots = {name: Slot(index) for index, name in enumerate(operands)}
    if len(slots) != count or not slots.keys().isdisjoint(attrs):
        return None
    given: dict[str, Template] = {**attrs, **slots}
    # Anything else is in a list, in a record of lists, or unknown.
    if not (given.keys() <= schema.by_name.keys() and schema.required <= given.keys()):
        return None
    positional: list[Template] = []
    keyword: dict[str, Template] = {}
    for position, arg in enumerate(schema.args):
        name = arg.name
        if arg.has_default and name not in given:
            continue
        template = given.get(name)  # None for an optional tensor
        if arg.kwarg_only or len(positional) < position:
            keyword[name] = template
        else:
            positional.append(template)
    if not schema.writes:
        return Binding(tuple(positional), keyword)
    written = [slots[arg.name].index for arg in schema.args if arg.writes and arg.name in slots]
    return Binding(tuple(positional), keyword, tuple(written))


def _require_known(schema: OpSchema, operands: Sequence[str] | None, attrs: Mapping[str, Literal]) -> None:
    """Refuse attributes and operands that do not match an argument of the schema and its kind."""
    problem = record_problem(attrs)
    if problem is not None:
        raise GraphError(problem)
    unknown = [name for name in attrs if name not in schema.by_name and name not in RECORD_ATTRS]
    unknown += [name for name in operands or () if name.partition("[")[0] not in schema.by_name]
    if unknown:
        raise GraphError(f"{schema.name} has no argument {unknown[0]!r}", fix=f"its schema is {schema.text}")
    lists = [arg.name for arg in schema.args if arg.name in attrs and arg.kind in LIST_KINDS]
    if lists:
        raise GraphError(
            f"argument {lists[0]!r} of {schema.name} is a list of tensors: it takes inputs, not an attribute"
        )


def bind_node(schema: OpSchema, node: OpNode) -> Binding:
    """Prepare the call of a node on its inputs, followed by its regions.

    Raises:
        GraphError: As for `bind_arguments`, or the node has regions but no record of its operands.
    """
    if not node.regions:
        return bind_arguments(schema, len(node.inputs), node.operands, node.attrs)
    if node.operands is None:
        raise GraphError(
            "a node with regions says of each input which argument it fills", fix="insert it with operands="
        )
    operands = (*node.operands, *node.regions)
    return bind_arguments(schema, len(operands), operands, node.attrs)


def _slot_indices(template: Template) -> list[int]:
    """Return the numbers of the inputs that fill an argument."""
    parts = template if isinstance(template, list) else [template]
    return [part.index for part in parts if isinstance(part, Slot)]


class _ArgumentAssigner:
    """Assigns the inputs of a node to the arguments of its schema, in order."""

    def __init__(
        self, schema: OpSchema, count: int, operands: Sequence[str] | None, attrs: Mapping[str, Literal]
    ) -> None:
        self._schema = schema
        self._attrs = attrs
        self._sizes: Iterator[int | None] = iter(attrs.get(LIST_SIZES) or ())
        self._masks: Iterator[Iterable[bool]] = iter(attrs.get(NONE_MASKS) or ())
        self._recorded = None if operands is None else {name: index for index, name in enumerate(operands)}
        # Without a record, the inputs are taken from a stack with the first one on top.
        self._pending = list(range(count - 1, -1, -1))
        self._taken = 0
        self._count = count

    @property
    def has_spare_record(self) -> bool:
        """True if the record has more lists than the schema."""
        nothing = object()  # None is an entry: an absent optional list
        return next(self._sizes, nothing) is not nothing or next(self._masks, nothing) is not nothing

    @property
    def left(self) -> int:
        return self._count - self._taken

    def assign(self, arg: SchemaArg) -> tuple[bool, Template]:
        """Return whether ``arg`` is given, and its template."""
        if arg.kind is ArgKind.TENSOR_LIST:
            size = next(self._sizes, self._unrecorded_size(arg))
            if size is None:
                return False, None
            # range, for itertools.repeat refuses the sizes beyond 2**63 that a hostile file may record
            return True, self._slot_list(arg, (False for _ in range(size)))
        if arg.kind is ArgKind.OPTIONAL_TENSOR_LIST:
            return True, self._slot_list(
                arg, next(self._masks, itertools.repeat(False, self._unrecorded_size(arg)))
            )
        if arg.name in self._attrs:
            return True, self._fill_attribute(arg.name)
        if self._recorded is not None:
            is_given = arg.name in self._recorded
        else:
            is_given = arg.kind in (ArgKind.TENSOR, ArgKind.OPTIONAL_TENSOR) and bool(self._pending)
        return is_given, self._slot(arg.name) if is_given else None

    def _fill_attribute(self, name: str) -> Template:
        """Return an attribute with slots for the inputs in it."""
        template: Template = self._attrs[name]
        for operand, index in (self._recorded or {}).items():
            if "[" not in operand:
                continue
            argument, path = path_of_operand(operand)
            if argument == name:
                template = insert_at(template, path, Slot(index), operand)
                self._taken += 1
        return template

    def _unrecorded_size(self, arg: SchemaArg) -> int:
        """Return the number of inputs of a list argument whose size is not recorded."""
        if self._recorded is None:
            return self.left
        return sum(name.partition("[")[0] == arg.name for name in self._recorded)

    def _slot_list(self, arg: SchemaArg, mask: Iterable[bool]) -> list[Slot | None]:
        return [
            None if is_none else self._slot(list_operand(arg.name, index))
            for index, is_none in enumerate(mask)
        ]

    def _slot(self, operand: str) -> Slot:
        if self._recorded is not None:
            index = self._recorded.get(operand)
        else:
            index = self._pending.pop() if self._pending else None
        if index is None:
            raise GraphError(
                f"argument {operand!r} of {self._schema.name} has no input to fill it",
                fix=f"its schema is {self._schema.text}",
            )
        self._taken += 1
        return Slot(index)
