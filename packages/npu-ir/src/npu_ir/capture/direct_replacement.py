"""Functional ops in place of those that write, where no other tensor that is read later shows the difference."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from npu_ir import _torch
from npu_ir.capture.aliases import Aliases
from npu_ir.capture.bodies import nodes
from npu_ir.capture.writes import fake_arguments, hides_a_write, schema_of_node, tensor_of, written
from npu_ir.ops.schema import resolve, schema_of


def direct_replacements(
    program: ExportedProgram, aliases: Aliases
) -> dict[Node, tuple[_torch.OpOverload, Node]] | None:
    """Return the functional op for every node that writes, and the node it writes; None where that is not enough."""
    replacements = {}
    for node in nodes(program.graph_module):
        if hides_a_write(node):
            return None
        targets = written(node)
        if not targets:
            continue
        functional = _functional_op(node) if len(targets) == 1 else None
        if functional is None or not _is_invisible(node, targets[0], aliases):
            return None
        replacements[node] = functional, targets[0]
    return replacements


def _is_invisible(node: Node, written: Node, aliases: Aliases) -> bool:
    """Whether nothing but later readers of ``written`` itself can see what ``node`` writes."""
    if torch.Tag.inplace_view in node.target.tags:  # type: ignore[union-attr]
        return True  # only the Python object changes, not the memory
    if aliases.is_from_outside(written):
        return False
    now = aliases.position[node]
    return all(
        alias is written
        or aliases.position[alias] >= now
        or all(aliases.position[user] <= now for user in alias.users)
        for alias in aliases.of(written)
    )


def _functional_op(node: Node) -> _torch.OpOverload | None:
    """Return the op that computes what ``node`` writes, if it exists and gives the same type.

    Only of ATen's ops the names say which is which: ``relu`` and ``relu_``.
    """
    schema = schema_of_node(node)
    assert schema is not None
    name = schema.op._opname
    if schema.op.namespace != "aten" or not name.endswith("_"):
        return None
    functional = resolve(f"aten.{name.removesuffix('_')}.{schema.op._overloadname}")
    if functional is None:
        return None
    candidate = schema_of(functional)
    same_arguments = [(arg.name, arg.kind) for arg in candidate.args] == [
        (arg.name, arg.kind) for arg in schema.args
    ]
    if candidate.writes or not same_arguments or not _gives_same_type(node, functional):
        return None
    return functional


def _gives_same_type(node: Node, functional: _torch.OpOverload) -> bool:
    """Whether ``functional`` gives the dtype, shape and strides that writing in place keeps, for sure."""
    expected = tensor_of(node)
    if expected is None:
        return False
    args, kwargs = fake_arguments(node.args, node.kwargs)
    try:
        with _torch.trial([expected]):
            result = functional(*args, **kwargs)
    except RuntimeError:  # what it gives depends on a size that only running the program tells
        return False
    return (
        isinstance(result, torch.Tensor)
        and result.dtype == expected.dtype
        and _torch.same_sizes(result.shape, expected.shape)
        and _torch.same_sizes(result.stride(), expected.stride())
    )
