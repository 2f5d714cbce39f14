"""Refusal of writes that a graph cannot represent, or that PyTorch's functionalization gets wrong."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from npu_ir._torch.ops import OpOverload, can_be_functionalized
from npu_ir._torch.sizes import is_statically_true
from npu_ir.capture.aliases import AliasSets, is_same_view
from npu_ir.capture.fx_nodes import location_of, nodes
from npu_ir.capture.writes import all_writes, out_arguments, root_of, schema_of_node, tensor_of
from npu_ir.errors import ConversionError


def require_same_shapes(program: ExportedProgram) -> None:
    """Refuse ops such as ``t_`` that change the shape of an input or buffer itself, not of a view of it."""
    for node in program.graph.nodes:
        if isinstance(node.target, OpOverload) and torch.Tag.inplace_view in node.target.tags:
            root = root_of(node)
            if root.op == "placeholder" and not is_same_view(root.meta["val"], node.meta["val"]):
                raise ConversionError(
                    f"{node.target} changes the shape or strides of {root.name!r}, which comes from outside",
                    where=location_of(node),
                    fix="take a view of it: y = x.t() in place of x.t_()",
                )


def require_separate_elements(program: ExportedProgram) -> None:
    """Refuse writes to expanded tensors: functionalization sums writes to one address (torch 2.13)."""
    for node, target in all_writes(program.graph_module):
        tensor = tensor_of(target)
        if tensor is not None and _is_expanded(tensor):
            raise ConversionError(
                f"{node.target} changes an expanded tensor in place: "
                "several of its elements share one address",
                where=location_of(node),
                fix="clone() the tensor before it is changed",
            )


def require_dense_targets(program: ExportedProgram) -> None:
    """Refuse writes into sparse tensors, which PyTorch's functionalization does not support (torch 2.13)."""
    for node, target in all_writes(program.graph_module):
        value = target.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            layout = str(value.layout).removeprefix("torch.")
            raise ConversionError(
                f"{node.target} changes a tensor of layout {layout} in place",
                where=location_of(node),
                fix="compute a new one: s = s * 2 in place of s.mul_(2)",
            )


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(
        is_statically_true(stride == 0) and not is_statically_true(size <= 1)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def require_no_written_constants(program: ExportedProgram, aliases: AliasSets) -> None:
    """Refuse writes into constants: only parameters, buffers and inputs can have updates."""
    kinds = {spec.arg.name: (spec.kind, spec.target) for spec in program.graph_signature.input_specs}
    for node, target in all_writes(program.graph_module):
        arguments = [kinds[other.name] for other in aliases.placeholders_of(target, program.graph)]
        if arguments and all(kind is InputKind.CONSTANT_TENSOR for kind, _ in arguments):
            raise ConversionError(
                f"{node.target} changes {arguments[0][1]!r}, which is not a parameter or buffer",
                where=location_of(node),
                fix="make it a buffer: self.register_buffer(name, tensor)",
            )


def require_separate_results(program: ExportedProgram) -> None:
    """Refuse custom ops that return what they write: they cannot run on a copy.

    By the naming convention of ATen, ``foo`` computes what ``foo_`` writes. Custom ops need not follow it.
    """
    for node in nodes(program.graph_module):
        schema = schema_of_node(node)
        if schema is None or not schema.writes or schema.op.namespace == "aten":
            continue
        if not schema.runs_on_copies and not can_be_functionalized(schema.op):
            raise ConversionError(
                f"{node.target} returns the tensor that it changes, "
                "and PyTorch functionalizes no such custom op",
                where=location_of(node),
                fix="let it return nothing that it changes, and read the tensor itself: "
                f"{schema.text.partition(' -> ')[0]} -> ()",
            )


def require_writes(program: ExportedProgram, functional: ExportedProgram, aliases: AliasSets) -> None:
    """Refuse a functional program that lost the write of an ``out=`` op into a placeholder."""
    updated = {
        spec.target
        for spec in functional.graph_signature.output_specs
        if spec.kind is not OutputKind.USER_OUTPUT
    }
    names = {spec.arg.name: {spec.arg.name, spec.target} for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        for destination in out_arguments(node):
            sources = [other.name for other in aliases.placeholders_of(destination)]
            is_empty = is_statically_true(destination.meta["val"].numel() == 0)
            if sources and not is_empty and not any(names[name] & updated for name in sources):
                raise ConversionError(
                    f"PyTorch's functionalization loses what {node.target} writes into {sources[0]!r}",
                    where=location_of(node),
                    fix="call the op without out= and copy its result: x.copy_(result)",
                )
