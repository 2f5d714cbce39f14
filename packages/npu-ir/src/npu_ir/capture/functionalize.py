"""Making an exported program functional: no op changes a tensor in place.

torch.export leaves ``relu_`` and ``add_`` in its program. Two ways lead out:

- *directly*, where no other tensor that is read later can see the change: the op's functional form
  takes its place during conversion. Activations and residual additions are of this kind.
- *by tracing again* with PyTorch's functionalization (``run_decompositions({})``), for everything
  else: buffers and inputs that are updated, writes through views, autocast regions. It costs about
  as much as the export itself, and it does not see two things, which are put right here first:
  composite ops whose result shares memory with an argument without their schema saying so
  (``dropout`` in eval mode, ``einsum``), and placeholders that share memory with each other.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir import _torch
from npu_ir.capture.model_guard import require_same_types
from npu_ir.capture.provenance import place
from npu_ir.capture.writes import (
    destinations,
    hides_a_write,
    schema_of_node,
    spell_out_write,
    tensor_of,
    written,
)
from npu_ir.errors import ConversionError
from npu_ir.ops.schema import op_type_of, resolve, schema_of

GRAD_REGION = "wrap_with_set_grad_enabled"
AUTOCAST_REGION = "wrap_with_autocast"


@dataclass(frozen=True, slots=True)
class FunctionalProgram:
    """An exported program, and what is left to do to make it functional.

    Attributes:
        program: The program to convert.
        replacements: For each node that writes in place: its functional op, and the node it writes.
        ties: For each placeholder that is the same tensor as an earlier one: that one's name.
    """

    program: ExportedProgram
    replacements: dict[Node, tuple[_torch.OpOverload, Node]] = field(default_factory=dict)
    ties: dict[str, str] = field(default_factory=dict)


def functionalize(program: ExportedProgram) -> FunctionalProgram:
    """Return ``program`` in a form whose conversion is functional.

    Raises:
        ConversionError: Partly overlapping parameters, buffers or inputs are changed in place, the
            shape of one is, or PyTorch's functionalization fails.
    """
    require_same_types(program)
    aliases = _Aliases(program.graph_module)
    _require_same_shapes(program)
    replacements = None
    needs_tracing = _has_region(program, AUTOCAST_REGION) or _has_vmap(program)
    if not needs_tracing and not torch.is_autocast_enabled("cpu"):
        replacements = _direct_replacements(program, aliases)
    if replacements is not None:
        return FunctionalProgram(program, replacements, aliases.ties)
    return FunctionalProgram(_traced_again(program, aliases), ties=aliases.ties)


class _Aliases:
    """Which nodes of a program share memory, read off the FakeTensors of its metadata.

    Attributes:
        position: Where each node stands.
        members: The nodes of each storage, in order.
        outside: The storages that come from outside.
        ties: For each placeholder that is the same tensor as an earlier one: that one's name.
    """

    def __init__(self, module: GraphModule) -> None:
        self.position = {node: index for index, node in enumerate(module.graph.nodes)}
        self.members: dict[int, list[Node]] = {}
        self.outside: set[int] = set()
        self.ties: dict[str, str] = {}
        self._same: dict[int, int] = {}
        for node in module.graph.nodes:
            for inner in (*_region_nodes(node, module), node):
                self._merge_dropout(inner)
            tensor = tensor_of(node)
            if tensor is None or _is_only_copied(node):
                continue
            storage = self.storage(tensor)
            if node.op == "placeholder":
                self._tie(node, tensor, self.members.get(storage, []))
                self.outside.add(storage)
            self.members.setdefault(storage, []).append(node)

    def _merge_dropout(self, node: Node) -> None:
        tensor, source = tensor_of(node), _idle_dropout_input(node)
        if tensor is not None and source is not None:
            self._same[_torch.storage_id(tensor)] = self.storage(source)

    def _tie(self, node: Node, tensor: torch.Tensor, earlier: list[Node]) -> None:
        for other in earlier:
            if _same_view(tensor, other.meta["val"]):
                self.ties[node.name] = self.ties.get(other.name, other.name)
                return

    def storage(self, tensor: torch.Tensor) -> int:
        """Return a number that tensors sharing memory have in common."""
        storage = _torch.storage_id(tensor)
        return self._same.get(storage, storage)

    def of(self, node: Node) -> list[Node]:
        """Return every node that shares memory with ``node``, itself included."""
        tensor = tensor_of(node)
        return [node] if tensor is None else self.members[self.storage(tensor)]

    def is_from_outside(self, node: Node) -> bool:
        tensor = tensor_of(node)
        return tensor is None or self.storage(tensor) in self.outside


_DROPOUTS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)


def _idle_dropout_input(node: Node) -> torch.Tensor | None:
    """Return what a dropout gets that drops nothing: eager returns it itself, the FakeTensor is a copy (torch 2.13)."""
    if node.target not in _DROPOUTS or len(node.args) != 3 or not isinstance(node.args[0], Node):
        return None
    _, probability, is_training = node.args
    return tensor_of(node.args[0]) if probability == 0 or is_training is False else None


_LIFT = torch.ops.aten.lift_fresh_copy.default


def _is_only_copied(node: Node) -> bool:
    """Whether a placeholder is a tensor made in ``forward``: its FakeTensor and that of its copy share memory (torch 2.13)."""
    return node.op == "placeholder" and bool(node.users) and all(user.target is _LIFT for user in node.users)


def _same_view(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.storage_offset() == right.storage_offset()
    )


def _require_same_shapes(program: ExportedProgram) -> None:
    """Refuse ops such as ``t_`` that give an input or buffer itself, not a view of it, another shape."""
    for node in program.graph.nodes:
        if isinstance(node.target, _torch.OpOverload) and torch.Tag.inplace_view in node.target.tags:
            root = node
            while root.op != "placeholder" and written(root):
                root = written(root)[0]
            if root.op == "placeholder" and not _same_view(root.meta["val"], node.meta["val"]):
                raise ConversionError(
                    f"{node.target} changes the shape or strides of {root.name!r}, which comes from outside",
                    where=place(node),
                    fix="take a view of it: y = x.t() in place of x.t_()",
                )


def _has_region(program: ExportedProgram, name: str) -> bool:
    return any(_is_region(node, name) for graph in _graphs(program.graph_module) for node in graph.nodes)


def _has_vmap(program: ExportedProgram) -> bool:
    """Whether a program contains ``torch.func`` transforms, which only tracing again takes apart."""
    return any(
        _torch.is_transform(node.target) for graph in _graphs(program.graph_module) for node in graph.nodes
    )


def _is_region(node: Node, name: str) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == name


def _graphs(module: torch.nn.Module) -> Iterator[FxGraph]:
    yield from (part.graph for part in module.modules() if isinstance(part, GraphModule))


# Directly


def _direct_replacements(
    program: ExportedProgram, aliases: _Aliases
) -> dict[Node, tuple[_torch.OpOverload, Node]] | None:
    """Return the functional op for every node that writes, or None where one needs more than that."""
    replacements = {}
    for graph in _graphs(program.graph_module):
        for node in graph.nodes:
            if hides_a_write(node):
                return None
            targets = written(node)
            if not targets:
                continue
            functional = _functional_op(node) if graph is program.graph and len(targets) == 1 else None
            if functional is None or not _is_invisible(node, targets[0], aliases):
                return None
            replacements[node] = functional, targets[0]
    return replacements


def _is_invisible(node: Node, written: Node, aliases: _Aliases) -> bool:
    """Whether nothing but later readers of ``written`` itself can see what ``node`` writes."""
    if torch.Tag.inplace_view in node.target.tags:  # type: ignore[union-attr]
        return True  # only the Python object changes, not the memory
    if aliases.is_from_outside(written):
        return False
    now = aliases.position[node]
    return all(
        alias is written
        or aliases.position[alias] >= now
        or all(aliases.position[user] <= now for user in alias.users)
        for alias in aliases.of(written)
    )


def _functional_op(node: Node) -> _torch.OpOverload | None:
    """Return the op that computes what ``node`` writes, if it exists and gives the same type."""
    schema = schema_of_node(node)
    assert schema is not None
    namespace, name, overload = op_type_of(schema.op).split(".")
    functional = resolve(f"{namespace}.{name.removesuffix('_')}.{overload}") if name.endswith("_") else None
    if functional is None:
        return None
    candidate = schema_of(functional)
    same_arguments = [(arg.name, arg.kind) for arg in candidate.args] == [
        (arg.name, arg.kind) for arg in schema.args
    ]
    if candidate.writes or not same_arguments or not _gives_same_type(node, functional):
        return None
    return functional


def _gives_same_type(node: Node, functional: _torch.OpOverload) -> bool:
    """Whether ``functional`` gives the dtype, shape and strides that writing in place keeps."""
    expected = tensor_of(node)
    if expected is None:
        return False
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda item: item.meta["val"])
    with _torch.fake_mode_of([expected]):
        result = functional(*args, **kwargs)
    same = (
        isinstance(result, torch.Tensor) and result.dtype == expected.dtype and result.shape == expected.shape
    )
    return same and result.stride() == expected.stride()


# By tracing again


def _traced_again(program: ExportedProgram, aliases: _Aliases) -> ExportedProgram:
    """Return ``program`` after PyTorch's functionalization; ``program`` itself is not changed."""
    _require_separate_elements(program)
    prepared = _with_own_graph(program)
    nodes = dict(zip(program.graph.nodes, prepared.graph.nodes, strict=True))
    targets = (item for node in program.graph.nodes for item in _targets(node, program.graph_module))
    storages = {aliases.storage(tensor) for item in targets if (tensor := tensor_of(item)) is not None}
    _separate_placeholders(program, prepared, nodes, aliases, storages)
    for graph in _graphs(prepared.graph_module):
        for node in list(graph.nodes):
            _expose_alias(node, aliases, storages)
    for module in prepared.graph_module.modules():
        if isinstance(module, GraphModule):
            _spell_out_writes(module, aliases, storages)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 warns about its own LeafSpec
            functional: ExportedProgram = prepared.run_decompositions({})
    except Exception as error:
        raise ConversionError(
            f"PyTorch cannot make the program functional: {type(error).__name__}: {str(error).strip().splitlines()[:1]}",
            fix="the exception above is PyTorch's own; write without in-place updates of aliased tensors",
        ) from error
    _require_writes(program, functional, aliases)
    return functional


