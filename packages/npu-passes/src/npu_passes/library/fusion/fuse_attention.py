"""Fusion of decomposed attention into one op."""

from __future__ import annotations

import math
from dataclasses import replace

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.library.fusion.attention import PRODUCTS, Attention, Fill, NoAttentionError
from npu_passes.library.fusion.attention_matcher import read_attention
from npu_passes.rewriting.value_replacement import match_strides

_RULE = "attention"


class FuseAttention(Pass):
    """Fuse ``matmul(softmax(matmul(q, k^T) * scale + mask), v)`` into ``aten.scaled_dot_product_attention``.

    1. Products are ``matmul``, ``bmm`` or ``baddbmm``, of 3 or 4 axes that do not broadcast.
    2. The scale is a number that multiplies or divides the scores, the query or the key.
    3. Masks are tensors that are added, ``masked_fill`` and ``where`` with ``-inf`` or a number below
       -1e30, or several of these.
    4. Reshapes of the scores or the weights, between 3 and 4 axes, split the first axis or merge the first
       two.
    5. Inactive dropout is removed; so are casts to a wider dtype around the softmax, because the op
       computes in a wider dtype anyway.

    The intermediate values must have no other readers: attention weights that a model returns are a reason
    to refuse. Results differ because the products are summed in another order, and scores of half precision
    are not rounded. In a row that is masked by ``-inf`` as a whole, the result is 0 where it was NaN.
    """

    name = "fuse-attention"
    is_idempotent = True
    numerics = within(1e-5)

    def run(self, graph: Graph) -> bool:
        """Try to match an attention at every product; linear in the number of nodes."""
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
            mask = _combined_mask(edit, attention)
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
            _replace_result(edit, old, new)


def _replace_result(edit: Edit, old: Value, new: Value) -> None:
    """Replace ``old`` by ``new``, whose strides may differ.

    The op often returns its result in the memory order [batch, rows, heads, columns], to which models
    transpose it next: if these transpositions are recreated on ``new``, nothing has to be copied.
    """
    transpositions = dict.fromkeys(old.users)
    if old.type == new.type or old.is_output or not all(map(_is_transposition_before_copy, transpositions)):
        edit.replace(old, match_strides(edit, new, old))
        return
    for node in transpositions:
        edit.replace(node.outputs[0], edit.call(node.op_type, new, **node.attrs))
        edit.erase(node)


def _is_transposition_before_copy(node: OpNode) -> bool:
    """Return whether a node is a transposition, and all its readers return contiguous tensors anyway."""
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
    """Return an operand with an axis for the heads, if the scores are reshaped to have one."""
    return value if attention.heads is None else attention.heads.split_from(edit, value)


def _split_mask(edit: Edit, mask: Value | Fill, attention: Attention) -> Value | Fill:
    if isinstance(mask, Fill):
        return replace(mask, condition=_split(edit, mask.condition, attention))
    return _split(edit, mask, attention)


def _combined_mask(edit: Edit, attention: Attention) -> Value | None:
    """Return the combined mask: boolean, true where to attend, or floating-point, added to the scores."""
    first, *others = [_split_mask(edit, mask, attention) for mask in attention.masks] or (None,)
    if first is None:
        return None
    # The op takes a boolean mask as a fill with -inf; other fills are added as numbers.
    if isinstance(first, Fill) and not others and math.isinf(first.number):
        total = edit.call("aten.logical_not.default", first.condition) if first.at else first.condition
    else:
        total = first if isinstance(first, Value) else _fill_mask(edit, first, attention)
        for mask in others:
            total = _add_mask(edit, total, mask)
    while total.tensor_type.rank < 2:
        total = edit.call("aten.unsqueeze.default", total, 0)
    return total


def _fill_mask(edit: Edit, fill: Fill, attention: Attention) -> Value:
    """Return a mask of 0 where scores stay, and of the number elsewhere."""
    zeros = edit.call("aten.zeros_like.default", fill.condition, dtype=attention.query.tensor_type.dtype)
    return _add_mask(edit, zeros, fill)


def _add_mask(edit: Edit, total: Value, mask: Value | Fill) -> Value:
    if isinstance(mask, Value):
        return edit.call("aten.add.Tensor", total, mask)
    if mask.at:
        return edit.call("aten.where.ScalarSelf", mask.condition, mask.number, total)
    return edit.call("aten.where.ScalarOther", mask.condition, total, mask.number)
