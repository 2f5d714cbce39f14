"""Kernel selection by the native registry; it needs no device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from npu_cuda import _C, errors
from npu_cuda.backend.rules import added_rules, lower_node
from npu_cuda.backend.tensor_views import ALIGNMENT, TensorView, views_of
from npu_cuda.backend.view_rules import VIEW
from npu_cuda.extension.kernel_plugins import load_plugins
from npu_ir import Graph, OpNode
from npu_ir.graph.partition import PartitionGraph
from npu_ir.plugins.backend import BackendOp, Operand
from npu_ir.plugins.plugin_manager import installed_points

_MOST_REASONS = 3


def specs_of(views: Sequence[TensorView], alignment: int) -> list[_C.TensorSpec]:
    """Return tensor specs for the native part.

    Args:
        views: The tensors.
        alignment: Alignment of their memory in bytes: `ALIGNMENT`, or 0 for that of the items.
    """
    return [item.aligned_spec if alignment else item.spec for item in views]


_KINDS: dict[str, Any] = {}


def kind_of(name: str) -> Any:
    """Return the kind of a native op by its name in the registry, where it stays once it is there."""
    if name not in _KINDS:
        _KINDS.update(_C.kinds())
    return _KINDS[name]


@functools.cache
def pointwise_instructions() -> dict[int, frozenset[str]]:
    """Return the instructions of the expression of each pointwise op, by its kind."""
    return {row["kind"]: frozenset(name for name, *_ in row["instructions"]) for row in _C.pointwise_ops()}


@functools.cache
def kinds_by_bytes() -> frozenset[int]:
    """Return the kinds of pointwise ops that the host computes by bytes where all tensors are of bytes."""
    return frozenset(row["kind"] for row in _C.pointwise_ops() if row["by_bytes"])


def select_kernel(op: BackendOp, device: str, alignment: int) -> tuple[str, str]:
    """Return the id of the kernel for ``op``, or "" and why there is none.

    Args:
        op: The op to compute.
        device: "host" or "cuda".
        alignment: Alignment of all memory in bytes; 0 for that of the items.
    """
    return _select(op, views_of(op), device, alignment)


def _selection(op: BackendOp, views: Sequence[TensorView], device: str, alignment: int) -> _C.Selection:
    """Return the kernel for ``op``, and those that were asked before it."""
    specs = specs_of(views, alignment)
    count = len(op.inputs)
    return _C.select(
        kind_of(op.kind),
        specs[:count],
        specs[count:],
        op.schema_id,
        op.attrs,
        device=device,
        deterministic=True,
    )


def _select(op: BackendOp, views: Sequence[TensorView], device: str, alignment: int) -> tuple[str, str]:
    try:
        selection = _selection(op, views, device, alignment)
    except errors.NpuCudaError as error:
        return "", str(error)
    if selection.kernel_id:
        return selection.kernel_id, ""
    reasons = list(dict.fromkeys(reason for _, reason in selection.refusals))
    more = f"; {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    refusal = "; ".join(reasons[:_MOST_REASONS]) + more
    return "", refusal or f"this build has no {device} kernel of {op.kind}"


def select_ops(node: OpNode, device: str) -> list[BackendOp] | str:
    """Return the ops of ``node`` with their kernels for aligned memory, or why there are none."""
    load_plugins(installed_points)
    reasons: dict[str, None] = {}
    try:
        for ops in lower_node(node):
            chosen = ops if isinstance(ops, str) else _with_kernels(ops, device)
            if not isinstance(chosen, str):
                return chosen
            reasons[chosen] = None
    except errors.InvalidArgumentError as error:  # a number that an attribute cannot hold
        reasons[str(error)] = None
    return "; ".join(reasons)


def passed_over(node: OpNode, device: str) -> list[str]:
    """Return why rules and kernels that users added, and that were asked first, do not compute a node."""
    reasons = []
    for rule in added_rules(node):
        ops = rule(node)
        chosen = ops if isinstance(ops, str) else _with_kernels(ops, device)
        if not isinstance(chosen, str):
            break
        reasons.append(f"the rule of {rule.kind}: {chosen}")
    origins = {kernel["id"]: kernel["origin"] for kernel in _C.kernels()}
    ops = select_ops(node, device)
    for op in ops if not isinstance(ops, str) else ():
        refusals = () if op.kind == VIEW else _selection(op, views_of(op), device, ALIGNMENT).refusals
        added = [(kernel, reason) for kernel, reason in refusals if origins.get(kernel) != "npu-cuda"]
        reasons += [f"the kernel {kernel}: {reason}" for kernel, reason in added]
    return reasons


def _with_kernel(op: BackendOp, kernel: str) -> BackendOp:
    return BackendOp(op.kind, op.inputs, op.outputs, op.nodes, kernel, op.schema_id, op.attrs, op.overwrites)


def _unknown_tensor(op: BackendOp) -> str | None:
    """Return why a tensor of an op cannot be one of the native part; None if all can."""
    try:
        specs_of(views_of(op), 0)
    except errors.NpuCudaError as error:
        return str(error)
    return None


def _with_kernels(ops: Sequence[BackendOp], device: str) -> list[BackendOp] | str:
    chosen = []
    for op in ops:
        if op.kind == VIEW:
            if (reason := _unknown_tensor(op)) is not None:
                return f"{op.kind}: {reason}"
            chosen.append(op)
            continue
        # A kernel for unaligned memory is required: a tensor may start anywhere in a storage.
        views = views_of(op)
        anywhere, refusal = _select(op, views, device, 0)
        if not anywhere:
            return f"{op.kind}: {refusal}"
        chosen.append(_with_kernel(op, _select(op, views, device, ALIGNMENT)[0]))
    return chosen


class Selections:
    """The ops of the nodes of one graph, each selected once: for its cost, and for the lowering after it.

    They are kept until the graph is edited, or nodes of another one are asked for.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._known: _Known = _Known(None, 0, {})

    def of(self, node: OpNode) -> list[BackendOp] | str:
        """Return what `select_ops` returns."""
        known = self._known
        if not known.is_of(node):
            known = self._known = _Known(node.graph, 0 if node.graph is None else node.graph.edits, {})
        ops = known.ops.get(node)
        if ops is None:
            ops = known.ops[node] = select_ops(node, self._device)
        return ops

    def of_copy(self, node: OpNode) -> list[BackendOp] | str:
        """Return the ops of a node of a partition graph: those of the node that it is a copy of."""
        original = node.graph.originals.get(node) if isinstance(node.graph, PartitionGraph) else None
        known = self._known
        if original is None or not known.is_of(original) or original not in known.ops:
            return select_ops(node, self._device)
        ops = known.ops.pop(original)  # once: two lowered graphs share no temporaries
        return ops if isinstance(ops, str) else [_moved_op(op, original, node) for op in ops]


