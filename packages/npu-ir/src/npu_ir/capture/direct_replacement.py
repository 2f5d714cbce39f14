"""Direct replacement of ops that write by functional ops, where no later read differs.

The written tensor may be a parameter, buffer or input itself: its final content becomes an update of the
graph.

The analysis is static, on the alias sets of the exported program: a write is replaceable if every alias
of the written tensor is created by the write or after it, or has no reader after it. Then renaming all
later reads to the result of the functional op (as SSA construction does) gives the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from npu_ir._torch.fake import trial
from npu_ir._torch.ops import OpOverload
from npu_ir._torch.pytree import map_tensors, tree_leaves
from npu_ir._torch.sizes import are_sizes_equal
from npu_ir.capture.aliases import AliasSets
from npu_ir.capture.fx_nodes import make_substitute_node, nodes
from npu_ir.capture.writes import (
    fake_arguments,
    has_hidden_write,
    mutates,
    same_shape_and_dtype,
    schema_of_node,
    tensor_of,
    written_nodes,
)
from npu_ir.ops.schema import resolve, schema_of


@dataclass(frozen=True, slots=True)
class Replacement:
    """The functional call that replaces an FX node that writes."""

    call: Node  # the FX node to convert, as a call of ``op``: the node itself, or a substitute node
    op: OpOverload  # a functional op
    # For each mutated node, the index of its new content among the results; None for the only one.
    written: dict[Node, int | None]
    own: int | None = None  # the index of the result that the node itself returns, likewise


def find_direct_replacements(
    program: ExportedProgram, aliases: AliasSets, replaced: Mapping[Node, tuple[Node, Node]]
) -> dict[Node, Replacement] | None:
    """Return a replacement for every node that writes; None if one of them cannot be replaced directly.

    ``replaced`` has the nodes that replace a buffer, with the buffer and its replacement, which is read after
    the last node.
    """
    read_last = {new for _, new in replaced.values()}
    updatable = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.USER_INPUT)
    }
    replacements = {}
    for node in nodes(program.graph_module):
        if node in replaced or not mutates(node):
            continue
        replacement = _replace_batch_norm(node) if has_hidden_write(node) else _replace_single_write(node)
        if replacement is None:
            return None
        for target in replacement.written:
            is_argument = target.graph is program.graph and target.name in updatable
            if not _is_unobservable(node, target, aliases, read_last, is_argument=is_argument):
                return None
        replacements[node] = replacement
    return replacements


def _is_unobservable(
    node: Node, written: Node, aliases: AliasSets, read_last: Collection[Node], *, is_argument: bool
) -> bool:
    """Return whether only later readers of ``written`` itself can observe what ``node`` writes.

    ``read_last`` are nodes that are read after the last node. If ``written`` is an argument (a parameter,
    buffer or input), its final content is an update of the graph.
    """
    if torch.Tag.inplace_view in node.target.tags:  # type: ignore[union-attr]
        return True  # t_() and the like mutate the metadata of the Python object, not the memory
    # The caller sees a write into memory from outside: it must be the whole of one argument, for an update.
    if aliases.is_from_outside(written) and not (
        is_argument and written.op == "placeholder" and aliases.placeholders_of(written) == [written]
    ):
        return False
    now = aliases.position[node]
    # Aliases created at or after the write derive from the new content; older ones must not be read again.
    return all(
        alias is written
        or aliases.position[alias] >= now
        or (alias not in read_last and all(aliases.position[user] <= now for user in alias.users))
        for alias in aliases.of(written)
    )


_BATCH_NORM = torch.ops.aten.batch_norm.default
_FUNCTIONAL_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default


def _replace_batch_norm(node: Node) -> Replacement | None:
    """Return the replacement of ``batch_norm`` in training mode, which writes its running statistics."""
    if node.target is not _BATCH_NORM or len(node.args) < 8:
        return None
    args = tuple(node.args[:8])  # without the last one, cudnn_enabled: it selects an implementation
    mean, variance = args[3:5]
    if not (isinstance(mean, Node) and isinstance(variance, Node)):
        return None
    fakes, _ = fake_arguments(args, {})
    try:
        with trial([node.meta["val"]]):
            results = _FUNCTIONAL_BATCH_NORM(*fakes)
    except (IndexError, RuntimeError):  # no input of this shape, or its sizes are known only at run time
        return None
    call = make_substitute_node(node, _FUNCTIONAL_BATCH_NORM, args, results)
    return Replacement(call, _FUNCTIONAL_BATCH_NORM, {mean: 3, variance: 4}, own=0)


def _replace_single_write(node: Node) -> Replacement | None:
    targets = written_nodes(node)
    functional = _functional_op(node) if len(targets) == 1 else None
    return None if functional is None else Replacement(node, functional, {targets[0]: None})


def _functional_op(node: Node) -> OpOverload | None:
    """Return the functional op of the in-place op of ``node``; None if there is none of the same type.

    Only the names of ATen ops relate the two: ``relu`` and ``relu_``.
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
    # The first argument may have another name: dropout calls it input, dropout_ self.
    same_arguments = [arg.kind for arg in candidate.args] == [arg.kind for arg in schema.args] and [
        arg.name for arg in candidate.args[1:]
    ] == [arg.name for arg in schema.args[1:]]
    if candidate.writes or not same_arguments or not _has_same_type(node, functional):
        return None
    return functional


def _has_same_type(node: Node, functional: OpOverload) -> bool:
    """Return whether ``functional`` provably returns the dtype, shape and strides of the mutated tensor.

    A write keeps the dtype and shape of its target, where the functional op promotes and broadcasts.
    """
    expected = tensor_of(node)
    if expected is None:
        return False
    args, kwargs = fake_arguments(node.args, node.kwargs)
    if torch.Tag.pointwise in functional.tags and _are_contiguous_like(expected, (args, kwargs)):
        return _pointwise_dtype(functional, args, kwargs) == expected.dtype
    try:
        with trial([expected]):
            result = functional(*args, **kwargs)
    except RuntimeError:  # the result depends on a size that is known only at run time
        return False
    return (
        isinstance(result, torch.Tensor)
        and same_shape_and_dtype(result, expected)
        and are_sizes_equal(result.stride(), expected.stride())
    )


def _are_contiguous_like(tensor: torch.Tensor, arguments: Any) -> bool:
    """Return whether all tensors in ``arguments`` are provably contiguous and of the shape of ``tensor``."""
    leaves = tree_leaves(arguments)
    if any(isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)) for leaf in leaves):
        return False
    step: Any = 1
    strides = []
    for size in reversed(tensor.shape):
        strides.append(step)
        step = step * size
    return all(
        are_sizes_equal(leaf.shape, tensor.shape) and are_sizes_equal(leaf.stride(), strides[::-1])
        for leaf in leaves
        if isinstance(leaf, torch.Tensor)
    )


def _pointwise_dtype(op: OpOverload, args: Any, kwargs: Any) -> torch.dtype | None:
    """Return the result dtype of a pointwise op, from tensors of one element.

    A trial on symbolic sizes takes a thousand times longer.
    """

    def small(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty([1] * tensor.dim(), dtype=tensor.dtype, device="meta")

    result = op(*map_tensors(small, args), **map_tensors(small, kwargs))
    return result.dtype if isinstance(result, torch.Tensor) else None