def _spell_out_writes(module: GraphModule, aliases: _Aliases, storages: set[int]) -> None:
    """Take apart what functionalization gets wrong, in one graph of a program."""
    for node in list(module.graph.nodes):
        if hides_a_write(node) and node.target is torch.ops.aten.instance_norm.default:
            _torch.inline_decomposition(module, node)
        elif node.target is _LIFT and aliases.storage(node.meta["val"]) in storages:
            node.target = (
                torch.ops.aten.clone.default
            )  # functionalization would take the copy for the constant itself
        else:
            spell_out_write(node)
    module.recompile()


def _require_separate_elements(program: ExportedProgram) -> None:
    """Refuse writes to expanded tensors: functionalization adds up what is written to one place (torch 2.13)."""
    for graph in _graphs(program.graph_module):
        for node in graph.nodes:
            for target in written(node):
                tensor = tensor_of(target)
                if tensor is not None and any(
                    size > 1 and stride == 0
                    for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
                ):
                    raise ConversionError(
                        f"{node.target} changes an expanded tensor in place: several of its elements are one place in memory",
                        where=place(node),
                        fix="clone() the tensor before it is changed",
                    )


def _require_writes(program: ExportedProgram, functional: ExportedProgram, aliases: _Aliases) -> None:
    """Refuse a functional program that lost what an ``out=`` op writes into something from outside."""
    kept = {
        spec.target
        for spec in functional.graph_signature.output_specs
        if spec.kind is not OutputKind.USER_OUTPUT
    }
    names = {spec.arg.name: {spec.arg.name, spec.target} for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        for destination in destinations(node):
            sources = [other.name for other in aliases.of(destination) if other.op == "placeholder"]
            is_empty = destination.meta["val"].numel() == 0
            if sources and not is_empty and not any(names[name] & kept for name in sources):
                raise ConversionError(
                    f"PyTorch's functionalization loses what {node.target} writes into {sources[0]!r}",
                    where=place(node),
                    fix="call the op without out= and copy its result: x.copy_(result)",
                )


def _targets(node: Node, module: GraphModule) -> list[Node]:
    """Return the nodes that ``node`` may change: by writing, in a hidden way, or in the region it runs."""
    if hides_a_write(node):
        return [*written(node), *(item for item in node.all_input_nodes if item.op == "placeholder")]
    return node.all_input_nodes if any(map(_writes, _region_nodes(node, module))) else written(node)


def _writes(node: Node) -> bool:
    return bool(written(node)) or hides_a_write(node)


def _region_nodes(node: Node, module: GraphModule) -> Iterator[Node]:
    """Yield the nodes of the region that ``node`` runs, and of the regions in it."""
    if _is_region(node, GRAD_REGION) or _is_region(node, AUTOCAST_REGION):
        for item in node.all_input_nodes:
            if item.op == "get_attr":
                body = module.get_submodule(str(item.target))
                yield from (inner for graph in _graphs(body) for inner in graph.nodes)


def _with_own_graph(program: ExportedProgram) -> ExportedProgram:
    module = _with_own_graphs(program.graph_module)
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


def _with_own_graphs(module: GraphModule) -> GraphModule:
    """Return a copy of ``module`` and of the regions in it; their tensors are shared."""
    graph = FxGraph()
    copied_output: Any = graph.graph_copy(module.graph, {}, return_output_node=True)
    results, output = copied_output
    graph.output(results).meta.update(output.meta)
    for node, copied in zip(module.graph.nodes, graph.nodes, strict=True):
        copied.name = node.name  # the copy renames what looks like a Python builtin, such as "input"
    own = GraphModule(module, graph)
    own.meta.update(module.meta)
    for name, region in list(own.named_children()):
        if isinstance(region, GraphModule):
            setattr(own, name, _with_own_graphs(region))
    return own


def _separate_placeholders(
    program: ExportedProgram,
    prepared: ExportedProgram,
    nodes: dict[Node, Node],
    aliases: _Aliases,
    storages: set[int],
) -> None:
    """Give each placeholder memory of its own; readers of a tied one read the first."""
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for node in by_name.values():
        tensor = tensor_of(node)
        if tensor is None or aliases.storage(tensor) not in storages:
            continue
        group = [other for other in aliases.of(node) if other.op == "placeholder"]
        if len(group) < 2:
            continue
        untied = [other.name for other in group if other.name not in aliases.ties]
        if len(untied) > 1:
            names = ", ".join(str(targets[name] or name) for name in untied)
            raise ConversionError(
                f"{names} overlap in memory, and one of them is changed in place",
                where=place(next(iter(node.users), node)),
                fix="make each a tensor of its own (clone), or keep one and take views of it in forward",
            )
        first = by_name[aliases.ties.get(node.name, node.name)]
        if node is not first:
            nodes[node].replace_all_uses_with(nodes[first])
            with tensor.fake_mode:  # type: ignore[attr-defined]
                nodes[node].meta["val"] = torch.empty_like(tensor)
            target = targets[node.name]
            for tensors in (prepared.state_dict, prepared.constants):
                if target in tensors:
                    tensors[target] = _unshared(tensors[target])


def _unshared(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor like ``tensor``, a parameter if it is one, with memory of its own and any content."""
    empty = torch.empty_like(tensor)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad) if is_parameter else empty


def _expose_alias(node: Node, aliases: _Aliases, storages: set[int]) -> None:
    """Put an explicit view in place of an op that hides that its result is memory of an argument."""
    tensor = tensor_of(node)
    if tensor is None or node.op != "call_function" or aliases.storage(tensor) not in storages:
        return
    if _idle_dropout_input(node) is not None:
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        return
    root = node
    while root.target is _torch.GETITEM:
        root = root.args[0]  # type: ignore[assignment]
    schema = schema_of_node(root)
    if (
        root.target is _LIFT
        or schema is None
        or schema.writes
        or any(item.alias_info is not None for item in schema.op._schema.returns)
    ):
        return
    for item in root.all_input_nodes:
        source = tensor_of(item)
        if source is not None and aliases.storage(source) == aliases.storage(tensor):
            with node.graph.inserting_after(node):
                view = node.graph.call_function(
                    torch.ops.aten.as_strided.default,
                    (item, list(tensor.shape), list(tensor.stride()), tensor.storage_offset()),
                )
            view.meta = dict(node.meta)
            node.replace_all_uses_with(item if _same_view(source, tensor) else view)
            return
