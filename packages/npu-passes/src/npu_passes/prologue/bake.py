"""Baking: evaluation of a graph's prologue ahead of time, for weights that will not change."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from npu_ir import Graph, InputKind, OpNode, TensorType, Value, load_weights
from npu_ir.core.naming import unique_name
from npu_ir.core.node import external_names
from npu_ir.core.storage import element_span, is_dense, storage_address
from npu_ir.graph.binding import bind_weights, flatten_wrappers
from npu_ir.graph.requirement import require_graph, require_weights
from npu_ir.graph.specialize import replace_by_literal
from npu_ir.interpreter.prologue import Prologue
from npu_ir.ops.inference import infer_types
from npu_passes.rewriting.aliasing import find_visible_values, may_return_input

_CPU = torch.device("cpu")


class FoldedNames:
    """Generator of names ``folded.NAME`` that no weight, constant or input of a graph has.

    The graph gets no other new weights or constants while this is in use.
    """

    def __init__(self, graph: Graph) -> None:
        self._taken = {name: None for value in graph.arguments for name in external_names(value)}
        self._counters: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Reserve and return the name of the parameter that replaces the value ``name``."""
        folded = unique_name(self._taken, self._counters, f"folded.{name.removeprefix('folded.')}")
        self._taken[folded] = None
        return folded


def bake(
    graph: Graph, weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None
) -> tuple[Graph, dict[str, torch.Tensor]]:
    """Return an equivalent graph without prologue, for ``graph`` with fixed ``weights``, and its weights.

    Results of the prologue become parameters called ``folded.NAME``. Weights and constants that nothing
    reads afterwards are dropped. Tensors are not copied: weights that the prologue leaves alone are the
    caller's own, and share memory with the views that it makes of them. Any other parameter that the
    graph returns is copied in each call, because callers may write into results; results that are views
    of one tensor remain so.

    Args:
        graph: Any graph; it is not changed.
        weights: By ``state_dict`` key, non-persistent buffers included; or the path of a weight file.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        WeightError: Weights are missing, unexpected, or of the wrong shape or dtype.
        ExecutionError: A node of the prologue fails.
    """
    require_graph(graph)
    graph.check()
    if isinstance(weights, (str, os.PathLike)):
        weights = load_weights(weights, graph)
    require_weights(weights)
    supplied = flatten_wrappers(weights or {})
    bound = bind_weights(graph, supplied)
    device = next((tensor.device for tensor in bound.values()), _CPU)
    computed = Prologue(graph, bound, device).values_on(device)

    baked = graph.clone()
    # Storages that the caller owns: a model may return its own weights, so results in them are not copied.
    outside = {storage_address(tensor) for value, tensor in bound.items() if _is_from_caller(value, supplied)}
    tensors = _replace_prologue(baked, {value.name: item for value, item in computed.items()}, outside)
    for value in baked.arguments:
        if value.kind is not InputKind.INPUT and not value.use_count and value not in baked.updates:
            baked.erase_argument(value)
    left = {value.name for value in baked.arguments if value.kind is not InputKind.INPUT}
    for value, tensor in bound.items():
        if value.name in left and _is_from_caller(value, supplied):
            tensors[external_names(value)[0]] = tensor
    return baked, tensors


def _replace_prologue(
    graph: Graph, computed: Mapping[str, Any], outside: set[int | None]
) -> dict[str, torch.Tensor]:
    """Replace results of the prologue by parameters or numbers; return the tensors of the parameters."""
    names = FoldedNames(graph)
    contents: dict[Value, torch.Tensor] = {}

    def add(name: str, tensor: torch.Tensor, type: TensorType | None = None) -> Value:
        parameter = graph.add_parameter(names.take(name), type or TensorType.of(tensor))
        contents[parameter] = tensor
        return parameter

    nodes = graph.prologue
    for value in [value for node in nodes for value in node.outputs if value.name in computed]:
        content = computed[value.name]
        if isinstance(content, torch.Tensor):
            graph.replace_all_uses(value, add(value.name, content, value.tensor_type))
        else:
            replace_by_literal(graph, value, content)
    for node in reversed(nodes):  # readers before what they read: only unread nodes can be erased
        graph.erase(node)
    own = {
        value: tensor for value, tensor in contents.items() if storage_address(tensor) not in outside - {None}
    }
    copy_returned_parameters(graph, own, add)
    for parameter in list(contents):
        if not parameter.use_count:
            graph.erase_argument(parameter)
            del contents[parameter]
    tensors = {external_names(parameter)[0]: tensor for parameter, tensor in contents.items()}
    for target in tensors:
        graph.rename(graph.parameters[target], target)
    return tensors


