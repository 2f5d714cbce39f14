"""A node's arguments: taken apart into inputs and attrs, and put together again for the call.

An operator's call ``op(x, [a, None, b], dim=1)`` becomes flat ``inputs`` (x, a, b), an ``operands``
record that names the schema argument of each (``self``, ``indices[0]``, ``indices[2]``), and ``attrs``
with everything else. Two attrs complete the record, each with one entry for every such argument of the
schema, in order:

- ``_tensor_list_sizes``: the length of each ``Tensor[]`` (None where an optional list is absent);
- ``_tensor_list_none_masks``: for each ``Tensor?[]``, True where its element is None.

An absent ``Tensor?`` leaves no trace. So every call comes back exactly as it was.

Any other argument may hold values too: a size that is computed, or what a control-flow operator hands to
its regions. The attr then has None where a value belongs, and the operand says where: ``view(x, [n, -1])``
has the attr ``size=[None, -1]`` and the operand ``size[0]``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from npu_ir._torch import OpOverload
from npu_ir.errors import GraphError
from npu_ir.literals import Literal
from npu_ir.ops.schema import ArgKind, OpSchema, SchemaArg

if TYPE_CHECKING:
    from npu_ir.node import OpNode

LIST_SIZES = "_tensor_list_sizes"
NONE_MASKS = "_tensor_list_none_masks"
RECORD_ATTRS = (LIST_SIZES, NONE_MASKS)
_LISTS = (ArgKind.TENSOR_LIST, ArgKind.OPTIONAL_TENSOR_LIST)
_INDEX = re.compile(r"\[(0|[1-9][0-9]*)\]")


@dataclass(frozen=True, slots=True)
class FlatArguments:
    """A call taken apart: ``operands[i]`` names the schema argument that ``inputs[i]`` fills."""

    inputs: tuple[Any, ...]
    operands: tuple[str, ...]
    attrs: dict[str, Literal]


def flatten_arguments(
    schema: OpSchema, args: Sequence[Any], kwargs: Mapping[str, Any], is_value: Callable[[Any], bool]
) -> FlatArguments:
    """Take a call of ``schema.op`` apart.

    Args:
        schema: The operator.
        args: Positional arguments.
        kwargs: Keyword arguments.
        is_value: Tells the arguments that are values of the graph from plain data.

    Raises:
        GraphError: Too many or unknown arguments, or a list of tensors with something else in it.
    """
    given = _by_name(schema, args, kwargs)
    inputs: list[Any] = []
    operands: list[str] = []
    attrs: dict[str, Literal] = {}
    sizes: list[int | None] = []
    masks: list[list[bool]] = []
    for arg in schema.args:
        if arg.name not in given and arg.kind is not ArgKind.TENSOR_LIST:
            continue
        value = given.get(arg.name)
        if is_value(value):
            inputs.append(value)
            operands.append(arg.name)
        elif arg.kind in _LISTS:
            elements = _elements(schema, arg, value or (), is_value)
            inputs += elements.values()
            operands += [list_operand(arg.name, index) for index in elements]
            if arg.kind is ArgKind.TENSOR_LIST:
                sizes.append(None if value is None else len(elements))
            else:
                masks.append([item is None for item in value or ()])
        elif not (value is None and arg.kind is ArgKind.OPTIONAL_TENSOR):
            places: dict[str, Any] = {}
            attrs[arg.name] = _without_values(value, arg.name, is_value, places)
            operands += places
            inputs += places.values()
    record = {name: entries for name, entries in ((LIST_SIZES, sizes), (NONE_MASKS, masks)) if entries}
    return FlatArguments(tuple(inputs), tuple(operands), {**attrs, **record})


def _without_values(argument: Any, path: str, is_value: Callable[[Any], bool], places: dict[str, Any]) -> Any:
    """Return nested plain data with None for the values in it; adds these to ``places`` by operand name."""
    if is_value(argument):
        places[path] = argument
        return None
    if isinstance(argument, (list, tuple)):
        parts = enumerate(argument)
        return [_without_values(part, list_operand(path, index), is_value, places) for index, part in parts]
    return argument


def _elements(
    schema: OpSchema, arg: SchemaArg, items: Sequence[Any], is_value: Callable[[Any], bool]
) -> dict[int, Any]:
    """Return the values in a list argument by their place; None leaves a gap."""
    elements = {index: item for index, item in enumerate(items) if item is not None}
    if not all(map(is_value, elements.values())):
        raise GraphError(f"argument {arg.name!r} of {schema.name} mixes tensors and plain data: {items!r}")
    if arg.kind is ArgKind.TENSOR_LIST and len(elements) < len(items):
        raise GraphError(
            f"argument {arg.name!r} of {schema.name} is a list of tensors without None: {items!r}"
        )
    return elements


def record_problem(attrs: Mapping[str, Literal]) -> str | None:
    """Return what is wrong with the two attrs of the record, or None."""
    sizes, masks = attrs.get(LIST_SIZES, []), attrs.get(NONE_MASKS, [])
    if not isinstance(sizes, list) or not all(
        size is None or (type(size) is int and size >= 0) for size in sizes
    ):
        return f"{LIST_SIZES} is a list of sizes, None for an absent list: not {sizes!r}"
    if not isinstance(masks, list) or not all(
        isinstance(mask, list) and set(map(type, mask)) <= {bool} for mask in masks
    ):
        return f"{NONE_MASKS} is a list of lists of bools, True for None: not {masks!r}"
    return None


def list_operand(name: str, index: int) -> str:
    """Return the operand name of element ``index`` of the list argument ``name``."""
    return f"{name}[{index}]"


def place_of_operand(operand: str) -> tuple[str, tuple[int, ...]]:
    """Return the argument that an operand names, and where in it: ``("size", (0,))`` for ``size[0]``."""
    name = operand.partition("[")[0]
    return name, tuple(int(index) for index in _INDEX.findall(operand, len(name)))


def with_literal(attrs: Mapping[str, Literal], operand: str, literal: Literal) -> dict[str, Literal]:
    """Return attributes in which ``operand`` is plain data, no input any more."""
    name, path = place_of_operand(operand)
    return {**attrs, name: _put(attrs.get(name), path, literal, operand)}


def _by_name(schema: OpSchema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if schema.args and schema.args[-1].variadic:
        fixed = len(schema.args) - 1
        args = [*args[:fixed], list(args[fixed:])]
    if len(args) > len(schema.args):
        raise GraphError(f"{schema.name} takes {len(schema.args)} arguments, got {len(args)}")
    given = {arg.name: value for arg, value in zip(schema.args, args, strict=False)}
    for name, value in kwargs.items():
        if name not in schema.by_name or name in given:
            raise GraphError(
                f"{schema.name} got {'an unknown' if name not in given else 'a second'} argument {name!r}"
            )
        given[name] = value
    return given


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for input number ``index`` in a prepared call."""

    index: int


