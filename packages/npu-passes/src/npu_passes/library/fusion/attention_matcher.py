"""Matcher of decomposed attention, from the outermost product inwards.

A backward walk along the producers: outer product, dropouts and casts, softmax, masks, scale, inner
product. Each node taken must have a single reader, so that the whole subgraph can be replaced.
"""

from __future__ import annotations

import math
from typing import Any

from npu_ir import OpNode, Value
from npu_passes.library.fusion.attention import (
    CASTS,
    FILLS,
    INNER_PRODUCTS,
    RESHAPES,
    SCALINGS,
    WHERES,
    Attention,
    Fill,
    Heads,
    NoAttentionError,
    heads_of,
    hiding_number,
    leads_to_product,
    require_as_wide,
    require_mask,
    require_plain_cast,
    softmax_of,
    trailing_split,
    transposition_input,
)
from npu_passes.rewriting.arguments import arguments_of, number_of


def read_attention(root: OpNode) -> Attention | None:
    """Return the attention whose outermost product is ``root``; None if there is no softmax behind it.

    Raises:
        NoAttentionError: It cannot be fused; the message is the reason.
    """
    weights, value = root.inputs
    softmax, passed = softmax_of(weights)
    if softmax is None:
        return None
    reader = _Matcher(root)
    reader.take_weights(passed)
    for node in (*passed, softmax):
        require_as_wide(node, value.tensor_type.dtype)
    query, key = reader.take_factors(reader.take_scores(softmax))
    query, (key, is_transposed) = reader.strip_scales(query), reader.strip_key(key)
    masks = tuple(reversed(reader.masks))
    nodes = (*reversed(reader.nodes), *trailing_split(root, reader.heads))
    attention = Attention(query, key, value, is_transposed, reader.scale, masks, reader.heads, nodes)
    attention.require_fit()
    return attention