def _is_from_caller(value: Value, given: Mapping[str, torch.Tensor]) -> bool:
    """Return whether the data of a weight comes from the caller, not from the graph."""
    return value.data is None or any(name in given for name in external_names(value))


# Adds a parameter with a name and data.
AddParameter = Callable[[str, torch.Tensor], Value]


def copy_returned_parameters(graph: Graph, contents: Mapping[Value, torch.Tensor], add: AddParameter) -> None:
    """Copy parameters where they are visible to callers: in results, mutated state, and aliases of these.

    There is one copy per storage, so that results that share memory still do. Other uses of the parameters
    read the original. ``contents`` has the parameters to copy, with their data. ``add`` is called if several
    share memory that none of them covers as a whole.
    """
    seen = find_visible_values(graph)
    groups: dict[object, dict[Value, torch.Tensor]] = {}
    for parameter, tensor in contents.items():
        if parameter in seen:
            groups.setdefault(_group_key(tensor), {})[parameter] = tensor
    first = next(iter(graph.body), None)
    for members in groups.values():
        _copy_storage(_CallInserter(graph, first), members, seen, add)


def _copy_storage(
    calls: _CallInserter, members: Mapping[Value, torch.Tensor], seen: set[Value], add: AddParameter
) -> None:
    """Replace parameters of one storage by a copy of it, or views of the copy, where callers see them."""
    covering = _find_covering(members)
    if covering is None:
        # Add a flat parameter, itself a view of the storage, that spans all of them.
        parameter, tensor = next(iter(members.items()))
        start, end = _extent(list(members.values()))
        flat = tensor.as_strided((end - start,), (1,), start)
        covering = add(f"{parameter.name}.memory", flat), flat
    origin, whole = covering
    copy = calls.insert("aten.clone.default", origin, {})
    for parameter, tensor in members.items():
        view = copy
        if parameter is not origin:
            # A clone keeps the strides of a dense tensor, so offsets from its start stay what they were.
            offset = tensor.storage_offset() - whole.storage_offset()
            layout = {"size": list(tensor.shape), "stride": list(tensor.stride()), "storage_offset": offset}
            view = calls.insert("aten.as_strided.default", copy, layout)
        _replace_visible_uses(calls.graph, parameter, view, seen)


class _CallInserter:
    """Inserter of calls before a given node."""

    def __init__(self, graph: Graph, first: OpNode | None) -> None:
        self.graph = graph
        self._first = first

    def insert(self, op_type: str, value: Value, attrs: dict[str, Any]) -> Value:
        types = infer_types(op_type, [value], attrs, operands=["self"], symbols=self.graph.symbols)
        node = self.graph.insert(op_type, [value], attrs, types=types, operands=["self"], before=self._first)
        return node.outputs[0]


def _replace_visible_uses(graph: Graph, old: Value, new: Value, seen: set[Value]) -> None:
    """Replace ``old`` by its copy ``new`` in results, mutated state, and nodes that may return an input."""
    graph.add_origins(new, old)
    readers = {user for user in old.users if may_return_input(user) and not seen.isdisjoint(user.outputs)}
    for node, slot in old.uses:
        if isinstance(slot, Value):
            graph.set_update(slot, new)
        elif node in readers:
            graph.set_input(node, slot, new)
    structure, leaves = graph.results
    if any(leaf is old for leaf in leaves):
        graph.set_results(structure, [new if leaf is old else leaf for leaf in leaves])


def _group_key(tensor: torch.Tensor) -> object:
    """Return a key shared by tensors that can be views of one flat tensor."""
    if not _is_viewable(tensor):
        return id(tensor)
    return storage_address(tensor), tensor.dtype, tensor.device


def _is_viewable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can be expressed as ``as_strided`` of a flat tensor."""
    is_plain = tensor.layout is torch.strided and not (tensor.is_conj() or tensor.is_neg())
    return is_plain and tensor.numel() > 0 and storage_address(tensor) is not None


def _find_covering(members: Mapping[Value, torch.Tensor]) -> tuple[Value, torch.Tensor] | None:
    """Return a member whose elements densely fill the memory of all members; None if there is none."""
    for parameter, tensor in members.items():
        if not _is_viewable(tensor):
            return parameter, tensor  # the only member of its group
    start, end = _extent(list(members.values()))
    for parameter, tensor in members.items():
        if (
            tensor.numel() == end - start
            and _extent([tensor]) == (start, end)
            and is_dense(tensor.shape, tensor.stride())
        ):
            return parameter, tensor
    return None


def _extent(tensors: list[torch.Tensor]) -> tuple[int, int]:
    """Return the storage offsets of the first element and of the end of all tensors, in elements."""
    ends = [item.storage_offset() + element_span(item.shape, item.stride()) for item in tensors]
    return int(min(item.storage_offset() for item in tensors)), int(max(ends))
