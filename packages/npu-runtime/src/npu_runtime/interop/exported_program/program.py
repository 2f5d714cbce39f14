"""Conversion of a graph and its weights to an exported program, or to a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir import ConversionError, Graph, InputKind, OpNode, Value, load_weights
from npu_ir.core.structure import unflatten
from npu_ir.graph.binding import bind_weights
from npu_ir.graph.requirement import require_graph
from npu_ir.ops.effects import is_view
from npu_ir.ops.schema import find_op, schema_of
from npu_runtime._torch.export import tree_spec
from npu_runtime._torch.ops import OpOverload
from npu_runtime.interop.exported_program.arguments import write_arguments
from npu_runtime.interop.exported_program.metadata import Metadata, parameter_names
from npu_runtime.interop.exported_program.nodes import NodeWriter
from npu_runtime.interop.exported_program.trusted_layouts import make_trusted_layouts
from npu_runtime.planned.fixed_signature import require_fixed_signature

_UPDATES = {
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.STATE: OutputKind.BUFFER_MUTATION,
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.INPUT: OutputKind.USER_INPUT_MUTATION,
}

_SPECS: dict[type, Callable[[str], ArgumentSpec]] = {
    torch.Tensor: TensorArgument,
    torch.SymInt: SymIntArgument,
    torch.SymFloat: SymFloatArgument,
    torch.SymBool: SymBoolArgument,
}


def to_torch(
    graph: Graph,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    *,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> GraphModule:
    """Return ``graph`` as a PyTorch module with the call signature and results of the model.

    Its ``state_dict`` has the keys of the model's. It mutates what the model mutates: its own buffers, and
    inputs. The arguments of a call are checked. No parameter requires a gradient: a graph does not record
    where the model stopped gradients.

    Args:
        graph: Any program.
        weights: Parameters and buffers by ``state_dict`` key, or the path of a weights file. The module
            shares their memory, except for those that it mutates.
        constants: Tensors by name in place of the graph's constants or of non-persistent buffers.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        WeightError: Weights are missing, unexpected, or of another shape or dtype.
        ConversionError: The graph contains a node that an exported program cannot; names the node.
    """
    program = to_exported_program(graph, weights, constants=constants)
    try:
        module = program.module()
    except Exception as error:
        raise _refusal(graph, error) from error
    make_trusted_layouts(module)
    # PyTorch raises in train() and eval() of the module of an exported program; here nothing depends on the
    # mode.
    for name in ("train", "eval"):
        module.__dict__.pop(name, None)
    return module


def to_exported_program(
    graph: Graph,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    *,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> ExportedProgram:
    """Return ``graph`` as a functional exported program, as from `torch.export.export`.

    Its operators are those of the graph. `npu_ir.convert_exported_program` converts it back to the same
    graph, so it has no copies for kernels that trust strides which PyTorch states wrongly: `to_torch` and
    executors make them. Nodes of the prologue become ordinary nodes: run `npu_passes.bake` first to evaluate
    them. The arguments and errors are those of `to_torch`.
    """
    require_graph(graph)
    graph.check()
    require_fixed_signature(
        graph,
        ConversionError,
        of_buffers="a program of PyTorch writes into its buffers",
        of_overlaps="a program of PyTorch cannot state that",
    )
    if isinstance(weights, (str, os.PathLike)):
        weights = load_weights(weights, graph)
    tensors = bind_weights(graph, weights, constants)
    device = next((tensor.device for tensor in tensors.values()), torch.device("cpu"))
    metadata = Metadata(graph, device)
    root, fx_graph = torch.nn.Module(), FxGraph()
    arguments = write_arguments(fx_graph, graph, tensors, metadata)
    writer = NodeWriter(root, fx_graph, metadata, device)
    writer.nodes.update(arguments.nodes)
    for node in graph.nodes:
        writer.write(node)
    outputs = _write_results(fx_graph, graph, writer)
    args, kwargs = _example_call(graph, metadata)
    try:
        return ExportedProgram(
            root=GraphModule(root, fx_graph),
            graph=fx_graph,
            graph_signature=ExportGraphSignature(arguments.specs, outputs),
            state_dict=arguments.state,
            range_constraints=metadata.context.ranges,
            module_call_graph=[ModuleCallEntry("", _call_signature(graph, (args, kwargs)))],
            example_inputs=(args, kwargs),
            constants=dict(arguments.constants),
        )
    except Exception as error:
        raise _refusal(graph, error) from error


def _refusal(graph: Graph, error: Exception) -> ConversionError:
    reason = str(error).strip().partition("\n")[0]
    return ConversionError(
        f"PyTorch refuses the program: {type(error).__name__}: {reason}",
        where=f"graph {graph.name!r}",
        fix="rename or leave out what PyTorch's own exception names,"
        " or run the graph with npu_runtime.IRExecutor",
    )


def _write_results(fx_graph: FxGraph, graph: Graph, writer: NodeWriter) -> list[OutputSpec]:
    """Write the output node, new contents before results; return their specifications."""
    memory = aliases_of_mutated(graph)
    specs: list[OutputSpec] = []
    results: list[Any] = []
    for kind, update in _UPDATES.items():
        for target, content in graph.updates.items():
            assert target.argument is not None
            if target.argument.kind is not kind:
                continue
            node = writer.nodes[content]
            # The new contents are written one by one: none may alias a tensor written before it.
            if content.producer is None or content in memory or node in results:
                node = writer.clone(node)
            name = writer.nodes[target].name if kind is InputKind.INPUT else target.argument.target
            results.append(node)
            specs.append(OutputSpec(update, TensorArgument(node.name), name))
    for leaf in graph.results[1]:
        item = writer.nodes[leaf] if isinstance(leaf, Value) else leaf
        if isinstance(leaf, Value) and leaf in memory:
            item = writer.clone(item)
        results.append(item)
        specs.append(OutputSpec(OutputKind.USER_OUTPUT, _result_spec(item), None))
    output = fx_graph.output(tuple(results))
    output.meta["val"] = torch.fx.map_arg(output.args[0], lambda node: node.meta["val"])
    return specs


def _result_spec(item: Any) -> ArgumentSpec:
    if not isinstance(item, Node):
        return ConstantArgument("", item)
    fake = item.meta["val"]
    for kind, spec in _SPECS.items():
        if isinstance(fake, kind):
            return spec(item.name)
    return ConstantArgument(item.name, fake)


def _example_call(graph: Graph, metadata: Metadata) -> tuple[tuple[Any, ...], dict[str, Any]]:
    structure, leaves = graph.call
    examples = {leaf: metadata.example(leaf.type) for leaf in leaves if isinstance(leaf, Value)}
    args, kwargs = unflatten(
        structure, [examples[leaf] if isinstance(leaf, Value) else leaf for leaf in leaves]
    )
    return args, kwargs


def _call_signature(graph: Graph, call: tuple[Any, Any]) -> ModuleCallSignature:
    structure, leaves = graph.results
    results = unflatten(structure, [0] * len(leaves))
    # PyTorch lists inputs and outputs here for submodules only.
    return ModuleCallSignature([], [], tree_spec(call), tree_spec(results), parameter_names(graph))


# They return their argument, or a view of it, which their schemas do not declare.
_UNDECLARED = ("aten.lift.default", "aten._unsafe_view.default")


def aliases_of_mutated(graph: Graph) -> set[Value]:
    """Return the values that may alias an argument that the graph updates."""
    aliases = set(graph.updates)
    for node in graph.nodes:
        if not aliases.isdisjoint(node.inputs) and _may_alias(node):
            aliases.update(node.outputs)
    return aliases


def _may_alias(node: OpNode) -> bool:
    """Return whether an output may alias an input."""
    op = find_op(node.op_type)
    if not isinstance(op, OpOverload):
        return True
    return is_view(node) or schema_of(op).is_composite or node.op_type in _UNDECLARED
