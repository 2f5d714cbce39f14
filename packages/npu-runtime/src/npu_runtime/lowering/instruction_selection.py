"""Instruction selection: what runs a lowered graph on a device, with the call traits of each instruction."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from npu_ir import ExecutionError, Graph, OpNode, TensorType, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.errors import BackendError
from npu_ir.graph.partition import PartitionGraph
from npu_ir.ops.calls import Binding, Slot
from npu_ir.ops.effects import is_pure, is_random, is_view
from npu_ir.ops.execution import binding_of, execute_node
from npu_ir.ops.schema import Op, find_op
from npu_ir.ops.trusted_layouts import accept_any_layout
from npu_ir.plugins import plugin_manager
from npu_runtime._torch.ops import HigherOrderOperator, OpOverload
from npu_runtime.backends.partition import ATEN, Partition
from npu_runtime.lowering.instruction import Instruction, Returns
from npu_runtime.lowering.lowered_graph import BackendProgram, LoweredGraph, location_text
from npu_runtime.lowering.partition_call import PartitionCall
from npu_runtime.probing.call_traits import CallTraits
from npu_runtime.probing.op_probe import OpProbe

# From a region and a device to a function of the enclosing symbols' values: it returns the callable.
CompileRegion: TypeAlias = "Callable[[Graph, torch.device], Callable[[SymbolValues], Callable[..., Any]]]"
# By argument: a function from the values of the symbols to the callable of a region.
Regions = Mapping[str, Callable[[Any], Callable[..., Any]]]

_PROBED_NAMESPACES = frozenset({"aten", "prims", "mkl", "mkldnn", "onednn", "quantized", "npu"})


def select_instructions(
    lowered: LoweredGraph,
    device: torch.device,
    probe: OpProbe,
    as_stated: set[Value],
    compile_region: CompileRegion,
) -> list[Instruction]:
    """Return one instruction per node of ATen, and per partition of another backend, with its call traits.

    Args:
        lowered: The lowered graph; backends prepare the ops that are in it.
        device: The device to run on.
        probe: Observes call traits.
        as_stated: Arguments whose strides are those of their types in each call; extended by instruction
            outputs.
        compile_region: Makes the callable of a node's region.

    Raises:
        BackendError: A backend cannot prepare a partition.
    """
    instructions = []
    may_be_lazy = _may_be_lazy(lowered.graph)
    for item in lowered.partitions:
        if item.program is not None:
            # Its traits hold for any strides: it is called with those that are stated.
            instructions.append(_prepare_partition(item.partition, item.program, device, may_be_lazy))
            # It writes into planned tensors, which have the strides of their types.
            as_stated.update(item.program.outputs if probe.is_planned else ())
            continue
        for node in item.partition.nodes:
            regions = {argument: compile_region(region, device) for argument, region in node.regions.items()}
            instructions.append(_drop_untrusted_traits(select_call(node, probe, device, regions), as_stated))
    return instructions


def _drop_untrusted_traits(instruction: Instruction, as_stated: set[Value]) -> Instruction:
    """Return an instruction, with the traits of memory only if all inputs have the strides of their types.

    Call traits are observed on such inputs, and need not hold for others.
    """
    traits = instruction.traits
    if traits is None:
        return instruction
    if not as_stated.issuperset(instruction.inputs):
        traits = traits.without_memory_traits(len(instruction.inputs))
        return replace(instruction, function=_accept_any_layout(instruction), traits=traits)
    pairs = zip(instruction.outputs, traits.has_stated_strides, strict=True)
    as_stated.update(value for value, is_so in pairs if is_so)
    return instruction


def _accept_any_layout(instruction: Instruction) -> Callable[..., Any]:
    """Return the function of an instruction; where its kernel trusts strides, one that does not."""
    op = find_op(instruction.nodes[0].op_type)
    safe = accept_any_layout(op)
    return instruction.function if safe is op else safe


# Partitions of other backends


def _may_be_lazy(graph: Graph) -> bool:
    """Return whether values may have a lazy conj/neg bit: of complex tensors, or by ops that set it."""
    types = (value.type for value in graph.values)
    return any(isinstance(type, TensorType) and type.dtype.is_complex for type in types) or any(
        not node.op_type.startswith(("aten.", "npu.")) or node.op_type == "aten._neg_view.default"
        for node in graph.nodes
    )


def _prepare(partition: Partition, program: BackendProgram, device: torch.device) -> Any:
    """Return what the backend of a partition prepares.

    Raises:
        BackendError: The backend cannot prepare it.
    """
    backend, nodes = partition.backend, partition.nodes
    try:
        return backend.prepare(program.graph, program.ops, device)
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {backend.name!r} failed to prepare {len(nodes)} nodes that it supports: {error}",
            where=location_text(nodes),
        ) from error


def _prepare_partition(
    partition: Partition, program: BackendProgram, device: torch.device, may_be_lazy: bool
) -> Instruction:
    """Return the instruction that runs a partition in one call.

    Raises:
        BackendError: The backend cannot prepare it.
    """
    backend, nodes = partition.backend, partition.nodes
    overwritten = {item for op in program.ops for item in op.overwrites}
    numbers = frozenset(index for index, value in enumerate(program.graph.inputs) if value in overwritten)
    constants = {
        index for index, value in enumerate(program.graph.inputs) if value in program.graph.constant_inputs
    }
    call = PartitionCall(
        backend,
        _prepare(partition, program, device),
        inputs=[value.type for value in program.inputs],
        outputs=[value.type for value in program.outputs],
        overwritten=numbers,
        copied=numbers,
        constants=frozenset(constants - numbers),
        may_be_lazy=may_be_lazy,
        updates_in_place=partition.updates_in_place,
        in_place=tuple(map(program.inputs.index, program.in_place.values())),
    )
    given, bound = ([Slot(index) for index in part] for part in (call.given, sorted(call.constants)))
    kernel = f"{backend.name}.run"
    outputs = (*program.outputs, *program.in_place)
    # Not with one that is overwritten: that is a copy, or memory that nothing else needs.
    may_share = (
        *(shared - numbers for shared in _find_shared_inputs(program.graph)),
        *(frozenset({number}) for number in call.in_place),
    )
    traits = CallTraits(
        kernel=kernel,
        function=call,
        in_place=None,
        shares=may_share,
        has_stated_strides=(False,) * len(outputs),  # promised by the backend, but not observed
        starts_storage=(False,) * len(outputs),
        is_certain=not any(may_share[: len(program.outputs)]),
    )
    return Instruction(
        nodes=nodes,
        backend=backend.name,
        kernel=kernel,
        function=call,
        binding=Binding((given, bound) if bound else (given,), {}),
        inputs=program.inputs,
        outputs=outputs,
        returns=Returns.SEQUENCE if outputs else Returns.NOTHING,
        partition=call,
        traits=traits,
    )


def _find_shared_inputs(graph: PartitionGraph) -> list[frozenset[int]]:
    """Return for each output the inputs, by number, that it may share memory with: only views are in between.

    Outputs that may share computed memory with each other have all inputs in common.
    """
    inputs = graph.inputs
    sources: dict[Value, frozenset[Value]] = {value: frozenset([value]) for value in inputs}
    for node in graph.nodes:
        viewed = frozenset[Value]().union(*(sources[value] for value in node.inputs)) if is_view(node) else ()
        for value in node.outputs:
            source = graph.in_place.get(value)
            sources[value] = frozenset(viewed or [value]) if source is None else sources[source]
    numbers = {value: number for number, value in enumerate(inputs)}
    owners = Counter(owner for value in graph.outputs for owner in sources[value] - numbers.keys())
    every = frozenset(numbers.values())
    return [
        every
        if any(owners[owner] > 1 for owner in sources[value])
        else frozenset(numbers[source] for source in sources[value] if source in numbers)
        for value in graph.outputs
    ]


# Nodes of ATen


def select_call(
    node: OpNode, probe: OpProbe, device: torch.device, regions: Regions | None = None
) -> Instruction:
    """Return the instruction that runs a node in PyTorch, by the fastest callable known to be equivalent.

    Args:
        node: Any node.
        probe: Observes call traits.
        device: The device in place of ``meta`` in the arguments of the node.
        regions: The callables of its regions.
    """
    op = find_op(node.op_type)
    is_registered = plugin_manager.registry().table("execution").get(node.op_type) is not None
    if is_registered or node.regions or op is None or isinstance(op, HigherOrderOperator):
        return _interpreted(node, device, regions or {})
    try:
        binding = binding_of(node, op)
    except ExecutionError:
        return _interpreted(node, device, {})  # the error is raised when it runs, as in the interpreter
    # The same, with `device` in place of ``meta``.
    args, kwargs = binding.arguments([Slot(index) for index in range(len(node.inputs))], device)
    binding = replace(binding, positional=tuple(args), keyword=kwargs)
    traits = None if binding.written or not _is_safe_to_probe(node, op) else probe.observe(node, op, binding)
    if traits is None:
        return _interpreted(node, device, {})
    returns_nested = _returns_nested_lists(op)
    return Instruction(
        nodes=(node,),
        backend=ATEN,
        kernel=traits.kernel,
        function=_flatten_results(traits.function) if returns_nested else traits.function,
        binding=binding,
        inputs=node.inputs,
        outputs=node.outputs,
        returns=_return_convention(op),
        traits=traits,
    )


def _interpreted(node: OpNode, device: torch.device, regions: Regions) -> Instruction:
    """Return an instruction that runs a node as the interpreter does, with all its checks."""
    count = len(node.inputs)
    return Instruction(
        nodes=(node,),
        backend=ATEN,
        kernel=f"checked {node.op_type}",
        function=functools.partial(_execute, node, device, regions),
        binding=Binding(([Slot(index) for index in range(count)],), {}),
        inputs=node.inputs,
        outputs=node.outputs,
        returns=Returns.SEQUENCE if node.outputs else Returns.NOTHING,
        needs_symbols=True,
    )


def _execute(
    node: OpNode, device: torch.device, regions: Regions, symbols: Any, inputs: list[Any]
) -> list[Any]:
    bound = {argument: region(symbols) for argument, region in regions.items()}
    return execute_node(node, inputs, device, symbols, bound)


def _is_safe_to_probe(node: OpNode, op: Op) -> bool:
    """Return whether a node may be run as a trial, without side effects: not so for third-party ops."""
    is_torch = not isinstance(op, OpOverload) or op.namespace in _PROBED_NAMESPACES
    return is_torch and (is_pure(node) or is_random(node))


def _return_convention(op: Op) -> Returns:
    if not isinstance(op, OpOverload):
        return Returns.ONE  # a Python function of numbers
    returns = op._schema.returns
    if not returns:
        return Returns.NOTHING
    return Returns.ONE if len(returns) == 1 and not _is_list_type(returns[0]) else Returns.SEQUENCE


def _returns_nested_lists(op: Op) -> bool:
    return (
        isinstance(op, OpOverload)
        and len(op._schema.returns) > 1
        and any(map(_is_list_type, op._schema.returns))
    )


def _is_list_type(item: Any) -> bool:
    return isinstance(item.type, torch.ListType)


def _flatten_results(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    def call(*args: Any, **kwargs: Any) -> list[Any]:
        result = function(*args, **kwargs)
        return [leaf for part in result for leaf in (part if isinstance(part, (list, tuple)) else (part,))]

    return call
