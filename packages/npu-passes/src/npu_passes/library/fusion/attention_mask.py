"""Mask of a fused attention: none, causal, of bools or of numbers, with NaN in rows that are masked whole.

``scaled_dot_product_attention`` returns 0 for a row of scores that are all ``-inf``, where the softmax that a
model writes out is NaN. A mask of numbers that is NaN in such a row makes the op return NaN, too, by both of
PyTorch's ways to compute it on a CPU and by the kernels of the backend ``host``, and costs no time there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import torch

from npu_ir import Graph, InputKind, OpNode, Value
from npu_ir.graph.binding import with_strides
from npu_passes.core.edit import Edit
from npu_passes.library.fusion.attention import Attention, Fill, NoAttentionError, hiding_number

_Mask: TypeAlias = Value | Fill
_MaskT = TypeVar("_MaskT", Value, Fill)


@dataclass(slots=True)
class AttentionMasks:
    """Maker of the masks of fused attentions in one run over one graph; layers share them."""

    graph: Graph
    _constants: list[Value] = field(default_factory=list)
    # By masks, dtype and heads: the place of the attention that a total was made for, and the total.
    _guarded: dict[Any, tuple[int, Value]] = field(default_factory=dict)
    _places: dict[OpNode, int] = field(init=False)

    def __post_init__(self) -> None:
        self._places = {node: place for place, node in enumerate(self.graph.nodes)}

    def make(self, edit: Edit, attention: Attention) -> dict[str, Any]:
        """Return the arguments ``attn_mask`` or ``is_causal`` of ``scaled_dot_product_attention``."""
        if not attention.masks:
            return {}
        known = _known_total(attention)
        if known is not None and not _masks_whole_rows(known):
            return self._arguments_of_known(known, attention)
        return {"attn_mask": self._guarded_total(edit, attention)}

    def _arguments_of_known(self, total: torch.Tensor, attention: Attention) -> dict[str, Any]:
        """Return the arguments for a mask whose numbers are known, which leaves something of each row."""
        hidden = _hidden(total)
        if bool((total[~hidden] != 0).any()):
            return {"attn_mask": self._constant(total)}
        if not bool(hidden.any()):
            return {}
        rows, columns = (item.tensor_type.shape[-2] for item in (attention.query, attention.value))
        if rows == columns == total.shape[-1] == total.shape[-2]:
            later = torch.ones(total.shape[-2:], dtype=torch.bool, device=total.device).triu(1)
            if bool((hidden == later).all()):
                return {"is_causal": True}
        return {"attn_mask": self._constant(~hidden)}

    def _constant(self, data: torch.Tensor) -> Value:
        """Return a constant of the graph with these numbers, that of another attention if it has one."""
        for value in self._constants:
            if value.data is not None and value.data.dtype == data.dtype and torch.equal(value.data, data):
                return value
        taken = {argument.name for argument in self.graph.constants.values()} | set(self.graph.constants)
        number = next(i for i in range(len(taken) + 1) if f"attention_mask_{i}" not in taken)
        value = self.graph.add_constant(f"attention_mask_{number}", data.contiguous())
        self._constants.append(value)
        return value

    def _guarded_total(self, edit: Edit, attention: Attention) -> Value:
        """Return the sum of all masks, NaN in rows in which it is ``-inf`` everywhere."""
        key = (attention.masks, attention.query.tensor_type.dtype, attention.heads)
        place = self._places[attention.nodes[-1]]
        made_at, made = self._guarded.get(key, (place + 1, None))
        if made is not None and made_at < place:  # else it is made after the place where it would be read
            return made
        total = _with_two_axes(edit, _total(edit, attention))
        if _may_be_infinite(attention.masks):
            rows = _find_whole_rows(edit, attention, total)
            total = edit.call("aten.masked_fill.Scalar", total, rows, math.nan)
        self._guarded[key] = place, total
        return total


def _find_whole_rows(edit: Edit, attention: Attention, total: Value) -> Value:
    """Return where all numbers of a row are ``-inf``, [..., rows, 1]; one fill says so by its bools."""
    *others, last = attention.masks
    if isinstance(last, Fill) and not others:
        return edit.call("aten.all.dim", _where_filled(edit, _split_heads(edit, last, attention)), -1, True)
    if not _surely_has_columns(total, edit.graph):  # there is no largest number of none
        return edit.call("aten.all.dim", edit.call("aten.eq.Scalar", total, -math.inf), -1, True)
    largest = edit.call("aten.amax.default", total, [-1], True)
    return edit.call("aten.eq.Scalar", largest, -math.inf)


def _surely_has_columns(value: Value, graph: Graph) -> bool:
    size = value.tensor_type.shape[-1]
    if isinstance(size, int):
        return size > 0
    range = graph.symbols.get(str(size))
    return range is not None and (range.low or 0) > 0


def _may_be_infinite(masks: Sequence[_Mask]) -> bool:
    """Return whether the sum of some masks may be ``-inf`` anywhere."""
    *others, last = masks
    if isinstance(last, Fill):
        return math.isinf(last.number) or (bool(others) and _may_be_infinite(others))
    data = _data_of(last)
    return bool(others) or data is None or bool((data == -math.inf).any())


def require_known_rows(attention: Attention) -> None:
    """Raise if a number that is not vast is filled in and may be in a whole row, where no weight is 0."""
    dtype = attention.query.tensor_type.dtype
    fills = (mask for mask in attention.masks if isinstance(mask, Fill))
    weak = next((fill for fill in fills if not fill.is_vast_in(dtype)), None)
    if weak is None:
        return
    known = _known_total(attention)
    if known is None or _masks_whole_rows(known):
        raise NoAttentionError(
            f"{weak.made_by!r} fills in {weak.number:g}: added to scores this is something else in a row "
            "that is masked as a whole"
        )


def _hidden(total: torch.Tensor) -> torch.Tensor:
    """Return where a mask of known numbers makes a weight 0 in every row that it does not mask whole."""
    return total <= hiding_number(total.dtype) / 2  # other masks may have added something to it


def _masks_whole_rows(total: torch.Tensor) -> bool:
    return bool(_hidden(total).all(-1).any())


def _data_of(value: Value) -> torch.Tensor | None:
    """Return the elements of a constant; None for another value."""
    if value.kind is not InputKind.CONSTANT or value.data is None:
        return None
    data: torch.Tensor = with_strides(value.data, value.tensor_type)
    return data


def _known_total(attention: Attention) -> torch.Tensor | None:
    """Return the sum of all masks where they are constants, of at least two axes; None otherwise."""
    dtype = attention.query.tensor_type.dtype
    total = torch.zeros((), dtype=dtype)
    for mask in attention.masks:
        value = mask.condition if isinstance(mask, Fill) else mask
        data = _data_of(value)
        if data is None:
            return None
        if attention.heads is not None:
            shape = attention.heads.shape(value.tensor_type.shape)
            data = data.reshape([size for size in shape if isinstance(size, int)])
        if isinstance(mask, Fill):
            total = torch.where(data == mask.at, mask.number_of(dtype), total.to(data.device))
        else:
            total = total.to(data.device) + data
    return total.expand((*[1] * (2 - total.dim()), *total.shape))


def _total(edit: Edit, attention: Attention) -> Value:
    """Return the sum of all masks as nodes, with an axis for the heads if the scores have one."""
    dtype = attention.query.tensor_type.dtype
    total: Value | None = None
    for mask in attention.masks:
        if isinstance(mask, Fill):
            fill = _split_heads(edit, mask, attention)
            if total is None:
                total = edit.call("aten.zeros_like.default", fill.condition, dtype=dtype)
            at = _where_filled(edit, fill)
            total = edit.call("aten.masked_fill.Scalar", total, at, fill.number_of(dtype))
        else:
            added = _split_heads(edit, mask, attention)
            total = added if total is None else edit.call("aten.add.Tensor", total, added)
    assert total is not None
    return total


def _split_heads(edit: Edit, mask: _MaskT, attention: Attention) -> _MaskT:
    if attention.heads is None:
        return mask
    if isinstance(mask, Fill):
        return replace(mask, condition=attention.heads.split_from(edit, mask.condition))
    return attention.heads.split_from(edit, mask)


def _where_filled(edit: Edit, fill: Fill) -> Value:
    """Return the bools that are true where a fill replaces scores."""
    return fill.condition if fill.at else edit.call("aten.logical_not.default", fill.condition)


def _with_two_axes(edit: Edit, mask: Value) -> Value:
    while mask.tensor_type.rank < 2:
        mask = edit.call("aten.unsqueeze.default", mask, 0)
    return mask
