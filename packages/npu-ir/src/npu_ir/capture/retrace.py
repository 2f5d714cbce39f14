"""PyTorch's own functionalization, ``run_decompositions({})``, of a program prepared for it.

It misses some writes and aliases. Corrected before it runs (torch 2.13):

- composite ops whose result shares memory with an argument without their schema saying so
  (``dropout`` in eval mode, ``einsum``);
- placeholders that share memory with each other;
- ops that write without a kernel for functionalization (`writes`);
- tensors created in the body of control flow, on which it fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from npu_ir._torch.export import composites_of
from npu_ir._torch.fake_kernels import corrected_fakes
from npu_ir._torch.ops import inline_decomposition
from npu_ir._torch.tracing import relaxed_size_assumptions, right_states_of_lstms
from npu_ir.capture.aliases import LIFT, AliasSets, idle_dropout_input
from npu_ir.capture.export_messages import HeldMessages
from npu_ir.capture.fx_nodes import (
    AUTOCAST_REGION,
    FUNCTIONAL_CALL_ON_VIEWS,
    GRAD_REGION,
    bodies,
    is_call_of,
    nodes,
    unwrap_index,
)
from npu_ir.capture.program_copy import copy_program, lift_body_constants, separate_placeholders
from npu_ir.capture.write_refusals import (
    require_dense_targets,
    require_no_written_constants,
    require_separate_elements,
    require_separate_results,
    require_writes,
)
from npu_ir.capture.writes import (
    decompose_write,
    has_hidden_write,
    mutates,
    schema_of_node,
    tensor_of,
    tensors_of,
    written_nodes,
)
from npu_ir.errors import ConversionError


def retrace_program(program: ExportedProgram, aliases: AliasSets) -> ExportedProgram:
    """Return ``program`` after PyTorch's functionalization; ``program`` itself is not changed.

    Raises:
        ConversionError: It fails, or would get a write of this kind wrong.
    """
    require_dense_targets(program)
    require_separate_elements(program)
    require_no_written_constants(program, aliases)
    require_separate_results(program)
    prepared = copy_program(program)
    targets = all_written_nodes(program.graph_module)
    storages = {aliases.storage_id(tensor) for item in targets if (tensor := tensor_of(item)) is not None}
    separate_placeholders(program, prepared, aliases, storages)
    for module in prepared.graph_module.modules():
        if isinstance(module, GraphModule):
            _decompose_calls_on_copies(module)
            _decompose_indexing(module)
            _decompose_hidden_aliases(module, aliases, storages)
            _decompose_writes(module, aliases, storages)
    lift_body_constants(prepared)
    try:
        with (
            HeldMessages(),
            relaxed_size_assumptions(),
            right_states_of_lstms(),
            corrected_fakes(),
            composites_of(prepared.graph_module),
        ):
            functional: ExportedProgram = prepared.run_decompositions({})
    except Exception as error:
        said, *_ = str(error).strip().split("\n")
        raise ConversionError(
            f"PyTorch cannot make the program functional: {type(error).__name__}: {said}",
            fix="write without in-place updates of aliased tensors",
        ) from error
    require_writes(program, functional, aliases)
    return functional


def all_written_nodes(module: GraphModule) -> Iterator[Node]:
    """Yield the nodes whose tensors may be mutated in ``module`` and its bodies."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                yield from _mutated_nodes(node, part)


def _mutated_nodes(node: Node, module: GraphModule) -> list[Node]:
    """Return the nodes that ``node`` may mutate: by its schema, undeclared, or in the region it runs."""
    if has_hidden_write(node):
        return [*written_nodes(node), *(item for item in node.all_input_nodes if item.op == "placeholder")]
    if not is_call_of(node, GRAD_REGION, AUTOCAST_REGION):
        return written_nodes(node)
    # Regions may mutate their operands, unlike the bodies of control flow, where torch.export refuses that.
    inner = (item for body in bodies(node, module) for item in nodes(body))
    return node.all_input_nodes if any(map(mutates, inner)) else []


def _decompose_calls_on_copies(module: GraphModule) -> None:
    """Replace calls left by an earlier functionalization by copies and a call that writes into them."""
    for node in list(module.graph.nodes):
        if is_call_of(node, FUNCTIONAL_CALL_ON_VIEWS):
            inline_decomposition(module, node)


def _decompose_indexing(module: GraphModule) -> None:
    """Replace the indexing operator in score functions of ``flex_attention`` by ``aten.index``."""
    for node in list(module.graph.nodes):
        plain = unwrap_index(node)
        if plain is not None:
            with module.graph.inserting_before(node):
                index = module.graph.call_function(plain.target, plain.args)  # type: ignore[arg-type]
            index.meta = plain.meta
            node.replace_all_uses_with(index)
            module.graph.erase_node(node)


def _decompose_hidden_aliases(module: GraphModule, aliases: AliasSets, storages: set[int]) -> None:
    """Decompose ops whose result shares memory with an argument without a schema that says so."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not any(
            aliases.storage_id(tensor) in storages for tensor in tensors_of(node)
        ):
            continue
        if idle_dropout_input(node) is not None:
            node.replace_all_uses_with(node.args[0])
        elif _hides_aliases(node, aliases):
            inline_decomposition(module, node)


def _hides_aliases(node: Node, aliases: AliasSets) -> bool:
    schema = schema_of_node(node)
    if (
        schema is None
        or node.target is LIFT
        or schema.writes
        or any(item.alias_info is not None for item in schema.op._schema.returns)
        or not schema.is_composite
    ):
        return False
    sources = {aliases.storage_id(tensor) for item in node.all_input_nodes for tensor in tensors_of(item)}
    return any(aliases.storage_id(tensor) in sources for tensor in tensors_of(node))


def _decompose_writes(module: GraphModule, aliases: AliasSets, storages: set[int]) -> None:
    """Decompose the writes that functionalization gets wrong, in one graph of a program."""
    for node in list(module.graph.nodes):
        if has_hidden_write(node) and node.target is torch.ops.aten.instance_norm.default:
            inline_decomposition(module, node)
        elif node.target is LIFT and aliases.storage_id(node.meta["val"]) in storages:
            # functionalization would mistake the copy for the constant itself
            node.target = torch.ops.aten.clone.default
        else:
            decompose_write(node)
    module.recompile()