# A prepared argument: a Slot, a nested list with Slots in it, or plain data.
Template: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Binding:
    """A node's call, prepared once: only the inputs are missing.

    Attributes:
        positional: Leading arguments, all given.
        keyword: The rest by name; keyword-only arguments are always here.
        written: The inputs that the op changes in place, by number, in the order of the schema.
        sequence: What nested arguments are passed as: control-flow operators take tuples.
    """

    positional: tuple[Template, ...]
    keyword: dict[str, Template]
    written: tuple[int, ...] = ()
    sequence: type[list[Any]] | type[tuple[Any, ...]] = list

    def arguments(self, inputs: Sequence[Any], device: torch.device) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments for these inputs; ``meta`` becomes ``device``."""
        args = [self._filled(item, inputs, device) for item in self.positional]
        return args, {name: self._filled(item, inputs, device) for name, item in self.keyword.items()}

    def _filled(self, item: Template, inputs: Sequence[Any], device: torch.device) -> Any:
        if type(item) is Slot:
            return inputs[item.index]
        if type(item) is list:
            return self.sequence(self._filled(part, inputs, device) for part in item)
        if isinstance(item, torch.device) and item.type == "meta":
            return device
        return item


def bind_arguments(
    schema: OpSchema, count: int, operands: Sequence[str] | None, attrs: Mapping[str, Literal]
) -> Binding:
    """Prepare the call of ``schema.op`` on ``count`` inputs; the regions of a node are inputs, too.

    With ``operands`` the inputs go where the record says. Without it they fill the tensor arguments
    in schema order; an argument named in ``attrs`` is plain data and takes none.

    Raises:
        GraphError: An argument is missing or unknown, inputs are left over, or the record is wrong.
    """
    problem = record_problem(attrs)
    if problem is not None:
        raise GraphError(problem)
    unknown = [name for name in attrs if name not in schema.by_name and name not in RECORD_ATTRS]
    unknown += [name for name in operands or () if name.partition("[")[0] not in schema.by_name]
    if unknown:
        raise GraphError(f"{schema.name} has no argument {unknown[0]!r}", fix=f"its schema is {schema.text}")
    lists = [arg.name for arg in schema.args if arg.name in attrs and arg.kind in _LISTS]
    if lists:
        raise GraphError(
            f"argument {lists[0]!r} of {schema.name} is a list of tensors: it takes inputs, no attribute"
        )
    taker = _Taker(schema, count, operands, attrs)
    positional: list[Template] = []
    keyword: dict[str, Template] = {}
    written: list[int] = []
    for position, arg in enumerate(schema.args):
        found, template = taker.take(arg)
        if not found and arg.required:
            raise GraphError(
                f"{schema.name} needs its argument {arg.name!r}", fix=f"its schema is {schema.text}"
            )
        if not found and arg.has_default:
            continue
        written += _slots(template) if arg.writes else []
        if arg.variadic and isinstance(template, list):
            positional += template
        elif arg.kwarg_only or len(positional) < position:
            keyword[arg.name] = template
        else:
            positional.append(template)
    if taker.has_spare_record:
        raise GraphError(f"{LIST_SIZES} or {NONE_MASKS} tells of more lists than {schema.name} has")
    if taker.left:
        raise GraphError(
            f"{schema.name} leaves {taker.left} of {count} inputs unused",
            fix=f"its schema is {schema.text}",
        )
    sequence = list if isinstance(schema.op, OpOverload) else tuple
    return Binding(tuple(positional), keyword, tuple(written), sequence)


def bind_node(schema: OpSchema, node: OpNode) -> Binding:
    """Prepare the call of a node: on its inputs, then its regions.

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


