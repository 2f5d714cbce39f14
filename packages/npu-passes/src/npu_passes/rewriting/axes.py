"""Permutations computed by ops that reorder the axes of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npu_ir import OpNode, TensorType
from npu_passes.rewriting.arguments import arguments_of

_TWO_AXES = frozenset(
    f"aten.{name}" for name in ("transpose.int", "swapaxes.default", "swapdims.default", "transpose_copy.int")
)
_MOVES = frozenset(
    f"aten.{name}" for name in ("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
)
_LISTS = frozenset({"aten.permute.default", "aten.permute_copy.default"})
_FIXED = frozenset(f"aten.{name}.default" for name in ("t", "t_copy", "mT", "numpy_T"))
PERMUTING = _TWO_AXES | _MOVES | _LISTS | _FIXED


def permutation(node: OpNode) -> tuple[int, ...] | None:
    """Return, for each output axis, the input axis; None if the op is not a permutation."""
    if node.op_type not in PERMUTING or not isinstance(node.inputs[0].type, TensorType):
        return None
    rank = node.inputs[0].type.rank
    if node.op_type in _FIXED:
        is_reversing = node.op_type == "aten.numpy_T.default"
        return tuple(reversed(range(rank))) if is_reversing else _swapped_axes(rank, -1, -2)
    args = arguments_of(node)
    if node.op_type in _TWO_AXES:
        first, second = list(args.values())[1:]
        return _swapped_axes(rank, first, second)
    if node.op_type in _MOVES:
        return _moved_axes(rank, args)
    return tuple(axis % rank for axis in args["dims"])


def _swapped_axes(rank: int, first: int, second: int) -> tuple[int, ...]:
    axes = list(range(rank))
    if rank > 1:
        axes[first], axes[second] = axes[second], axes[first]
    return tuple(axes)


def _moved_axes(rank: int, args: Mapping[str, Any]) -> tuple[int, ...]:
    if rank == 0:
        return ()
    source, destination = (_axis_list(args[name], rank) for name in ("source", "destination"))
    places = dict(zip(destination, source, strict=True))
    others = iter(axis for axis in range(rank) if axis not in source)
    return tuple(places[axis] if axis in places else next(others) for axis in range(rank))


def _axis_list(axes: int | Sequence[int], rank: int) -> list[int]:
    return [axis % rank for axis in ([axes] if isinstance(axes, int) else axes)]
