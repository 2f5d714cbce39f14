"""Take ops apart until only core ATen is left, by PyTorch's own decompositions."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_ir.ops.effects import is_random
from npu_ir.ops.schema import find_op
from npu_passes import _torch
from npu_passes.core.base import Pass
from npu_passes.core.numerics import within
from npu_passes.decomposition.expansion import Expansion, expansion
from npu_passes.decomposition.inline import inline
from npu_passes.errors import PassError

_RULE = "core"
_NAMESPACES = ("aten.", "npu.")
_DEPTH = 8  # of parts that have parts: tracing finds nearly all at once


class Decompose(Pass):
    """Replace ATen ops by what they consist of in core ATen, which are about 200 ops.

    `torch.export.default_decompositions` says what an op consists of; ops that PyTorch itself only defines by others
    (``linear``, ``layer_norm``) are traced. An op stays, and the pass says why, where PyTorch knows no parts of it or
    only ones for CPUs, where it draws random numbers, and where the parts depend on sizes that are open.

    Run it behind everything else. In one pipeline with passes that make what it takes apart, it comes to an end only if
    it keeps that: ``aten.reshape.default``, which `canonicalize` writes where core ATen has ``view``; and what is fused,
    ``npu.add_layer_norm.default``, ``npu.add_rms_norm.default``, ``npu.linear_activation.default`` and
    ``aten.scaled_dot_product_attention.default``. ``keep`` names them all then.

    Attributes:
        ops: Only nodes of these op types; all if empty.
        keep: Nodes of these op types stay as they are.
    """

    name = "decompose"
    is_idempotent = True
    numerics = within(1e-5)
    before = ("constant-folding",)
    after = ("fuse-add-norm", "fuse-attention", "fuse-linear-activation")

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
                    f"{self.name} does not take {op_type} apart: only ops of aten and npu",
                    fix="leave it out of 'ops'",
                )

    def run(self, graph: Graph) -> bool:
        changed = False
        for part in list(graph.graphs()):
            pending = [(node, 0) for node in part.nodes if self._is_wanted(node)]
            for node, depth in pending:
                made = self._decompose(part, node)
                changed |= made is not None
                if depth < _DEPTH:
                    pending += [(item, depth + 1) for item in made or () if self._is_wanted(item)]
        return changed

    def _is_wanted(self, node: OpNode) -> bool:
        if not node.op_type.startswith(_NAMESPACES) or node.op_type in self.keep:
            return False
        return node.op_type in self.ops if self.ops else not _torch.is_core(find_op(node.op_type))

    def _decompose(self, graph: Graph, node: OpNode) -> list[OpNode] | None:
        """Return the nodes that now stand for ``node``; None if it stays."""
        found = self._expansion(graph, node)
        if found is None:
            return None
        with self.rewrite(graph, _RULE, node) as edit:
            inline(edit, node, found)
        return [graph.node(name) for name in edit.made]

    def _expansion(self, graph: Graph, node: OpNode) -> Expansion | None:
        """Return what a node consists of; None, with the reason said, if it stays."""
        if is_random(node):
            reason = "it draws random numbers: other ops would draw others"
        else:
            try:
                return expansion(node, graph.symbols, keep=self.keep)
            except PassError as error:
                reason = error.message
        self.refuse(node, reason, rule=_RULE)
        return None
