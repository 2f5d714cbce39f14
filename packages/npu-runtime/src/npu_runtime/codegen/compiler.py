"""Compilation of a graph: partitions, instructions, view fusion, in-place reuse, Python source."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, InputKind, Value
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.core.structure import unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.errors import UsageError
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_ir.interpreter.run_nodes import require_in_range
from npu_ir.interpreter.size_choice import choose_sizes
from npu_runtime.backends.registry import named_backends
from npu_runtime.codegen.compiled_function import CompiledFunction
from npu_runtime.lowering.alias_sets import AliasSets
from npu_runtime.lowering.inplace_reuse import reuse_in_place
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.lowering.instruction_selection import select_instructions
from npu_runtime.lowering.lowered_graph import LoweredGraph, lower
from npu_runtime.lowering.partition_call import UndoLog
from npu_runtime.lowering.view_fusion import fuse_views
from npu_runtime.lowering.write_in_place import write_in_place
from npu_runtime.probing.op_probe import OpProbe
from npu_runtime.probing.storage import has_stated_strides


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled graph.

    Attributes:
        unfused: One instruction per node, or per partition of another backend, without in-place reuse.
        instructions: The instructions of the generated function, after view fusion and in-place reuse.
        program: The generated function: it returns the results of the graph, then the new contents of its
            mutated state.
        alias_sets: The alias sets of the values of ``instructions``, in-place reuse aside.
        in_place: The values that are in the memory of arguments, which instructions have written to.
        overwritten: These arguments: state and inputs.
        undo_log: What undoes these writes, of the call in progress.
    """

    unfused: tuple[Instruction, ...]
    instructions: tuple[Instruction, ...]
    program: CompiledFunction
    alias_sets: AliasSets
    in_place: Set[Value]
    overwritten: Set[Value]
    undo_log: UndoLog


def compile_graph(lowered: LoweredGraph, device: torch.device, known: Mapping[Value, Any]) -> Compiled:
    """Compile the body of a lowered graph.

    Args:
        lowered: A program, or a region of one.
        device: The device to run on.
        known: Tensors that the body reads besides its inputs: weights, and the outputs of the prologue.

    Raises:
        BackendError: A backend cannot prepare a partition.
    """
    graph = lowered.graph
    probe = OpProbe(device, known, frozenset(graph.inputs), _sample_sizes(graph))
    as_stated = _values_with_stated_strides(graph, known)
    unfused = select_instructions(lowered, device, probe, as_stated, make_region_runner)
    kept = set(graph.returned_values)
    undo_log = UndoLog()
    fused, in_place = write_in_place(fuse_views(unfused, kept), lowered.state, undo_log)
    alias_sets = AliasSets(fused, kept)
    instructions = reuse_in_place(fused, alias_sets)
    inputs = (*graph.inputs, *mutated_state(graph))
    function = CompiledFunction(graph.name, inputs, instructions, graph.returned)
    overwritten = set(map(lowered.state.source_of, in_place))
    return Compiled(
        tuple(unfused), tuple(instructions), function, alias_sets, in_place, overwritten, undo_log
    )


def held_contents(graph: Graph) -> dict[Value, Value]:
    """Return the mutated state of a graph, and what is in its memory after a call."""
    return {target: graph.updates[target] for target in mutated_state(graph)}


def mutated_state(graph: Graph) -> tuple[Value, ...]:
    """Return the mutated state in parameter order of the generated function, where it follows the inputs.

    It consists of parameters, buffers and optimizer state.
    """
    return tuple(
        target
        for target in graph.updates
        if target.argument is not None and target.argument.kind is not InputKind.INPUT
    )


def _sample_sizes(graph: Graph) -> Mapping[str, int]:
    """Return valid sizes for the symbols of the graph; an empty mapping if there is no such choice."""
    try:
        return choose_sizes(graph, {}, {})
    except UsageError:
        return {}


def _values_with_stated_strides(graph: Graph, known: Mapping[Value, Any]) -> set[Value]:
    """Return the arguments and prologue outputs whose strides are those of their types, in each call."""
    per_call = (*graph.inputs, *mutated_state(graph))
    # Arguments with other strides are copied (`with_stated_strides`), unless their types state overlapping
    # elements.
    certain = {
        value for value in per_call if not value.type.symbols and not has_overlapping_elements(value.type)
    }
    if any(has_overlapping_elements(value.type) for value in graph.arguments if value not in per_call):
        return certain  # weights loaded later may have other strides
    return certain | {value for value, item in known.items() if has_stated_strides(item, value.type)}


def make_region_runner(region: Graph, device: torch.device) -> Callable[[SymbolValues], Callable[..., Any]]:
    """Return a function from the values of the enclosing symbols to the callable of a region."""
    constants = bind_weights(region, None)
    compiled = compile_graph(lower(region, named_backends(())), device, constants)
    run = compiled.program.bind(constants)

    def call(around: SymbolValues, *args: Any) -> Any:
        symbols = SymbolValues(region.symbols, around)
        inputs = bind_inputs(region, args, {}, symbols)
        try:
            leaves = run(symbols, *(inputs[value] for value in region.inputs))
        except Exception as error:
            compiled.program.explain(error)
            raise
        require_in_range(region, symbols)
        return unflatten(region.results[0], list(leaves[: len(region.results[1])]))

    return lambda around: functools.partial(call, around)
