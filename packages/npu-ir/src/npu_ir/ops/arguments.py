"""The arguments of a node: flattened into inputs and attrs, and restored for the call.

An operator's call ``op(x, [a, None, b], dim=1)`` becomes flat ``inputs`` (x, a, b), an ``operands``
record that names the schema argument of each (``self``, ``indices[0]``, ``indices[2]``), and ``attrs``
with everything else. Two attrs complete the record, each with one entry for every such argument of the
schema, in order:

- ``_tensor_list_sizes``: the length of each ``Tensor[]`` (None where an optional list is absent);
- ``_tensor_list_none_masks``: for each ``Tensor?[]``, True where its element is None.

An absent ``Tensor?`` is not recorded. So every call can be restored exactly.

Any other argument may contain values, too: a computed size, or the operands of a control-flow operator's
regions. The attr then has None in the position of a value, and the operand names this position:
``view(x, [n, -1])`` has the attr ``size=[None, -1]`` and the operand ``size[0]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir.core.literals import Literal
from npu_ir.errors import GraphError
from npu_ir.ops.schema import ArgKind, OpSchema, SchemaArg

LIST_SIZES = "_tensor_list_sizes"
NONE_MASKS = "_tensor_list_none_masks"
RECORD_ATTRS = (LIST_SIZES, NONE_MASKS)
LIST_KINDS = (ArgKind.TENSOR_LIST, ArgKind.OPTIONAL_TENSOR_LIST)
_INDEX = re.compile(r"\[(0|[1-9][0-9]*)\]")


@dataclass(frozen=True, slots=True)
class FlatArguments:
    """A flattened call: ``operands[i]`` names the schema argument that ``inputs[i]`` fills."""

    inputs: tuple[Any, ...]
    operands: tuple[str, ...]
    attrs: dict[str, Literal]


def flatten_arguments(
    schema: OpSchema, args: Sequence[Any], kwargs: Mapping[str, Any], is_value: Callable[[Any], bool]
) -> FlatArguments:
    """Return the flattened arguments of a call of ``schema.op``; ``is_value`` tells values from plain data.

    Raises:
        GraphError: There are too many or unknown arguments, or a list mixes tensors and plain data.
    """
    arguments = _arguments_by_name(schema, args, kwargs)
    inputs: list[Any] = []
    operands: list[str] = []
    attrs: dict[str, Literal] = {}
    sizes: list[int | None] = []
    masks: list[list[bool]] = []
    for arg in schema.args:
        if arg.name not in arguments and arg.kind is not ArgKind.TENSOR_LIST:
            continue
        value = arguments.get(arg.name)
        if is_value(value):
            inputs.append(value)
            operands.append(arg.name)
        elif arg.kind in LIST_KINDS:
            elements = _elements(schema, arg, value or (), is_value)
            inputs += elements.values()
            operands += [list_operand(arg.name, index) for index in elements]
            if arg.kind is ArgKind.TENSOR_LIST:
                sizes.append(None if value is None else len(elements))
            else:
                masks.append([item is None for item in value or ()])
        elif value is None and arg.kind is ArgKind.OPTIONAL_TENSOR:
            continue
        elif not isinstance(value, (list, tuple)):
            attrs[arg.name] = value
        else:
            places: dict[str, Any] = {}
            template = _extract_values(value, arg.name, is_value, places)
            attrs[arg.name] = template if places else value
            operands += places
            inputs += places.values()
    record = {name: entries for name, entries in ((LIST_SIZES, sizes), (NONE_MASKS, masks)) if entries}
    return FlatArguments(tuple(inputs), tuple(operands), {**attrs, **record})


def _extract_values(argument: Any, path: str, is_value: Callable[[Any], bool], places: dict[str, Any]) -> Any:
    """Return nested plain data with None for its values, which are added to ``places`` by operand name."""
    if is_value(argument):
        places[path] = argument
        return None
    if isinstance(argument, (list, tuple)):
        parts = enumerate(argument)
        return [_extract_values(part, list_operand(path, index), is_value, places) for index, part in parts]
    return argument


def _elements(
    schema: OpSchema, arg: SchemaArg, items: Sequence[Any], is_value: Callable[[Any], bool]
) -> dict[int, Any]:
    """Return the values in a list argument by index; those of None are missing."""
    elements = {index: item for index, item in enumerate(items) if item is not None}
    if not all(map(is_value, elements.values())):
        raise GraphError(f"argument {arg.name!r} of {schema.name} mixes tensors and plain data: {items!r}")
    if arg.kind is ArgKind.TENSOR_LIST and len(elements) < len(items):
        raise GraphError(
            f"argument {arg.name!r} of {schema.name} is a list of tensors without None: {items!r}"
        )
    return elements


def record_problem(attrs: Mapping[str, Literal]) -> str | None:
    """Return the problem of the two attrs of the record; None if they are well formed."""
    if LIST_SIZES not in attrs and NONE_MASKS not in attrs:
        return None
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


def path_of_operand(operand: str) -> tuple[str, tuple[int, ...]]:
    """Return the argument that an operand names, and the path in it: ``("size", (0,))`` for ``size[0]``."""
    name = operand.partition("[")[0]
    return name, tuple(int(index) for index in _INDEX.findall(operand, len(name)))


def replace_by_literal(attrs: Mapping[str, Literal], operand: str, literal: Literal) -> dict[str, Literal]:
    """Return the attributes with ``literal`` in place of the input ``operand``."""
    name, path = path_of_operand(operand)
    return {**attrs, name: insert_at(attrs.get(name), path, literal, operand)}


def _arguments_by_name(schema: OpSchema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if schema.args and schema.args[-1].variadic:
        fixed = len(schema.args) - 1
        args = [*args[:fixed], list(args[fixed:])]
    if len(args) > len(schema.args):
        raise GraphError(f"{schema.name} takes {len(schema.args)} arguments, got {len(args)}")
    arguments = {arg.name: value for arg, value in zip(schema.args, args, strict=False)}
    for name, value in kwargs.items():
        if name not in schema.by_name or name in arguments:
            raise GraphError(
                f"{schema.name} got {'an unknown' if name not in arguments else 'a second'} argument {name!r}"
            )
        arguments[name] = value
    return arguments


def insert_at(template: Any, path: tuple[int, ...], item: Any, operand: str) -> Any:
    """Return a copy of a nested list with ``item`` in place of the None at ``path``."""
    if not path and template is None:
        return item
    if not path or not isinstance(template, list) or path[0] >= len(template):
        raise GraphError(
            f"there is no position for the input {operand!r}",
            fix="its attribute is a list with None in that position",
        )
    filled = insert_at(template[path[0]], path[1:], item, operand)
    return [*template[: path[0]], filled, *template[path[0] + 1 :]]
