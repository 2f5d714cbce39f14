"""The unregistered tensors of a model in an exported program: named by path, buffers if mutated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from npu_ir._torch.ops import OpOverload
from npu_ir._torch.sizes import are_sizes_equal
from npu_ir.capture.aliases import LIFT, is_same_view
from npu_ir.capture.retrace import all_written_nodes
from npu_ir.capture.writes import tensor_of
from npu_ir.core.storage import storage_id
from npu_ir.ops.schema import schema_of


@contextlib.contextmanager
def register_temporarily(
    model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
) -> Iterator[dict[str, str]]:
    """Register tensors as temporary, non-persistent buffers of ``model``; yield their paths by name."""
    paths: dict[str, str] = {}
    for path, tensor in tensors.items():
        name = next(name for name in _candidate_names(len(paths)) if not hasattr(model, name))
        paths[name] = path
        model._buffers[name] = tensor
        model._non_persistent_buffers_set.add(name)
    try:
        yield paths
    finally:
        for name in paths:
            del model._buffers[name]
            model._non_persistent_buffers_set.discard(name)


def _candidate_names(first: int) -> Iterator[str]:
    while True:
        yield f"held_tensor_{first}"
        first += 1


def name_held_tensors(
    program: ExportedProgram, held: Mapping[str, torch.Tensor], paths: Mapping[str, str]
) -> None:
    """Name constants and buffers of ``program`` by their paths in the model; drop unread ones.

    Args:
        program: The exported program of the model; it is edited.
        held: The tensors that torch.export treated as constants, by path.
        paths: The paths of the temporarily registered tensors, by name.
    """
    signature = program.graph_signature
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    returned = {output.target for output in signature.output_specs}
    for spec, node in zip(list(signature.input_specs), placeholders, strict=True):
        # torch.export makes every registered buffer an argument, read or not.
        if spec.target in paths and not node.users and spec.target not in returned:
            program.graph.erase_node(node)
            signature.input_specs.remove(spec)
            del program.constants[str(spec.target)]
            continue
        path = paths.get(str(spec.target))
        if spec.kind is InputKind.CONSTANT_TENSOR:
            tensor = program.constants[str(spec.target)]
            path = next((path for path, own in held.items() if _is_same_tensor(tensor, own)), None)
        if path is not None and path not in program.constants:
            program.constants[path] = program.constants.pop(str(spec.target))
            spec.target = path
    for output in signature.output_specs:
        if output.target is not None:
            output.target = paths.get(output.target, output.target)


def find_written_constants(program: ExportedProgram) -> set[str]:
    """Return the names of constants of ``program`` that it may mutate.

    A result that may share memory with an operand counts as that operand. The FakeTensors do not show
    this for constants: that of ``constant.to(device)`` has memory of its own (torch 2.13).
    """
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder")
    constants = {
        node: str(spec.target)
        for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True)
        if spec.kind is InputKind.CONSTANT_TENSOR
    }
    # A worklist from the written nodes back to the constants whose memory they may be.
    waiting = list(all_written_nodes(program.graph_module)) if constants else []
    reached: dict[Node, None] = {}
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached[node] = None
            waiting += _possible_aliases(node)
    return {name for node, name in constants.items() if node in reached}


def _possible_aliases(node: Node) -> list[Node]:
    """Return the arguments that the result of ``node`` may alias."""
    op = node.target
    if not isinstance(op, OpOverload) or op is LIFT:
        return []
    if any(item.alias_info is not None for item in op._schema.returns):
        return node.all_input_nodes
    return [
        item for item in node.all_input_nodes if schema_of(op).is_composite and _has_same_numel(node, item)
    ]


def _has_same_numel(left: Node, right: Node) -> bool:
    sizes = [tensor.numel() for node in (left, right) if (tensor := tensor_of(node)) is not None]
    return len(sizes) == 2 and are_sizes_equal(sizes[:1], sizes[1:])


def _is_same_tensor(left: object, right: torch.Tensor) -> bool:
    """Return whether two tensors are one object, or the same view of the same memory."""
    if left is right:
        return True
    both = all(isinstance(item, torch.Tensor) and item.layout is torch.strided for item in (left, right))
    return both and storage_id(left) == storage_id(right) and is_same_view(left, right)  # type: ignore[arg-type]
