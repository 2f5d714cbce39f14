"""Compile-time evaluation of constants; computations on weights move into the prologue."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import torch

from npu_ir import ExecutionError, Graph, InputKind, OpNode, TensorType, Value
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.storage import storage_address
from npu_ir.graph.binding import with_strides
from npu_ir.ops.effects import is_pure, returns_uninitialized
from npu_ir.ops.execution import execute_node
from npu_passes.core.base import Pass
from npu_passes.errors import PassError
from npu_passes.library.folding.weight_memory import MAX_BYTES, TRANSIENT, WeightMemory
from npu_passes.prologue.bake import FoldedNames
from npu_passes.rewriting.aliasing import find_visible_values
from npu_passes.rewriting.weight_dependence import is_weight_argument


class ConstantFolding(Pass):
    """Compute constants at compile time, and move nodes that depend only on weights into the prologue.

    1. A pure node whose inputs are constants, or that has no inputs (``arange``, ``full``), is run at
       compile time; its results become constants. Exceptions: nodes that create tensors on ``meta``,
       because these get a device when the graph is run, and nodes whose results the graph returns, because
       every call returns new tensors.
    2. A pure node that depends on weights - parameters, constants, and buffers that the graph does not
       update - moves into the prologue, which is evaluated once when weights are bound. Regions have no
       prologue.

    Neither applies to random ops, uninitialized memory, dynamic sizes and nodes with regions, nor to
    results that take more memory than they save: a result that is retained, as a constant or because calls
    read it from the prologue, has at most ``max_bytes``, or at most the size of all the weights that it is
    computed from. Each result counts alone: of several computed from one weight, all may be retained. Views
    take no memory of their own. Intermediate results of the prologue may be eight times as large as these
    weights: a ``bfloat16`` weight may be converted to ``float64``, and an outer product is not computed.

    Attributes:
        max_bytes: Size in bytes up to which a result is always allowed. With 0, weights that are computed
            from smaller ones, such as dequantized weights, are still computed in each call.
        weights: Whether 2. applies to nodes that read parameters and buffers. It must not in a training step:
            between two steps anyone may write to a weight that the step itself does not train.
    """

    name = "constant-folding"
    is_idempotent = True

    max_bytes: int = MAX_BYTES
    weights: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_bytes < 0:
            raise PassError(
                f"the option 'max_bytes' of {self.name} is a number of bytes, not {self.max_bytes}"
            )

    def run(self, graph: Graph) -> bool:
        before = graph.edits
        names = FoldedNames(graph)
        kept_out = find_visible_values(graph)
        for node in graph.nodes:
            if not node.in_prologue and _is_constant(node) and _may_be_constant(node, kept_out):
                self._evaluate(graph, node, names)
        if graph.owner is None:
            self._move_to_prologue(graph)
        return graph.edits != before

    # Constants

    def _evaluate(self, graph: Graph, node: OpNode, names: FoldedNames) -> None:
        """Run ``node`` if its results are not too large, and replace them by constants."""
        inputs = tuple(dict.fromkeys(node.inputs))
        if self._is_too_large(graph, node, inputs):
            return
        try:
            results = evaluate(node)
        except ExecutionError as error:
            self.refuse(node, f"it cannot be computed now: {error.message}", "constant")
            return
        with self.rewrite(graph, "constant", node) as edit:
            constants = []
            for value, result in zip(node.outputs, results, strict=True):
                if value.use_count:
                    constant = graph.add_constant(names.take(value.name), result, type=value.tensor_type)
                    edit.replace(value, constant)
                    constants.append((constant, value.name))
            edit.erase(node)
            for constant, name in constants:
                graph.rename(constant, name)
            for value in inputs:
                if not value.use_count:
                    graph.erase_argument(value)

    def _is_too_large(self, graph: Graph, node: OpNode, inputs: Sequence[Value]) -> bool:
        """Return whether the results would take more memory than they save; report a refusal if so."""
        result_bytes = sum(_size_bytes(value) for value in node.outputs)
        input_bytes = sum(_size_bytes(value) for value in inputs)
        if result_bytes <= max(self.max_bytes, input_bytes):
            return False
        if graph.owner is not None:  # else it may move to the prologue, or is refused there
            comparison = f"the {input_bytes} bytes of the constants it reads and than " if input_bytes else ""
            self.refuse(
                node,
                f"its results take {result_bytes} bytes, more than {comparison}max_bytes={self.max_bytes}",
                "constant",
            )
        return True

    # The prologue

    def _move_to_prologue(self, graph: Graph) -> None:
        """Move the nodes into the prologue that may be there and whose results are not too large."""
        candidates = _candidates(graph, weights=self.weights)
        if not candidates:
            return
        memory = WeightMemory(self.max_bytes)
        for node in graph.prologue:
            memory.add(node)
        movable: dict[OpNode, None] = {}
        for node in candidates:
            if not all(_is_known(graph, value, movable) for value in node.inputs):
                continue  # one of its producers was refused
            memory.add(node)
            if not self._refuse(node, memory.problem(node, TRANSIENT)):
                movable[node] = None
        while self._keep_large_results(graph, movable, memory):
            pass
        for nodes in _groups_by_retained_result(movable):
            with self.rewrite(graph, "prologue", *nodes):
                for node in nodes:
                    graph.move_to_prologue(node)

    def _keep_large_results(self, graph: Graph, movable: dict[OpNode, None], memory: WeightMemory) -> bool:
        """Remove nodes whose results take too much memory from those that move; return whether there was one.

        Backwards, since a node that stays makes the results that it reads retained ones, with the stricter
        limit. The nodes that read its own results stay, too.
        """
        count = len(movable)
        for node in reversed(list(movable)):
            if _is_retained(node, movable) and self._refuse(node, memory.problem(node)):
                del movable[node]
        is_smaller = len(movable) < count
        for node in list(movable):
            if not all(_is_known(graph, value, movable) for value in node.inputs):
                del movable[node]
        return is_smaller

    def _refuse(self, node: OpNode, problem: str | None) -> bool:
        if problem is not None:
            self.refuse(node, problem, "prologue")
        return problem is not None


def _is_retained(node: OpNode, movable: Container[OpNode]) -> bool:
    """Return whether calls read a result of ``node`` once the ``movable`` nodes are in the prologue."""
    return any(user not in movable for value in node.outputs for user, _ in value.uses)


def _groups_by_retained_result(movable: Mapping[OpNode, None]) -> Iterator[list[OpNode]]:
    """Yield the movable nodes in order, in groups that end with a node whose results are retained."""
    group: list[OpNode] = []
    for node in movable:
        group.append(node)
        if _is_retained(node, movable):
            yield group
            group = []
    assert not group, "the results of the last candidate are always retained"


def _is_constant(node: OpNode) -> bool:
    """Return whether all inputs of ``node`` are constants, and no attribute is the device ``meta``."""
    if any(value.kind is not InputKind.CONSTANT for value in node.inputs):
        return False
    return not any(isinstance(item, torch.device) and item.type == "meta" for item in node.attrs.values())


def _may_be_constant(node: OpNode, returned: Container[Value]) -> bool:
    """Return whether the results of ``node`` can become constants of the graph."""
    return _is_repeatable(node) and all(
        isinstance(value.type, TensorType) and value.type.layout is torch.strided and value not in returned
        for value in node.outputs
    )


def _size_bytes(value: Value) -> int:
    return value.type.numel * value.type.dtype.itemsize if isinstance(value.type, TensorType) else 0


def _candidates(graph: Graph, *, weights: bool) -> dict[OpNode, None]:
    """Return the nodes of the body that depend on weights only, or on constants only."""
    nodes: dict[OpNode, None] = {}
    for node in graph.body:
        if not weights and any(value.kind not in (None, InputKind.CONSTANT) for value in node.inputs):
            continue
        if all(_is_known(graph, value, nodes) for value in node.inputs) and _is_repeatable(node):
            nodes[node] = None
    return nodes


def _is_repeatable(node: OpNode) -> bool:
    """Return whether ``node`` has readers, and may run at another time with the same results."""
    if node.regions or any(value.type.symbols for value in node.outputs) or returns_uninitialized(node):
        return False
    return any(value.use_count for value in node.outputs) and is_pure(node)


def _is_known(graph: Graph, value: Value, movable: Container[OpNode]) -> bool:
    """Return whether ``value`` is known when weights are bound, if ``movable`` nodes are in the prologue."""
    node = value.producer
    if node is None:
        return is_weight_argument(graph, value)
    return node.in_prologue or node in movable


_CPU = torch.device("cpu")


def evaluate(node: OpNode) -> list[torch.Tensor]:
    """Return the results of a node whose inputs are all constants, in memory of their own.

    Raises:
        ExecutionError: The op fails.
    """
    data = [with_strides(value.data, value.type) for value in node.inputs]
    device = next((item.device for item in data), _CPU)
    with isolated_torch_state(device):
        return [_copy_if_shared(result, data) for result in execute_node(node, data, device)]


def _copy_if_shared(result: torch.Tensor, data: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a tensor that shares no memory with ``data``, in a storage that is no larger than needed.

    An expanded tensor stays expanded: an op may sum the elements of its dense copy in another order.
    """
    plain = result.resolve_conj().resolve_neg()
    is_shared = any(storage_address(item) == storage_address(plain) for item in data)
    if not is_shared and plain.untyped_storage().nbytes() <= plain.nbytes:
        return plain
    narrow = plain
    for axis, (size, step) in enumerate(zip(plain.shape, plain.stride(), strict=True)):
        narrow = narrow.narrow(axis, 0, 1) if size > 1 and step == 0 else narrow
    return narrow.clone().expand(plain.shape)
