"""Conversion of the nodes of a graph to FX nodes that call the same operators."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir import ConversionError, Graph, OpNode, Provenance, Value
from npu_ir.core.structure import unflatten
from npu_ir.ops.calls import bind_node
from npu_ir.ops.execution import FUNCTIONAL_FIX, location_of, write_problem
from npu_ir.ops.schema import HIGHER_ORDER, Op, OpSchema, find_op, schema_of
from npu_runtime._torch.ops import OpOverload, auto_functionalized_op
from npu_runtime.interop.exported_program.metadata import Metadata, identifier, unused_attribute

# The indices of one tensor or number in the nested result of an operator.
Path: TypeAlias = "tuple[int, ...]"


def result_paths(node: OpNode, op: Op) -> list[Path]:
    """Return the paths to the outputs of ``node`` in the result of ``op``.

    Raises:
        ConversionError: They are ambiguous: the op returns several lists.
    """
    count = len(node.outputs)
    if not isinstance(op, OpOverload):
        is_nested = node.op_type.startswith(f"{HIGHER_ORDER}.")
        return [(index,) for index in range(count)] if is_nested else [()]
    is_list = [str(item.type).startswith("List[") for item in op._schema.returns]
    if is_list.count(True) > 1:
        raise ConversionError(
            f"{node.op_type} returns several lists, and the graph does not say which result is in which",
            where=location_of(node),
            fix="give the operator one list of results, or run the graph with npu_runtime.IRExecutor",
        )
    length = count - is_list.count(False)
    return list(_paths([length if listed else None for listed in is_list]))


def _paths(lengths: Sequence[int | None]) -> Iterator[Path]:
    """Yield the paths into a tuple of tensors (None) and lists (their lengths), or into a single result."""
    for index, length in enumerate(lengths):
        prefix = (index,) if len(lengths) > 1 else ()
        yield from [prefix] if length is None else [(*prefix, item) for item in range(length)]


def functionalize_call(
    schema: OpSchema, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any], list[Path]]:
    """Return target, arguments and result paths of a functionalized call: a mutating op on copies."""
    given = dict(zip((arg.name for arg in schema.args), args, strict=False)) | kwargs
    given = {arg.name: given.get(arg.name, arg.default_value) for arg in schema.op._schema.arguments}
    returns = len(schema.op._schema.returns)
    paths: list[Path] = [(index,) for index in range(returns)]
    position = max(returns, 1)
    for arg in schema.args:
        if not arg.writes:
            continue
        written = given[arg.name]
        if isinstance(written, list):
            paths += [(position, index) for index in range(len(written))]
        elif written is not None:
            paths.append((position,))
        position += 1
    return auto_functionalized_op(), [schema.op], given, paths


def nest_results(paths: Sequence[Path], items: Sequence[Any]) -> Any:
    """Return flat results nested as the operator returns them; None for parts without an output."""
    if list(paths) == [()]:
        return items[0]
    parts: list[Any] = [None] * (1 + max(path[0] for path in paths))
    for index in range(len(parts)):
        inner = [(path[1:], item) for path, item in zip(paths, items, strict=True) if path[0] == index]
        if inner:
            parts[index] = nest_results([path for path, _ in inner], [item for _, item in inner])
    return tuple(parts)


def provenance_metadata(provenance: Provenance) -> dict[str, Any]:
    """Return FX metadata with the module path and source line of a node."""
    parts = provenance.module.split(".") if provenance.module else []
    paths = [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
    stack = {f"L__self__{path}": (path, "torch.nn.modules.module.Module") for path in paths}
    metadata: dict[str, Any] = {"nn_module_stack": stack}
    file, _, line = provenance.source.rpartition(":")
    if file:
        metadata["stack_trace"] = f'  File "{file}", line {line}, in <unknown>'
    return metadata


class NodeWriter:
    """Writer of the nodes of one graph, or of one region, into an FX graph.

    Args:
        module: The module that gets regions, and the constants in them, as attributes.
        graph: The FX graph.
        metadata: The metadata of the exported program.
        device: The device in place of ``meta`` in the arguments of nodes.

    Attributes:
        nodes: The FX node of each value; None for a value that is None.
    """

    def __init__(
        self, module: torch.nn.Module, graph: FxGraph, metadata: Metadata, device: torch.device
    ) -> None:
        self.nodes: dict[Value, Any] = {}
        self._module = module
        self._graph = graph
        self._metadata = metadata
        self._device = device

    def write(self, node: OpNode) -> None:
        """Append the FX node that calls the operator of ``node``.

        Raises:
            ConversionError: PyTorch has no such operator, or its results are ambiguous.
        """
        op = find_op(node.op_type)
        if op is None:
            raise ConversionError(
                f"{node.op_type} is not an operator of PyTorch",
                where=location_of(node),
                fix="register it with torch.library, or use passes that leave it out",
            )
        schema = schema_of(op)
        problem = write_problem(node.op_type, schema)
        if problem is not None:
            raise ConversionError(problem, where=location_of(node), fix=FUNCTIONAL_FIX)
        inputs = [self.nodes[value] for value in node.inputs]
        regions = [self._region(region) for region in node.regions.values()]
        args, kwargs = bind_node(schema, node).arguments([*inputs, *regions], self._device)
        if schema.writes:
            target, args, kwargs, paths = functionalize_call(schema, args, kwargs)
        else:
            target, paths = op, result_paths(node, op)
        call = self._graph.create_node(
            "call_function", target, tuple(args), kwargs, name=identifier(node.name)
        )
        call.meta.update(provenance_metadata(node.provenance))
        self._map_results(node, call, paths)

    def clone(self, source: Node) -> Node:
        """Append a copy of a tensor."""
        copy = self._graph.call_function(torch.ops.aten.clone.default, (source,))
        copy.meta["val"] = source.meta["val"]
        return copy

    def _map_results(self, node: OpNode, call: Node, paths: Sequence[Path]) -> None:
        """Map the outputs of ``node`` to the parts of the result of ``call``."""
        items = self._results(call, node.outputs, paths)
        call.meta["val"] = nest_results(paths, items) if paths else None
        for value, path, item in zip(node.outputs, paths, items, strict=True):
            part = call
            for depth, index in enumerate(path, start=1):
                part = self._get_item(part, index, identifier(value.name) if depth == len(path) else None)
            self.nodes[value] = None if item is None else part

    def _get_item(self, whole: Node, index: int, name: str | None) -> Node:
        part = self._graph.create_node("call_function", operator.getitem, (whole, index), name=name)
        part.meta.update({**whole.meta, "val": whole.meta["val"][index]})
        part.meta.pop("unbacked_bindings", None)
        return part

    def _results(self, call: Node, results: Sequence[Value], paths: Sequence[Path]) -> list[Any]:
        """Return the fake results of a call, from their types, or else by running it on fake values."""
        if all(self._metadata.is_known(value.type) for value in results):
            return [self._metadata.fake_value(value.type) for value in results]
        args, kwargs = torch.fx.map_arg((call.args, call.kwargs), _fake_value)
        with self._metadata.context.fake_mode():
            result: Any = call.target(*args, **kwargs)  # type: ignore[operator]
        items = [_item_at(result, path) for path in paths]
        new = self._metadata.context.unbacked_sizes(result)
        if new:
            call.meta["unbacked_bindings"] = new
        self._metadata.record_sizes(results, items)
        return items

    def _region(self, region: Graph) -> Node:
        """Append the FX node that reads a region from the module."""
        attribute = unused_attribute(self._module, identifier(region.name))
        setattr(self._module, attribute, region_module(region, self._metadata, self._device))
        return self._graph.get_attr(attribute)


def region_module(region: Graph, metadata: Metadata, device: torch.device) -> GraphModule:
    """Return a region as a module, for a control-flow operator to call."""
    root, graph = torch.nn.Module(), FxGraph()
    writer = NodeWriter(root, graph, metadata, device)
    for value in region.inputs:
        if not metadata.is_known(value.type):
            raise ConversionError(
                f"region {region.name!r} takes %{value.name}, {value.type}, which depends on data",
                where=None if region.owner is None else location_of(region.owner),
                fix="pass a tensor in its place",
            )
        placeholder = graph.create_node("placeholder", identifier(value.name), name=identifier(value.name))
        placeholder.meta["val"] = metadata.fake_value(value.type)
        writer.nodes[value] = placeholder
    for value in region.constants.values():
        assert value.argument is not None
        attribute = unused_attribute(root, identifier(value.argument.target))
        root.register_buffer(attribute, value.argument.data)
        constant = writer.nodes[value] = graph.get_attr(attribute)
        constant.meta["val"] = metadata.fake_value(value.type)
    for node in region.nodes:
        writer.write(node)
    structure, leaves = region.results
    results = [writer.nodes[leaf] if isinstance(leaf, Value) else leaf for leaf in leaves]
    output = graph.output(unflatten(structure, results))
    output.meta["val"] = torch.fx.map_arg(output.args[0], _fake_value)
    module = GraphModule(root, graph)
    for name, tensor in root.named_buffers():
        module.register_buffer(name, tensor, persistent=False)  # GraphModule loses the flag
    return module


def _item_at(result: Any, path: Path) -> Any:
    for index in path:
        result = result[index]
    return result


def _fake_value(node: Node) -> Any:
    return node.meta["val"]
