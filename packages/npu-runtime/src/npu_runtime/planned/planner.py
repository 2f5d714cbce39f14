"""The planner: from a graph to a memory plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import Graph, GraphError, TensorType, Value
from npu_ir.core.isolation import pause_gc
from npu_ir.core.storage import has_overlapping_elements, span_bytes
from npu_ir.plugins.backend import Backend
from npu_runtime.codegen.compiled_function import CompiledFunction
from npu_runtime.codegen.compiler import make_region_runner
from npu_runtime.executor.options import resolve_backends
from npu_runtime.lowering.alias_sets import AliasSets
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.lowering.instruction_selection import select_call, select_instructions
from npu_runtime.lowering.lowered_graph import LoweredGraph, lower
from npu_runtime.lowering.view_fusion import fuse_views
from npu_runtime.planned.arena import Span, assign_offsets, lower_bound
from npu_runtime.planned.assign_buffers import BufferAssigner
from npu_runtime.planned.binding import DeferredBinding
from npu_runtime.planned.buffers import BufferAssignment, BufferKind
from npu_runtime.planned.fixed_signature import require_fixed_signature
from npu_runtime.planned.phases import find_constants, split_constants, split_phases
from npu_runtime.planned.plan import Buffer, Plan
from npu_runtime.planned.plan_memo import PlanMemo
from npu_runtime.probing.op_probe import OpProbe


def plan(
    graph: Graph,
    *,
    device: torch.device | str | None = None,
    backend: str | Backend | Sequence[str | Backend] = "aten",
    memo: PlanMemo | None = None,
) -> Plan:
    """Return the memory plan of a graph; weights are not needed.

    Args:
        graph: A graph of fixed sizes. It must not be edited afterwards.
        device: The device to run on; if not given, the CPU or the default of the first backend.
        backend: A name, a `Backend`, or several in order of preference, as for `IRExecutor`.
        memo: Results of an earlier plan; extended by those of this one.

    Raises:
        GraphError: The graph breaks a rule of the IR, sizes are symbolic, a buffer changes its type, or
            inputs overlap.
        BackendError: There is no such backend, or it does not keep to its interface.
    """
    graph.check()
    _require_fixed_sizes(graph)
    require_fixed_signature(
        graph,
        GraphError,
        of_buffers="memory is planned for buffers that keep their type",
        of_overlaps="memory is planned for inputs that do not overlap",
    )
    backends, chosen_device = resolve_backends(backend, device, None)
    with pause_gc():
        return _plan(lower(graph, backends, live_weights=True), chosen_device, memo)


def _plan(lowered: LoweredGraph, device: torch.device, memo: PlanMemo | None) -> Plan:
    graph = lowered.graph
    constants = find_constants(graph)
    instructions = _select_instructions(lowered, device, constants, memo)
    first = [value for value in graph.values if value in constants]
    once, rest = split_constants(instructions, constants)
    folded = [value for instruction in once for value in instruction.outputs]
    assignment = BufferAssigner(graph, *split_phases(graph, rest), [*first, *folded], once).assign()
    # Offsets come last: sizes and live ranges of all allocations are known then.
    arena = [item for item in assignment.allocations if item.kind is BufferKind.ARENA]
    spans = [Span(item.bytes, item.first, assignment.last_use_of(item)) for item in arena]
    offsets, size = assign_offsets(spans) if memo is None else memo.assign_offsets(spans)
    for allocation, offset in zip(arena, offsets, strict=True):
        allocation.offset = offset
    backend_bytes = _backend_bytes(rest)
    numbers = [value for value in graph.inputs if not isinstance(value.type, TensorType)]
    results = [
        assignment.staging_copies.get(item, item) if isinstance(item, Value) else item
        for item in graph.results[1]
    ]
    tensors = [item for item in results if isinstance(item, Value) and item not in numbers]
    passed = tuple(dict.fromkeys([*_values_across_phases(assignment, numbers), *tensors]))
    fresh = _find_fresh(assignment)
    functional = [fresh.get(item, item) for item in assignment.compute]
    read_in_place = _find_read_in_place(graph, assignment, passed)
    compute, compute_fresh = (
        _compile_phase(f"{graph.name} compute", [*numbers, *read_in_place], instructions, passed)
        for instructions in (assignment.compute, functional)
    )
    return Plan(
        lowered=lowered,
        device=device,
        buffers=tuple(_describe_buffers(assignment)),
        calls={"compute": tuple(assignment.compute), "commit": tuple(assignment.commit)},
        arena_bytes=size,
        lower_bound_bytes=lower_bound(spans),
        made_bytes=sum(span_bytes(value.type) for value in assignment.allocated),
        backend_bytes=backend_bytes,
        peak_bytes=size + _made_peak(assignment, passed) + backend_bytes,
        compute=compute,
        commit=_compile_phase(f"{graph.name} commit", [*numbers, *passed], assignment.commit, results),
        fresh=frozenset(value for instruction in fresh.values() for value in instruction.outputs),
        compute_fresh=compute_fresh,
        read_in_place=read_in_place,
        actions=tuple(assignment.actions),
        staging_copies=dict(assignment.staging_copies),
    )


def _select_instructions(
    lowered: LoweredGraph, device: torch.device, constants: set[Value], memo: PlanMemo | None
) -> list[Instruction]:
    graph = lowered.graph
    known: dict[Value, Any] = {
        value: value.argument.data.to(device)
        for value in graph.arguments
        if value.argument is not None and value.argument.data is not None
    }
    # Weights are unknown before binding: their samples are synthetic. Constants are part of the graph.
    probe = OpProbe(
        device, known, frozenset(), {}, is_planned=True, memo=None if memo is None else memo.traits
    )
    as_stated = {
        value
        for value in (*graph.inputs, *graph.arguments, *constants)
        if not has_overlapping_elements(value.type)
    }
    as_stated |= _find_expanded(graph, device, probe, as_stated)
    instructions = select_instructions(lowered, device, probe, as_stated, make_region_runner)
    return fuse_views(instructions, set(graph.returned_values))


def _find_expanded(graph: Graph, device: torch.device, probe: OpProbe, as_stated: set[Value]) -> set[Value]:
    """Return prologue outputs with overlapping elements that are known to have their stated strides."""
    expanded: set[Value] = set()
    for node in graph.prologue:
        is_expanded = any(has_overlapping_elements(value.type) for value in node.outputs)
        if is_expanded and (as_stated | expanded).issuperset(node.inputs):
            traits = select_call(node, probe, device).traits
            is_stated = traits.has_stated_strides if traits is not None else [False] * len(node.outputs)
            expanded.update(value for value, is_so in zip(node.outputs, is_stated, strict=True) if is_so)
    return expanded


def _require_fixed_sizes(graph: Graph) -> None:
    for value in graph.values:
        if value.type.symbols:
            raise GraphError(
                f"%{value.name} is {value.type}: memory is planned for fixed sizes only",
                where=f"graph {graph.name!r}",
                fix="specialize the graph first: graph.specialize({...})",
            )


def _made_peak(assignment: BufferAssignment, passed: Sequence[Value]) -> int:
    """Return the most bytes of dynamic values that are live at a time."""
    instructions = [*assignment.compute, *assignment.commit]
    alias_sets = AliasSets(instructions, passed)
    first = {value: index for index, item in enumerate(instructions) for value in item.outputs}
    made = [value for value in assignment.allocated if value in first]
    return lower_bound([Span(span_bytes(item.type), first[item], alias_sets.end_of(item)) for item in made])


def _backend_bytes(instructions: Sequence[Instruction]) -> int:
    calls = [item.partition for item in instructions if item.partition is not None]
    return sum(call.backend.memory_bytes(call.program) for call in calls)


def _values_across_phases(assignment: BufferAssignment, numbers: Sequence[Value]) -> list[Value]:
    """Return the dynamic values of the compute phase that the commit phase reads."""
    dynamic = {value for instruction in assignment.compute for value in instruction.outputs}
    read = (value for instruction in assignment.commit for value in instruction.inputs)
    return [value for value in dict.fromkeys(read) if value in dynamic and value not in numbers]


def _read_in_fixed_memory(assignment: BufferAssignment) -> set[Value]:
    """Return the values that are read in fixed memory: by the commit phase, by what is bound to it."""
    read = {value for instruction in assignment.commit for value in instruction.inputs}
    for instruction in assignment.compute:
        if isinstance(instruction.function, DeferredBinding):
            read.update(instruction.inputs)
    return read


def _find_read_in_place(
    graph: Graph, assignment: BufferAssignment, passed: Sequence[Value]
) -> tuple[Value, ...]:
    """Return the inputs if instructions of the compute phase alone read them, as they are; else none."""
    bound = {*_read_in_fixed_memory(assignment), *passed, *graph.updates}
    # Backends do not ask for lazy conj/neg bits, which copies do not have.
    bound.update(value for call in assignment.compute if call.is_partition for value in call.inputs)
    inputs = [value for value in graph.inputs if assignment.kinds[value] is BufferKind.INPUT]
    is_bound = any(
        value in bound
        or has_overlapping_elements(value.type)
        or assignment.allocations_of[value][0].values != [value]
        for value in inputs
    )
    return () if is_bound else tuple(inputs)


def _find_fresh(assignment: BufferAssignment) -> dict[Instruction, Instruction]:
    """Return the instructions that write results into the arena, with those that return them in new memory.

    Left out are results that are read in the arena: as views, by what is bound to it, in the commit phase.
    """
    read = _read_in_fixed_memory(assignment)
    return {
        written: instruction
        for written, instruction in assignment.functional.items()
        if instruction.traits is not None
        and all(instruction.traits.has_stated_strides)
        and not any(instruction.traits.shares)
        and read.isdisjoint(instruction.outputs)
        and all(
            allocation.values[-1] is value  # nothing is a view of it, or takes over its memory
            for value in instruction.outputs
            for allocation in assignment.allocations_of[value]
        )
    }


def _compile_phase(
    name: str, inputs: Sequence[Value], instructions: Sequence[Instruction], results: Sequence[Any]
) -> CompiledFunction:
    return CompiledFunction(name, tuple(dict.fromkeys(inputs)), instructions, results)


def _describe_buffers(assignment: BufferAssignment) -> list[Buffer]:
    buffers = []
    for value, kind in assignment.kinds.items():
        allocations = assignment.allocations_of[value]
        allocation = allocations[0] if allocations else None
        is_in_arena = allocation is not None and allocation.kind is BufferKind.ARENA
        owner = allocation.owner if allocation is not None and allocation.owner is not value else None
        buffers.append(
            Buffer(
                value=value.name,
                kind=kind.value,
                offset=allocation.offset if allocation is not None and is_in_arena else None,
                bytes=span_bytes(value.type),
                first=-1 if allocation is None else allocation.first,
                last=assignment.last_use.get(value, -1),
                shares="" if owner is None else owner.name,
                why=assignment.reasons.get(value, ""),
            )
        )
    return buffers
