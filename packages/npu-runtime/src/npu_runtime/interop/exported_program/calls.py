"""Operator calls in an exported program, and the paths to a node's outputs in their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from npu_ir import ConversionError, OpNode
from npu_ir.ops.execution import location_of
from npu_ir.ops.schema import HIGHER_ORDER, Op, OpSchema
from npu_runtime._torch.ops import OpOverload, auto_functionalized_op

# The indices of one tensor or number in the nested result of an operator.
Path: TypeAlias = "tuple[int, ...]"


def result_paths(node: OpNode, op: Op) -> list[Path]:
    """Return the paths to the outputs of ``node`` in the result of ``op``.

    Raises:
        ConversionError: They are ambiguous: the op returns several lists.
    """
    count = len(node.outputs)
    if not isinstance(op, OpOverload):
        is_nested = node.op_type.startswith(f"{HIGHER_ORDER}.")
        return [(index,) for index in range(count)] if is_nested else [()]
    is_list = [str(item.type).startswith("List[") for item in op._schema.returns]
    if is_list.count(True) > 1:
        raise ConversionError(
            f"{node.op_type} returns several lists, and the graph does not say which result is in which",
            where=location_of(node),
            fix="give the operator one list of results, or run the graph with npu_runtime.IRExecutor",
        )
    length = count - is_list.count(False)
    return list(_paths([length if listed else None for listed in is_list]))


def _paths(lengths: Sequence[int | None]) -> Iterator[Path]:
    """Yield the paths into a tuple of tensors (None) and lists (their lengths), or into a single result."""
    for index, length in enumerate(lengths):
        prefix = (index,) if len(lengths) > 1 else ()
        yield from [prefix] if length is None else [(*prefix, item) for item in range(length)]


def functionalize_call(
    schema: OpSchema, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any], list[Path]]:
    """Return target, arguments and result paths of a functionalized call: a mutating op on copies."""
    given = dict(zip((arg.name for arg in schema.args), args, strict=False)) | kwargs
    given = {arg.name: given.get(arg.name, arg.default_value) for arg in schema.op._schema.arguments}
    returns = len(schema.op._schema.returns)
    paths: list[Path] = [(index,) for index in range(returns)]
    position = max(returns, 1)
    for arg in schema.args:
        if not arg.writes:
            continue
        written = given[arg.name]
        if isinstance(written, list):
            paths += [(position, index) for index in range(len(written))]
        elif written is not None:
            paths.append((position,))
        position += 1
    return auto_functionalized_op(), [schema.op], given, paths


def nest_results(paths: Sequence[Path], items: Sequence[Any]) -> Any:
    """Return flat results nested as the operator returns them; None for parts without an output."""
    if list(paths) == [()]:
        return items[0]
    parts: list[Any] = [None] * (1 + max(path[0] for path in paths))
    for index in range(len(parts)):
        inner = [(path[1:], item) for path, item in zip(paths, items, strict=True) if path[0] == index]
        if inner:
            parts[index] = nest_results([path for path, _ in inner], [item for _, item in inner])
    return tuple(parts)
