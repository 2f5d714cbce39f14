"""Fusion of decomposed attention into one op."""

from __future__ import annotations

import torch

from npu_ir import Graph, GraphError, OpNode, TensorType, Value
from npu_passes.core.base import Pass, within
from npu_passes.core.edit import Edit, infer_call
from npu_passes.library.fusion.attention import PRODUCTS, Attention, NoAttentionError
from npu_passes.library.fusion.attention_mask import AttentionMasks, require_known_rows
from npu_passes.library.fusion.attention_matcher import read_attention
from npu_passes.rewriting.value_replacement import match_strides

_RULE = "attention"
_ATTENTION = "aten.scaled_dot_product_attention.default"


class FuseAttention(Pass):
    """Fuse ``matmul(softmax(matmul(q, k^T) * scale + mask), v)`` into ``aten.scaled_dot_product_attention``.

    1. Products are ``matmul``, ``bmm`` or ``baddbmm``, of 3 or 4 axes that do not broadcast.
    2. The scale is a number that multiplies or divides the scores, the query or the key.
    3. Masks are tensors that are added, ``masked_fill`` and ``where`` with ``-inf`` or a number of at most
       -1e30, or several of these. A number of at most -1e9 (or the least one of ``float16``) is one, too,
       where the mask is a constant that leaves something of each row. A constant that hides what comes later
       becomes ``is_causal``.
    4. Reshapes of the scores or the weights, between 3 and 4 axes, split the first axis or merge the first
       two.
    5. Inactive dropout is removed; so are casts to a wider dtype around the softmax, because the op
       computes in a wider dtype anyway.

    The intermediate values must have no other readers: attention weights that a model returns are a reason
    to refuse. Results differ because the products are summed in another order, and scores of half precision
    are not rounded. A row that ``-inf`` masks as a whole is NaN, as it was: where a mask may do that, it
    becomes one of numbers, with NaN in such rows.

    Masks are added to the scores: one that is NaN stays NaN where ``masked_fill`` or ``where`` hid it.
    In ``float16``, a row in which a tensor adds the least number to all scores has the weights of its
    scores, which eager rounds away.

    Attributes:
        bfloat16_softmax: Whether an attention is fused, too, whose softmax is of ``bfloat16`` and not, as
            usual, of ``float32``. Where the CPU has instructions for products of ``bfloat16``, PyTorch's are
            faster by more than its softmax and the memory of the scores cost.
    """

    name = "fuse-attention"
    is_idempotent = True
    numerics = within(1e-5)

    bfloat16_softmax: bool = True

    def run(self, graph: Graph) -> bool:
        """Try to match an attention at every product; linear in the number of nodes."""
        edited = False
        masks = AttentionMasks(graph)
        for node in graph.nodes_of(*PRODUCTS):
            if node.in_prologue:
                continue
            try:
                attention = read_attention(node)
                if attention is not None:
                    require_known_rows(attention)
                    _require_inferable(graph, attention)
                    self._require_other_softmax(attention)
            except NoAttentionError as error:
                self.refuse(node, str(error), _RULE)
                continue
            if attention is not None:
                self._fuse(graph, attention, masks)
                edited = True
        return edited

    def _require_other_softmax(self, attention: Attention) -> None:
        if not self.bfloat16_softmax and attention.softmax_dtype == torch.bfloat16:
            raise NoAttentionError("its softmax is of bf16, and bfloat16_softmax=false")

    def _fuse(self, graph: Graph, attention: Attention, masks: AttentionMasks) -> None:
        old = attention.nodes[-1].outputs[0]
        with self.rewrite(graph, _RULE, *attention.nodes) as edit:
            parts = (attention.query, attention.key, attention.value)
            query, key, value = (_split(edit, item, attention) for item in parts)
            if attention.is_key_transposed:
                key = edit.call("aten.transpose.int", key, -2, -1)
            mask = masks.make(edit, attention)
            new = edit.call(_ATTENTION, query, key, value, **mask, scale=attention.scale)
            if new.tensor_type.rank > old.tensor_type.rank:
                new = edit.call("aten.flatten.using_ints", new, 0, 1)
            _replace_result(edit, old, new)


def _require_inferable(graph: Graph, attention: Attention) -> None:
    """Raise if PyTorch does not infer the result for all sizes that the graph accepts."""
    if not graph.symbols:
        return
    trial = Graph("attention")
    for name, range in graph.symbols.items():
        trial.add_symbol(name, range)
    query, key, value = (
        trial.add_input(name, _operand_type(item, attention))
        for name, item in (("query", attention.query), ("key", attention.key), ("value", attention.value))
    )
    try:
        if attention.is_key_transposed:
            (type,) = infer_call(trial, "aten.transpose.int", key, -2, -1)
            key = trial.add_input("transposed", type)
        infer_call(trial, _ATTENTION, query, key, value)
    except GraphError as error:
        raise NoAttentionError(error.message) from error


def _operand_type(value: Value, attention: Attention) -> TensorType:
    """Return the type of an operand, with an axis for the heads."""
    type = value.tensor_type
    shape = type.shape if attention.heads is None else attention.heads.shape(type.shape)
    return type if shape == type.shape else TensorType(shape, type.dtype)


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
