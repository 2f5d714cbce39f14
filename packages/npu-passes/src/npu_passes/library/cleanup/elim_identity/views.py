"""Views, single or chained, that return the original tensor."""

from __future__ import annotations

from typing import Any, TypeAlias

from npu_ir import OpNode, TensorType, Value
from npu_passes.library.cleanup.elim_identity.findings import Finding
from npu_passes.rewriting.axes import PERMUTING, permutation

# They keep the row-major order of the elements, whatever the shape.
_RESHAPING = (
    "_reshape_alias",
    "_unsafe_view",
    "contiguous",
    "flatten",
    "reshape",
    "reshape_as",
    "squeeze",
    "unflatten",
    "unsqueeze",
    "view",
    "view_as",
)
# They keep all elements if the shape stays: a slice as long as its input is the whole input.
_CUTTING = (
    "broadcast_to",
    "chunk",
    "expand",
    "expand_as",
    "narrow",
    "repeat",
    "slice",
    "split",
    "sum_to_size",
    "split_with_sizes",
    "tensor_split",
    "tile",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
)
_RESHAPES = frozenset(f"aten.{name}{suffix}" for name in _RESHAPING for suffix in ("", "_copy"))
_CUTS = frozenset(f"aten.{name}{suffix}" for name in _CUTTING for suffix in ("", "_copy"))


def is_view_op(op_type: str) -> bool:
    packet = op_type.rpartition(".")[0]
    return packet in _RESHAPES or packet in _CUTS or op_type in PERMUTING


# By type: the values with the same elements in the same row-major order.
_Sequence: TypeAlias = "dict[TensorType, Value]"


class Views:
    """Views of one graph seen so far."""

    def __init__(self) -> None:
        # A class of values that are reshapes of each other shares one dict.
        self._sequences: dict[Value, _Sequence] = {}
        # By permuted value: the tensor before the first of a chain of permutations, and their composition.
        self._origins: dict[Value, tuple[Value, tuple[int, ...]]] = {}

    def find_identity(self, node: OpNode) -> Finding | None:
        """Return a finding for an earlier value that equals a view; None if there is none."""
        source = node.inputs[0]
        axes = permutation(node)
        if axes is not None:
            return self._find_permutation(node.outputs[0], source, axes)
        packet = node.op_type.rpartition(".")[0]
        for output in node.outputs:
            if packet in _RESHAPES or _shape(output) == _shape(source):
                finding = self._find_in_sequence(output, source)
                if finding is not None:
                    return finding
        return None

    def _find_in_sequence(self, made: Value, source: Value) -> Finding | None:
        if not (isinstance(made.type, TensorType) and isinstance(source.type, TensorType)):
            return None
        sequence = self._sequences.setdefault(source, {source.type: source})
        known = sequence.setdefault(made.type, made)
        if known is not made:
            return Finding("view" if known is source else "views", made, known)
        self._sequences[made] = sequence
        return None

    def _find_permutation(self, made: Value, source: Value, axes: tuple[int, ...]) -> Finding | None:
        origin, before = self._origins.get(source, (source, tuple(range(len(axes)))))
        total = tuple(before[axis] for axis in axes)
        self._origins[made] = origin, total
        # Moving only axes of size 1 keeps the row-major order.
        moved = [axis for axis in total if origin.tensor_type.shape[axis] != 1]
        if moved == sorted(moved):
            finding = self._find_in_sequence(made, origin)
            if finding is not None:
                return Finding("permutation" if source is origin else "permutations", made, finding.new)
        return None


def _shape(value: Value) -> tuple[Any, ...] | None:
    return value.type.shape if isinstance(value.type, TensorType) else None