class SelectingOnce:
    """The part of a backend that states costs: a node is asked for its support, its cost and its lowering.

    Attributes:
        name: That of the backend.
        seconds: Returns the estimated time of the ops of a node, in seconds.
    """

    name: str
    seconds: Callable[[OpNode, list[BackendOp]], float | None]

    def __init__(self) -> None:
        self._selections = Selections(self.name)

    def ops_of(self, node: OpNode) -> list[BackendOp] | str:
        """Return the ops of a node with their kernels, or why there are none."""
        return self._selections.of(node)

    def cost(self, node: OpNode) -> float | None:
        """Return the estimated time of a node in seconds; None if it has no kernels, or none is known."""
        ops = self.ops_of(node)
        return None if isinstance(ops, str) else self.seconds(node, ops)

    def ops_in_partition(self, node: OpNode) -> list[BackendOp] | str:
        """Return the ops of a node of the graph that `lower` gets."""
        return self._selections.of_copy(node)


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """The ops that are known of the nodes of a graph, after a number of edits."""

    graph: Graph | None
    edits: int
    ops: dict[OpNode, list[BackendOp] | str]

    def is_of(self, node: OpNode) -> bool:
        graph = node.graph
        return graph is not None and graph is self.graph and graph.edits == self.edits


def _moved_op(op: BackendOp, node: OpNode, copy: OpNode) -> BackendOp:
    """Return an op of a node as one of a copy of the node."""
    values: dict[Operand, Operand] = dict(zip(node.inputs, copy.inputs, strict=True))
    values.update(zip(node.outputs, copy.outputs, strict=True))
    inputs = tuple([values.get(operand, operand) for operand in op.inputs])
    outputs = tuple([values.get(operand, operand) for operand in op.outputs])
    return BackendOp(op.kind, inputs, outputs, (copy,), op.kernel, op.schema_id, op.attrs)
