"""Removal of ops that return an input unchanged."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_passes.core.base import Pass
from npu_passes.library.cleanup.elim_identity.arithmetic import ARITHMETIC, Arithmetic
from npu_passes.library.cleanup.elim_identity.copies import (
    CASTS,
    COPIES,
    DROPOUTS,
    Casts,
    find_copy,
    find_dropout,
)
from npu_passes.library.cleanup.elim_identity.findings import Finding, Refused
from npu_passes.library.cleanup.elim_identity.views import Views, is_view_op
from npu_passes.rewriting.aliasing import AliasAnalysis


class _Search:
    """Search for identities in one graph, with the values seen so far."""

    def __init__(self, graph: Graph, *, signed_zeros: bool) -> None:
        self._views, self._casts = Views(), Casts(graph)
        self._arithmetic = Arithmetic(signed_zeros=signed_zeros)

    def find_identity(self, node: OpNode) -> Finding | Refused | None:
        """Return the value that can replace an output of ``node``, or the reason why none can."""
        op_type = node.op_type
        if op_type in ARITHMETIC:
            return self._arithmetic.find_identity(node)
        if op_type in CASTS:
            return self._casts.find_identity(node)
        if op_type in COPIES:
            return find_copy(node)
        if op_type in DROPOUTS:
            return find_dropout(node)
        return self._views.find_identity(node) if is_view_op(op_type) else None


class ElimIdentity(Pass):
    """Replace the output of an op by a value that has the same content, shape, dtype and strides.

    1. Dropout in evaluation mode, or with a probability of 0.
    2. ``x + 0``, ``x - 0``, ``x * 1``, ``x / 1``, ``x ** 1`` and the like, with numbers and with constants.
    3. Views, slices, permutations and repetitions, alone or in a chain, that restore the original tensor.
    4. Casts to the same dtype, and casts to a wider dtype and back.
    5. Copies, and ops that copy in a special case: ``clone``, ``cat`` of one tensor, ``pad`` by nothing.

    A result that is a tensor of its own is not replaced by an input or by another result of the graph.

    Attributes:
        signed_zeros: Keep ``x + 0`` of floating-point numbers, which turns -0.0 into 0.0: without it,
            ``1 / (x + 0)`` may be the other infinity.
    """

    name = "elim-identity"
    is_idempotent = True

    signed_zeros: bool = False

    def run(self, graph: Graph) -> bool:
        """Replace identities in one forward sweep."""
        before = graph.edits
        sharing = AliasAnalysis(graph)
        search = _Search(graph, signed_zeros=self.signed_zeros)
        for node in graph.body:
            finding = search.find_identity(node)
            if isinstance(finding, Refused):
                self.refuse(node, finding.reason, finding.rule)
            elif finding is not None and finding.old.uses:
                sharing.replace_output(self, node, finding.old, finding.new, finding.rule)
            if not node.is_erased:
                sharing.add_node(node)
        return graph.edits != before
