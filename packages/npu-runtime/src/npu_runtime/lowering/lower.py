"""Lowering of a graph: its nodes, as assigned to backends, become instructions in execution order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.plugins.backend import Backend
from npu_runtime.backends.partition import Assignment, extract_partition
from npu_runtime.lowering.aten_calls import ATEN, ObservedInstruction, lower_node
from npu_runtime.lowering.backend_calls import lower_partition
from npu_runtime.probing.op_probe import OpProbe

# From a region and a device to a function of the enclosing symbols' values: it returns the callable.
CompileRegion: TypeAlias = "Callable[[Graph, torch.device], Callable[[SymbolValues], Callable[..., Any]]]"


def lower_body(
    graph: Graph,
    choices: Mapping[OpNode, Assignment],
    device: torch.device,
    prober: OpProbe,
    as_stated: set[Value],
    compile_region: CompileRegion,
) -> list[ObservedInstruction]:
    """Return one instruction per node of the body, or per partition of another backend, with its call traits.

    Args:
        graph: The program.
        choices: The backend of each node; ATen for nodes that are missing.
        device: The device to run on.
        prober: Observes call traits.
        as_stated: Arguments whose strides are those of their types in each call; extended by instruction
            outputs.
        compile_region: Makes the callable of a node's region.

    Raises:
        BackendError: A backend does not keep to its interface.
    """
    steps = (
        step
        for part in _group_by_backend(graph, choices)
        for step in _lower_group(part, prober, device, compile_region)
    )
    return list(_drop_untrusted_traits(steps, as_stated, is_planned=prober.is_planned))


# Consecutive nodes of one backend; None for ATen.
_BackendNodes = tuple[Backend | None, list[OpNode]]


def _group_by_backend(graph: Graph, choices: Mapping[OpNode, Assignment]) -> Iterator[_BackendNodes]:
    def backend(node: OpNode) -> Backend | None:
        choice = choices.get(node)
        return None if choice is None or choice.backend.name == ATEN else choice.backend

    for owner, nodes in itertools.groupby(graph.body, backend):
        yield owner, list(nodes)


def _lower_group(
    part: _BackendNodes, prober: OpProbe, device: torch.device, compile_region: CompileRegion
) -> Iterator[ObservedInstruction]:
    backend, nodes = part
    if backend is not None:
        yield lower_partition(backend, extract_partition(nodes, f"{backend.name}-{nodes[0].name}"), device)
        return
    for node in nodes:
        regions = {argument: compile_region(region, device) for argument, region in node.regions.items()}
        yield lower_node(node, prober, device, regions)


def _drop_untrusted_traits(
    steps: Iterable[ObservedInstruction], as_stated: set[Value], *, is_planned: bool
) -> Iterator[ObservedInstruction]:
    """Yield instructions, with the traits of memory only if all inputs have the strides of their types.

    Call traits are observed on such inputs, and need not hold for others.
    """
    for item in steps:
        if item.traits is not None and as_stated.issuperset(item.instruction.inputs):
            laid_out = zip(item.instruction.outputs, item.traits.has_stated_strides, strict=True)
            as_stated.update(value for value, is_so in laid_out if is_so)
            yield item
        elif item.traits is not None:
            yield ObservedInstruction(
                item.instruction, item.traits.without_memory_traits(len(item.instruction.inputs))
            )
        else:
            yield item
        if (
            item.instruction.is_partition and is_planned
        ):  # it writes into planned tensors, which have these strides
            as_stated.update(item.instruction.outputs)
