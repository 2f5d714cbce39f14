"""A copy of an exported program whose graphs can be edited, and whose arguments share no memory."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir.capture.aliases import AliasSets
from npu_ir.capture.provenance import location_of
from npu_ir.capture.writes import tensor_of
from npu_ir.errors import ConversionError


def copy_program(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program`` with its own graphs; the tensors are shared."""
    module = _copy_module(program.graph_module)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=dict(program.state_dict),
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        constants=dict(program.constants),
        verifiers=list(program.verifiers),
    )


def _copy_module(module: GraphModule) -> GraphModule:
    """Return a copy of ``module`` and of the bodies in it; the tensors are shared."""
    graph = FxGraph()
    copied_output: Any = graph.graph_copy(module.graph, {}, return_output_node=True)
    results, output = copied_output
    graph.output(results).meta.update(output.meta)
    for node, copied in zip(module.graph.nodes, graph.nodes, strict=True):
        copied.name = node.name  # graph_copy renames nodes called like a Python builtin, such as "input"
    own = GraphModule(module, graph)
    own.meta.update(module.meta)
    for name, body in list(own.named_children()):
        if isinstance(body, GraphModule):
            setattr(own, name, _copy_module(body))
    return own


def separate_placeholders(
    program: ExportedProgram, prepared: ExportedProgram, aliases: AliasSets, storages: set[int]
) -> None:
    """Give each placeholder of ``prepared`` its own memory; readers of a tied one read the first.

    Args:
        program: The original program.
        prepared: Its copy, which is edited.
        aliases: The alias sets of ``program``.
        storages: The ids of the alias sets that are written.
    """
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    copies = dict(zip(program.graph.nodes, prepared.graph.nodes, strict=True))
    by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for node in by_name.values():
        tensor = tensor_of(node)
        if tensor is None or aliases.storage_id(tensor) not in storages:
            continue
        _require_ties(node, aliases, targets)
        first = by_name[aliases.ties.get(node.name, node.name)]
        if node is not first:  # functionalization fails on placeholders that share memory (torch 2.13)
            copies[node].replace_all_uses_with(copies[first])
            with tensor.fake_mode:  # type: ignore[attr-defined]
                copies[node].meta["val"] = torch.empty_like(tensor)
            target = str(targets[node.name])
            for tensors in (prepared.state_dict, prepared.constants):
                if target in tensors:
                    tensors[target] = _new_like(tensors[target])


def _require_ties(node: Node, aliases: AliasSets, targets: dict[str, str | None]) -> None:
    """Refuse a placeholder that shares memory with one that is not the same tensor."""
    untied = [other.name for other in aliases.placeholders_of(node) if other.name not in aliases.ties]
    if len(untied) > 1:
        names = ", ".join(str(targets[name] or name) for name in untied)
        raise ConversionError(
            f"{names} overlap in memory, and one of them is changed in place",
            where=location_of(next(iter(node.users), node)),
            fix="make each a tensor of its own (clone), or keep one and take views of it in forward",
        )


def _new_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor or parameter like ``tensor`` with its own memory and undefined content."""
    empty = torch.empty_like(tensor)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad) if is_parameter else empty
