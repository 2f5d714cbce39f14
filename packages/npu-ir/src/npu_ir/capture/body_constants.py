"""Lifting of tensors created in control-flow bodies to operands of the bodies.

torch.export keeps them as attributes of the body. A retrace fails on these (torch 2.13), as
functionalization replaces them by functional tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import GraphModule, Node

from npu_ir._torch.fake import fake_of
from npu_ir.capture.bodies import AUTOCAST_REGION, GRAD_REGION, bodies, is_call_of

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
    """Turn the tensors that bodies hold into constants of ``program``, which is edited."""
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
    name = _unused_name(module, "_lifted_constant")
    module.register_buffer(name, tensor)
    with module.graph.inserting_before(user):
        return module.graph.get_attr(name)


def _add_program_constant(program: ExportedProgram, tensor: torch.Tensor) -> Node:
    """Return a new placeholder of ``program`` for ``tensor``."""
    specs = program.graph_signature.input_specs
    index = next((i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs))
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    following = [*placeholders, next(node for node in program.graph.nodes if node.op != "placeholder")][index]
    with program.graph.inserting_before(following):
        node: Node = program.graph.placeholder("c_body_constant")
    node.target = node.name  # which is unique
    node.meta["val"] = fake_of(tensor, _fake_tensors(program.graph_module))
    target = node.name.removeprefix("c_")
    specs.insert(index, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target, None))
    program.constants[target] = tensor
    return node


def _unused_name(module: GraphModule, name: str) -> str:
    names = (f"{name}{number}" for number in range(len(vars(module)) + len(module._buffers) + 1))
    return next(candidate for candidate in names if not hasattr(module, candidate))
