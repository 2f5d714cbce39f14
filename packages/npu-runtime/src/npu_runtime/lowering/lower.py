"""Lowering of a graph: its nodes, as assigned to backends, become instructions in execution order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.plugins.backend import Backend
from npu_runtime.backends.partition import Assignment, extract_partition
from npu_runtime.lowering.aten_calls import ATEN, lower_node
from npu_runtime.lowering.backend_calls import lower_partition
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.probing.op_probe import OpProbe

# From a region and a device to a function of the enclosing symbols' values: it returns the callable.
CompileRegion: TypeAlias = "Callable[[Graph, torch.device], Callable[[SymbolValues], Callable[..., Any]]]"


def lower_body(
    graph: Graph,
    assignments: Mapping[OpNode, Assignment],
    device: torch.device,
    probe: OpProbe,
    as_stated: set[Value],
    compile_region: CompileRegion,
) -> list[Instruction]:
    """Return one instruction per node of the body, or per partition of another backend, with its call traits.

    Args:
        graph: The program.
        assignments: The backend of each node; ATen for nodes that are missing.
        device: The device to run on.
        probe: Observes call traits.
        as_stated: Arguments whose strides are those of their types in each call; extended by instruction
            outputs.
        compile_region: Makes the callable of a node's region.

    Raises:
        BackendError: A backend does not keep to its interface.
    """
    instructions = (
        instruction
        for group in _group_by_backend(graph, assignments)
        for instruction in _lower_group(group, probe, device, compile_region)
    )
    return list(_drop_untrusted_traits(instructions, as_stated, is_planned=probe.is_planned))


# Consecutive nodes of one backend; None for ATen.
_BackendNodes = tuple[Backend | None, list[OpNode]]


def _group_by_backend(graph: Graph, assignments: Mapping[OpNode, Assignment]) -> Iterator[_BackendNodes]:
    def backend(node: OpNode) -> Backend | None:
        assignment = assignments.get(node)
        return None if assignment is None or assignment.backend.name == ATEN else assignment.backend

    for owner, nodes in itertools.groupby(graph.body, backend):
        yield owner, list(nodes)


def _lower_group(
    group: _BackendNodes, probe: OpProbe, device: torch.device, compile_region: CompileRegion
) -> Iterator[Instruction]:
    backend, nodes = group
    if backend is not None:
        yield lower_partition(backend, extract_partition(nodes, f"{backend.name}-{nodes[0].name}"), device)
        return
    for node in nodes:
        regions = {argument: compile_region(region, device) for argument, region in node.regions.items()}
        yield lower_node(node, probe, device, regions)


def _drop_untrusted_traits(
    instructions: Iterable[Instruction], as_stated: set[Value], *, is_planned: bool
) -> Iterator[Instruction]:
    """Yield instructions, with the traits of memory only if all inputs have the strides of their types.

    Call traits are observed on such inputs, and need not hold for others.
    """
    for instruction in instructions:
        traits = instruction.traits
        if traits is None:
            yield instruction
        elif as_stated.issuperset(instruction.inputs):
            pairs = zip(instruction.outputs, traits.has_stated_strides, strict=True)
            as_stated.update(value for value, is_so in pairs if is_so)
            yield instruction
        else:
            yield replace(instruction, traits=traits.without_memory_traits(len(instruction.inputs)))
        # A partition writes into planned tensors, which have the strides of their types.
        if instruction.is_partition and is_planned:
            as_stated.update(instruction.outputs)
