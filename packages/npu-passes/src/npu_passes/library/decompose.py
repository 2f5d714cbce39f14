"""Decomposition to core ATen by PyTorch's own decompositions."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_ir.ops.effects import is_random
from npu_ir.ops.schema import find_op
from npu_passes import _torch
from npu_passes.core.base import Pass, within
from npu_passes.decomposition.expansion import expand
from npu_passes.decomposition.recorded_calls import Recording, inline
from npu_passes.errors import PassError

_RULE = "core"
_NAMESPACES = ("aten.", "npu.")
_DEPTH = 8  # of decompositions that contain decomposable ops: tracing expands nearly all at once


class Decompose(Pass):
    """Decompose ATen ops into core ATen, a set of about 200 ops.

    `torch.export.default_decompositions` defines the decompositions; composite ops, which PyTorch defines
    only by other ops (``linear``, ``layer_norm``), are traced. An op stays, and the pass reports the
    reason, where PyTorch has no decomposition or only one for CPUs, where it draws random numbers, and
    where its decomposition depends on dynamic sizes.

    Run it after all other passes. In one pipeline with passes that produce ops which it decomposes, a fixed
    point is reached only if it keeps these ops: ``aten.reshape.default``, which `canonicalize` writes where
    core ATen has ``view``; and the fused ops ``npu.add_layer_norm.default``, ``npu.add_rms_norm.default``,
    ``npu.linear_activation.default``, ``npu.rotary_embedding.default`` and
    ``aten.scaled_dot_product_attention.default``. List all of them in ``keep`` then.

    Attributes:
        ops: Only nodes of these op types; all if empty.
        keep: Nodes of these op types stay.
    """

    name = "decompose"
    is_idempotent = True
    numerics = within(1e-5)
    before = ("constant-folding",)
    after = ("fuse-add-norm", "fuse-attention", "fuse-linear-activation", "fuse-rms-norm", "fuse-rotary")

    ops: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for op_type in (*self.ops, *self.keep):
            if find_op(op_type) is None:
                raise PassError(
                    f"{self.name} is given {op_type!r}, and there is no such operator",
                    fix="write namespace, name and overload: aten.linear.default",
                )
        for op_type in self.ops:
            if not op_type.startswith(_NAMESPACES):
                raise PassError(
                    f"{self.name} does not decompose {op_type}: only ops of aten and npu",
                    fix="leave it out of 'ops'",
                )

    def run(self, graph: Graph) -> bool:
        changed = False
        for part in list(graph.graphs()):
            pending = [(node, 0) for node in part.nodes if self._is_wanted(node)]
            for node, depth in pending:
                parts = self._decompose(part, node)
                changed |= parts is not None
                if depth < _DEPTH:
                    pending += [(item, depth + 1) for item in parts or () if self._is_wanted(item)]
        return changed

    def _is_wanted(self, node: OpNode) -> bool:
        if not node.op_type.startswith(_NAMESPACES) or node.op_type in self.keep:
            return False
        return node.op_type in self.ops if self.ops else not _torch.is_core(find_op(node.op_type))

    def _decompose(self, graph: Graph, node: OpNode) -> list[OpNode] | None:
        """Replace ``node`` by its decomposition; return the new nodes, or None if it stays."""
        expanded = self._expansion(graph, node)
        if expanded is None:
            return None
        with self.rewrite(graph, _RULE, node) as edit:
            inline(edit, node, expanded)
        return [graph.node(name) for name in edit.made]

    def _expansion(self, graph: Graph, node: OpNode) -> Recording | None:
        """Return the decomposition of a node; None, with a refusal reported, if it stays."""
        if is_random(node):
            reason = "it draws random numbers: other ops would draw others"
        else:
            try:
                return expand(node, graph.symbols, keep=self.keep)
            except PassError as error:
                reason = error.message
        self.refuse(node, reason, rule=_RULE)
        return None