def _slots(template: Template) -> list[int]:
    """Return the numbers of the inputs that fill an argument."""
    parts = template if isinstance(template, list) else [template]
    return [part.index for part in parts if isinstance(part, Slot)]


def _put(template: Template, path: tuple[int, ...], item: Template, operand: str) -> Template:
    """Return a copy of a nested list with ``item`` at ``path``, where it has None."""
    if not path and template is None:
        return item
    if not path or not isinstance(template, list) or path[0] >= len(template):
        raise GraphError(
            f"there is no place for the input {operand!r}",
            fix="its attribute is a list with None in that place",
        )
    filled = _put(template[path[0]], path[1:], item, operand)
    return [*template[: path[0]], filled, *template[path[0] + 1 :]]


class _Taker:
    """Hands the inputs of a node to the arguments of its schema, in order."""

    def __init__(
        self, schema: OpSchema, count: int, operands: Sequence[str] | None, attrs: Mapping[str, Literal]
    ) -> None:
        self._schema = schema
        self._attrs = attrs
        self._sizes: Iterator[int | None] = iter(attrs.get(LIST_SIZES) or ())
        self._masks: Iterator[Iterable[bool]] = iter(attrs.get(NONE_MASKS) or ())
        self._recorded = None if operands is None else {name: index for index, name in enumerate(operands)}
        self._pending = list(range(count - 1, -1, -1))
        self._taken = 0
        self._count = count

    @property
    def has_spare_record(self) -> bool:
        """Whether the record tells of more lists than were asked for."""
        nothing = object()
        return next(self._sizes, nothing) is not nothing or next(self._masks, nothing) is not nothing

    @property
    def left(self) -> int:
        return self._count - self._taken

    def take(self, arg: SchemaArg) -> tuple[bool, Template]:
        """Return whether ``arg`` is given, and what fills it."""
        if arg.kind is ArgKind.TENSOR_LIST:
            size = next(self._sizes, self._unsized(arg))
            return (False, None) if size is None else (True, self._list(arg, itertools.repeat(False, size)))
        if arg.kind is ArgKind.OPTIONAL_TENSOR_LIST:
            return True, self._list(arg, next(self._masks, itertools.repeat(False, self._unsized(arg))))
        if arg.name in self._attrs:
            return True, self._with_slots(arg.name)
        if self._recorded is not None:
            given = arg.name in self._recorded
        else:
            given = arg.kind in (ArgKind.TENSOR, ArgKind.OPTIONAL_TENSOR) and bool(self._pending)
        return given, self._slot(arg.name) if given else None

    def _with_slots(self, name: str) -> Template:
        """Return an attribute with the inputs that belong into it in their places."""
        template: Template = self._attrs[name]
        for operand, index in (self._recorded or {}).items():
            if "[" not in operand:
                continue
            argument, path = place_of_operand(operand)
            if argument == name:
                template = _put(template, path, Slot(index), operand)
                self._taken += 1
        return template

    def _unsized(self, arg: SchemaArg) -> int:
        """Return how many inputs a list takes whose size no attr tells."""
        if self._recorded is None:
            return self.left
        return sum(name.partition("[")[0] == arg.name for name in self._recorded)

    def _list(self, arg: SchemaArg, mask: Iterable[bool]) -> list[Slot | None]:
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