class _Matcher:
    """State of the match: the nodes, masks and scale met so far."""

    def __init__(self, root: OpNode) -> None:
        self.nodes = [root]
        self.masks: list[Value | Fill] = []
        self.scale = 1.0
        self.heads: Heads | None = None

    def take(self, node: OpNode) -> dict[str, Any]:
        """Add a node to the match; return its arguments."""
        if any(value.use_count != 1 for value in node.outputs):
            raise NoAttentionError(f"%{node.outputs[0].name} is read elsewhere, too")
        self.nodes.append(node)
        return arguments_of(node, defaults=True)

    def take_weights(self, nodes: list[OpNode]) -> None:
        """Take the nodes between the softmax and the outermost product."""
        for node in nodes:
            arguments = self.take(node)
            if node.op_type in CASTS:
                require_plain_cast(node, arguments)
            elif node.op_type in RESHAPES:
                self._note_heads(node)
            elif arguments["train"] and arguments["p"] != 0:
                raise NoAttentionError(f"its dropout {node.name!r} is on")

    def _note_heads(self, node: OpNode) -> None:
        heads = heads_of(node)
        if self.heads not in (None, heads):
            raise NoAttentionError(f"{node.name!r} splits or merges other heads than there were")
        self.heads = heads

    def take_scores(self, softmax: OpNode) -> OpNode:
        """Take the softmax, and the masks and scales of the scores; return the inner product."""
        arguments = self.take(softmax)
        value: Value = arguments["self"]
        if arguments["dim"] % max(value.tensor_type.rank, 1) != value.tensor_type.rank - 1:
            raise NoAttentionError(f"its softmax is over axis {arguments['dim']}, not over the last one")
        while True:
            node = value.producer
            if node is None:
                raise NoAttentionError(f"its scores %{value.name} are not a product")
            if node.op_type in INNER_PRODUCTS:
                return node
            value = self._take_score_node(node)

    def _take_score_node(self, node: OpNode) -> Value:
        """Take a node between inner product and softmax; return the scores that it reads."""
        if node.op_type in CASTS:
            arguments = self.take(node)
            require_plain_cast(node, arguments)
            require_as_wide(node, node.inputs[0].tensor_type.dtype)
        elif node.op_type in RESHAPES:
            self.take(node)
            self._note_heads(node)
        elif node.op_type == "aten.add.Tensor":
            arguments = self.take(node)
            scores, mask = arguments["self"], arguments["other"]
            if leads_to_product(mask) and not leads_to_product(scores):
                scores, mask = mask, scores
            return self._take_added_mask(node, scores, mask, arguments["alpha"])
        elif node.op_type in FILLS:
            arguments = self.take(node)
            self._add_fill(node, arguments["mask"], True, number_of(arguments["value"]), arguments["self"])
        elif node.op_type in WHERES:
            return self._take_where(node)
        elif not self._take_if_scaling(node):
            raise NoAttentionError(f"{node.name!r}, {node.op_type}, stands between product and softmax")
        return node.inputs[0]

    def _take_added_mask(self, node: OpNode, scores: Any, mask: Any, factor: Any) -> Value:
        if not (isinstance(mask, Value) and isinstance(scores, Value)) or factor != 1:
            raise NoAttentionError(f"{node.name!r} adds something that is not a mask")
        self._add_mask(node, mask, scores)
        return scores

    def _take_where(self, node: OpNode) -> Value:
        arguments = self.take(node)
        kept, other = arguments["self"], arguments["other"]
        is_filled_at = number_of(kept) is not None
        scores, filled = (other, kept) if is_filled_at else (kept, other)
        if not isinstance(scores, Value):
            raise NoAttentionError(f"{node.name!r} chooses between two numbers")
        self._add_fill(node, arguments["condition"], is_filled_at, number_of(filled), scores)
        return scores

    def _add_fill(
        self, node: OpNode, condition: Value, at: bool, number: float | None, scores: Value
    ) -> None:
        if number is None:
            raise NoAttentionError(f"{node.name!r} fills in something that is not a number")
        if not number <= hiding_number(scores.tensor_type.dtype):
            raise NoAttentionError(
                f"{node.name!r} fills in {number:g}: this may leave weights that are not 0 where it masks"
            )
        self._add_mask(node, Fill(condition, at, number, node.name), scores)

    def _add_mask(self, node: OpNode, mask: Value | Fill, scores: Value) -> None:
        # The walk goes backwards: a scale met before the mask multiplies the mask, too, and the op cannot
        # do that.
        if self.scale != 1:
            raise NoAttentionError(f"it scales its mask ({node.name!r})")
        require_mask(mask, scores)
        self.masks.append(mask)

    def _take_if_scaling(self, node: OpNode) -> bool:
        """Take a node if it multiplies or divides by a finite number; return whether it does."""
        if node.op_type not in SCALINGS:
            return False
        factor = number_of(arguments_of(node)["other"])
        if factor is None or not math.isfinite(factor) or (factor == 0 and not SCALINGS[node.op_type]):
            return False
        self.take(node)
        self.scale *= factor if SCALINGS[node.op_type] else 1 / factor
        return True

    def take_factors(self, product: OpNode) -> tuple[Value, Value]:
        """Take the inner product; return its two factors."""
        arguments = self.take(product)
        if product.op_type != "aten.baddbmm.default":
            return product.inputs[0], product.inputs[1]
        if arguments["beta"] != 0:
            self._take_added_mask(product, product.outputs[0], arguments["self"], arguments["beta"])
        self.scale *= arguments["alpha"]
        return arguments["batch1"], arguments["batch2"]

    def strip_scales(self, factor: Value) -> Value:
        """Take the scalings of a factor that have no other reader; return the unscaled factor."""
        node = factor.producer
        while node is not None and factor.use_count == 1 and self._take_if_scaling(node):
            factor = node.inputs[0]
            node = factor.producer
        return factor

    def strip_key(self, key: Value) -> tuple[Value, bool]:
        """Return the key as `strip_scales` does, and whether it is [..., E, S].

        A transposition that has other readers stays in the graph, and the fused op reads its input.
        """
        key = self.strip_scales(key)
        turned = transposition_input(key)
        if turned is None:
            return key, True
        if key.use_count > 1 or key.producer is None:
            return turned, False
        self.nodes.append(key.producer)
        return self.strip_scales(turned), False
