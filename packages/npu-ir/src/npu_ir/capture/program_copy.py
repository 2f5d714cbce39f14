"""An editable copy of an exported program: arguments share no memory, and bodies hold no tensors."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir._torch.fake import fake_of
from npu_ir.capture.aliases import AliasSets
from npu_ir.capture.fx_nodes import AUTOCAST_REGION, GRAD_REGION, bodies, is_call_of, location_of
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
    """Give each placeholder of ``prepared``, a copy of ``program``, its own memory if it is written.

    Readers of a tied one read the first. ``storages`` are the ids of the alias sets that are written.
    """
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    copies = dict(zip(program.graph.nodes, prepared.graph.nodes, strict=True))
    by_name = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
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


# The positions of the operand lists that are appended to the arguments of the bodies.
_OPERANDS: Mapping[str, tuple[int, ...]] = {
    "cond": (3,),
    "while_loop": (3,),
    "scan": (3,),
    "associative_scan": (2,),
    "map_impl": (2,),
    "flex_attention": (7, 8),  # of the score function, and of the mask
}


def lift_body_constants(program: ExportedProgram) -> None:
    """Turn the tensors that bodies of control flow hold into constants of ``program``, which is edited.

    torch.export keeps them as attributes of the body. A retrace fails on these (torch 2.13), as
    functionalization replaces them by functional tensors.
    """
    module = program.graph_module
    for node, tensors in _lift_from_bodies(module):
        _add_operands(node, [_add_program_constant(program, tensor) for tensor in tensors])
    module.recompile()


def _lift_from_bodies(module: GraphModule) -> Iterator[tuple[Node, list[torch.Tensor]]]:
    """Turn the tensors that bodies hold into arguments; yield the calling nodes and these tensors.

    It works inside out: an inner body's tensors become attributes of the outer body, and are lifted from
    there. All branches get the same operands.
    """
    for node in list(module.graph.nodes):
        if not is_call_of(node, *_OPERANDS, GRAD_REGION, AUTOCAST_REGION):
            continue
        parts = list(bodies(node, module))
        for body in parts:
            for inner, tensors in _lift_from_bodies(body):
                _add_operands(inner, [_add_attribute(body, inner, tensor) for tensor in tensors])
        held = [(body, item, tensor) for body in parts for item, tensor in _held_tensors(body)]
        if held:
            for body in parts:
                _add_placeholders(body, held)
            yield node, [tensor for _, _, tensor in held]


def _held_tensors(body: GraphModule) -> list[tuple[Node, torch.Tensor]]:
    attributes = [(node, node.target) for node in body.graph.nodes if node.op == "get_attr"]
    values = [(node, getattr(body, str(target), None)) for node, target in attributes]
    return [(node, value) for node, value in values if isinstance(value, torch.Tensor)]


def _add_placeholders(body: GraphModule, held: Sequence[tuple[GraphModule, Node, torch.Tensor]]) -> None:
    first = next(node for node in body.graph.nodes if node.op != "placeholder")
    for owner, item, tensor in held:
        with body.graph.inserting_before(first):
            argument = body.graph.placeholder("constant")
        argument.target = argument.name  # which is unique
        argument.meta["val"] = fake_of(tensor, _fake_tensors(body))
        if owner is body:
            item.replace_all_uses_with(argument)
    for owner, item, _ in held:
        if owner is body:
            body.graph.erase_node(item)
            if not any(node.target == item.target for node in body.graph.nodes if node.op == "get_attr"):
                delattr(body, str(item.target))
    body.recompile()


def _fake_tensors(module: GraphModule) -> list[torch.Tensor]:
    values = (node.meta.get("val") for node in module.graph.nodes)
    return [value for value in values if isinstance(value, torch.Tensor)]


def _add_operands(node: Node, operands: list[Node]) -> None:
    name = getattr(node.target, "__name__", "")
    if name not in _OPERANDS:
        node.args = (*node.args, *operands)
        return
    for position in _OPERANDS[name]:
        current = node.args[position]
        assert isinstance(current, (list, tuple))
        node.update_arg(position, type(current)([*current, *operands]))


def _add_attribute(module: GraphModule, user: Node, tensor: torch.Tensor) -> Node:
    """Return a new node of ``module`` that reads ``tensor``."""
    names = (f"_lifted_constant{number}" for number in itertools.count())
    name = next(name for name in names if not hasattr(module, name))
    module.register_buffer(name, tensor)
    with module.graph.inserting_before(user):
        return module.graph.get_attr(name)


def _add_program_constant(program: ExportedProgram, tensor: torch.Tensor) -> Node:
    """Return a new placeholder of ``program`` for ``tensor``."""
    specs = program.graph_signature.input_specs
    index = next((i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs))
    placeholders = program.graph.find_nodes(op="placeholder")
    following = [*placeholders, next(node for node in program.graph.nodes if node.op != "placeholder")][index]
    with program.graph.inserting_before(following):
        node: Node = program.graph.placeholder("c_body_constant")
    node.target = node.name  # which is unique
    node.meta["val"] = fake_of(tensor, _fake_tensors(program.graph_module))
    target = node.name.removeprefix("c_")
    specs.insert(index, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target, None))
    program.constants[target] = tensor
    return node
