"""Weights and inputs of a graph as the placeholders and tensors of an exported program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    InputKind,
    InputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph as FxGraph
from torch.fx import Node

from npu_ir import ConversionError, Graph, ScalarType, TensorType, Value
from npu_ir import InputKind as Kind
from npu_ir.core.node import external_names
from npu_runtime.interop.exported_program.metadata import Metadata, identifier

_KINDS = {
    Kind.PARAMETER: InputKind.PARAMETER,
    Kind.BUFFER: InputKind.BUFFER,
    Kind.STATE: InputKind.BUFFER,
    Kind.CONSTANT: InputKind.CONSTANT_TENSOR,
}
_PREFIXES = {Kind.PARAMETER: "p", Kind.BUFFER: "b", Kind.STATE: "b", Kind.CONSTANT: "c"}


@dataclass(slots=True)
class Arguments:
    """The arguments of an exported program.

    Attributes:
        nodes: The placeholder of each value; of a tied one, the first.
        specs: The specification of each placeholder, in order.
        state: Parameters, persistent buffers and optimizer state by name.
        constants: Constants and the other buffers by name.
    """

    nodes: dict[Value, Any] = field(default_factory=dict)
    specs: list[InputSpec] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)


def write_arguments(
    fx_graph: FxGraph, graph: Graph, tensors: Mapping[Value, Any], metadata: Metadata
) -> Arguments:
    """Write the placeholders: parameters, buffers, optimizer state, constants, then flat call arguments."""
    arguments = Arguments()
    for value in (*graph.weights, *graph.constants.values()):
        _write_weight(fx_graph, arguments, value, _program_tensor(graph, value, tensors[value]), metadata)
    for leaf in graph.call[1]:
        _require_known(graph, leaf, metadata)
        _write_input(fx_graph, arguments, leaf, metadata)
    return arguments


def _program_tensor(graph: Graph, value: Value, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor for the program: the caller's, or a copy if it is mutated or a constant."""
    assert value.argument is not None
    if value in graph.updates or value.argument.kind is Kind.CONSTANT:
        tensor = tensor.detach().clone()
    if value.argument.kind is Kind.PARAMETER:
        return torch.nn.Parameter(tensor.detach(), requires_grad=False)
    return tensor.detach()


def _write_weight(
    fx_graph: FxGraph, arguments: Arguments, value: Value, tensor: torch.Tensor, metadata: Metadata
) -> None:
    argument = value.argument
    assert argument is not None
    persistent = argument.persistent if _KINDS[argument.kind] is InputKind.BUFFER else None
    fake = metadata.fake_value(value.type)  # one for all names: tied weights share memory
    for target in external_names(value):
        node = _placeholder(fx_graph, f"{_PREFIXES[argument.kind]}_{target}", fake)
        arguments.nodes.setdefault(value, node)
        arguments.specs.append(
            InputSpec(_KINDS[argument.kind], TensorArgument(node.name), target, persistent=persistent)
        )
        is_state = argument.kind is not Kind.CONSTANT and argument.persistent
        (arguments.state if is_state else arguments.constants)[target] = tensor


def _require_known(graph: Graph, leaf: Any, metadata: Metadata) -> None:
    if isinstance(leaf, Value) and not metadata.is_known(leaf.type):
        raise ConversionError(
            f"input %{leaf.name} is a {leaf.type}: a program of PyTorch takes tensors, sizes and fixed"
            " numbers",
            where=f"graph {graph.name!r}",
            fix="capture the model with a tensor in its place",
        )


def _write_input(fx_graph: FxGraph, arguments: Arguments, leaf: Any, metadata: Metadata) -> None:
    spec: ArgumentSpec
    if not isinstance(leaf, Value):
        node = _placeholder(fx_graph, "literal", leaf)
        spec = ConstantArgument(node.name, leaf)
    else:
        fake = (
            arguments.nodes[leaf].meta["val"] if leaf in arguments.nodes else metadata.fake_value(leaf.type)
        )
        node = _placeholder(fx_graph, leaf.name, fake)
        arguments.nodes.setdefault(leaf, node)
        spec = _spec(node, leaf)
    arguments.specs.append(InputSpec(InputKind.USER_INPUT, spec, None))


def _spec(node: Node, value: Value) -> ArgumentSpec:
    if isinstance(value.type, TensorType):
        return TensorArgument(node.name)
    assert isinstance(value.type, ScalarType)
    is_fixed = not isinstance(node.meta["val"], torch.SymInt)
    return ConstantArgument(node.name, node.meta["val"]) if is_fixed else SymIntArgument(node.name)


def _placeholder(fx_graph: FxGraph, name: str, fake: Any) -> Node:
    node = fx_graph.create_node("placeholder", identifier(name), name=identifier(name))
    node.target = node.name
    node.meta["val"] = fake
    return node
