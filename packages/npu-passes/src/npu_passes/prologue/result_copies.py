"""Per-call copies of weights that a graph returns, because callers may write into results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.storage import element_span, is_dense, storage_address
from npu_ir.ops.inference import infer_types
from npu_passes.rewriting.aliasing import find_visible_values, may_return_input

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
