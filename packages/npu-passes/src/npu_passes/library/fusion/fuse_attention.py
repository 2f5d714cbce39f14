"""Put attentions that are written out into one op."""

from __future__ import annotations

import math
from dataclasses import replace

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass
from npu_passes.core.edit import Edit
from npu_passes.core.numerics import within
from npu_passes.library.fusion.attention import Attention, Fill, NoAttentionError
from npu_passes.library.fusion.attention_matcher import read_attention
from npu_passes.library.fusion.attention_ops import PRODUCTS
from npu_passes.rewriting.insertion import in_strides_of

_RULE = "attention"


class FuseAttention(Pass):
    """Make ``aten.scaled_dot_product_attention`` of ``matmul(softmax(matmul(q, k^T) * scale + mask), v)``.

    1. Products are ``matmul``, ``bmm`` or ``baddbmm``, of 3 or 4 axes that do not broadcast.
    2. The scale is a number, on the scores, the query or the key; multiplied by or divided by.
    3. Masks are tensors that are added, ``masked_fill`` and ``where`` with ``-inf`` or a number below -1e30, or
       several of these.
    4. Reshapes of the scores or the weights, between 3 and 4 axes, split the first axis or merge the first two.
    5. Dropout that is off goes; so do casts to a wider dtype around the softmax, in which the op computes anyway.

    Nothing else may read what is between: attention weights that a model returns are a reason to refuse. Results
    differ as the sums of the products are taken in another order, and scores of half precision are not rounded. In a
    row that is masked by ``-inf`` as a whole, the result is 0 where it was NaN.
    """

    name = "fuse-attention"
    is_idempotent = True
    numerics = within(1e-5)

    def run(self, graph: Graph) -> bool:
        """Look at every product; linear in the number of nodes."""
        edited = False
        for node in graph.nodes_of(*PRODUCTS):
            if node.in_prologue:
                continue
            try:
                attention = read_attention(node)
            except NoAttentionError as error:
                self.refuse(node, str(error), _RULE)
                continue
            if attention is not None:
                self._fuse(graph, attention)
                edited = True
        return edited

    def _fuse(self, graph: Graph, attention: Attention) -> None:
        old = attention.nodes[-1].outputs[0]
        with self.rewrite(graph, _RULE, *attention.nodes) as edit:
            parts = (attention.query, attention.key, attention.value)
            query, key, value = (_split(edit, item, attention) for item in parts)
            if attention.is_key_transposed:
                key = edit.call("aten.transpose.int", key, -2, -1)
            mask = _mask(edit, attention)
            new = edit.call(
                "aten.scaled_dot_product_attention.default",
                query,
                key,
                value,
                mask,
                scale=attention.scale,
            )
            if new.tensor_type.rank > old.tensor_type.rank:
                new = edit.call("aten.flatten.using_ints", new, 0, 1)
            _put_in_place(edit, old, new)


def _put_in_place(edit: Edit, old: Value, new: Value) -> None:
    """Make what reads ``old`` read ``new``, which may be in another memory order.

    The op often returns its result with the heads behind the rows, in the order into which models transpose it
    next: these transpositions are made anew, and then there is nothing to copy.
    """
    turns = dict.fromkeys(old.users)
    if old.type == new.type or old.is_output or not all(map(_is_turn_before_copy, turns)):
        edit.replace(old, in_strides_of(edit, new, old))
        return
    for node in turns:
        edit.replace(node.outputs[0], edit.call(node.op_type, new, **node.attrs))
        edit.erase(node)


def _is_turn_before_copy(node: OpNode) -> bool:
    """Whether all that reads a transposition returns contiguous tensors, whatever strides it reads."""
    result = node.outputs[0]
    return (
        node.op_type in ("aten.transpose.int", "aten.permute.default")
        and not result.is_output
        and all(
            user.op_type in ("aten.contiguous.default", "aten.reshape.default")
            and user.outputs[0].tensor_type.strides is None
            for user in result.users
        )
    )


def _split(edit: Edit, value: Value, attention: Attention) -> Value:
    """Return an operand with its heads on an axis of their own, if the scores are reshaped to that somewhere."""
    return value if attention.heads is None else attention.heads.split_from(edit, value)


def _split_mask(edit: Edit, mask: Value | Fill, attention: Attention) -> Value | Fill:
    if isinstance(mask, Fill):
        return replace(mask, condition=_split(edit, mask.condition, attention))
    return _split(edit, mask, attention)


def _mask(edit: Edit, attention: Attention) -> Value | None:
    """Return all masks in one: of bools that say where to look, or of numbers to add."""
    first, *others = [_split_mask(edit, mask, attention) for mask in attention.masks] or (None,)
    if first is None:
        return None
    if isinstance(first, Fill) and not others and math.isinf(first.number):
        total = edit.call("aten.logical_not.default", first.condition) if first.at else first.condition
    else:
        total = first if isinstance(first, Value) else _filled(edit, first, attention)
        for mask in others:
            total = _added(edit, total, mask)
    while total.tensor_type.rank < 2:
        total = edit.call("aten.unsqueeze.default", total, 0)
    return total


def _filled(edit: Edit, fill: Fill, attention: Attention) -> Value:
    """Return 0 where scores stay, and the number elsewhere."""
    zeros = edit.call("aten.zeros_like.default", fill.condition, dtype=attention.query.tensor_type.dtype)
    return _added(edit, zeros, fill)


def _added(edit: Edit, total: Value, mask: Value | Fill) -> Value:
    if isinstance(mask, Value):
        return edit.call("aten.add.Tensor", total, mask)
    if mask.at:
        return edit.call("aten.where.ScalarSelf", mask.condition, mask.number, total)
    return edit.call("aten.where.ScalarOther", mask.condition, total, mask.number)
