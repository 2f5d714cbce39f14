"""The writes of FX nodes, and a decomposition of those that PyTorch's functionalization gets wrong.

Functionalization replaces an op that writes by a functional one through a kernel generated for that op.
Without such a kernel (``polygamma_``, ``out=`` of most composite ops, torch 2.13) it fails, or silently
loses the write. Such an op is decomposed first: its functional op, then a copy of the result into the
mutated tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from npu_ir._torch.fake import trial
from npu_ir._torch.ops import GETITEM, OpOverload, can_be_functionalized, functional_call, overloads_of
from npu_ir._torch.pytree import tree_leaves
from npu_ir._torch.sizes import are_sizes_equal
from npu_ir._torch.tensors import is_functorch_wrapper
from npu_ir.capture.fx_nodes import nodes
from npu_ir.ops.schema import OpSchema, schema_of


def tensor_of(node: Node) -> torch.Tensor | None:
    """Return the FakeTensor of the result of ``node``; None if it is not a strided tensor."""
    value = node.meta.get("val")
    return value if _is_strided(value) else None


def tensors_of(node: Node) -> list[torch.Tensor]:
    """Return the FakeTensors of the strided tensors among the results of ``node``."""
    return [leaf for leaf in tree_leaves(node.meta.get("val")) if _is_strided(leaf)]


def same_shape_and_dtype(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors have the same dtype and provably the same shape."""
    return left.dtype == right.dtype and are_sizes_equal(left.shape, right.shape)


def _is_strided(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.layout is torch.strided and not is_functorch_wrapper(value)
    )


def schema_of_node(node: Node) -> OpSchema | None:
    """Return the schema of the op that ``node`` calls; None if it does not call an op."""
    return schema_of(node.target) if isinstance(node.target, OpOverload) else None


def written_nodes(node: Node) -> list[Node]:
    """Return the nodes whose tensors ``node`` mutates."""
    schema = schema_of_node(node)
    if schema is None or not schema.writes:
        return []
    arguments = _arguments_by_name(node, schema)
    targets = [item for arg in schema.args if arg.writes for item in _as_list(arguments.get(arg.name))]
    return [item for item in targets if isinstance(item, Node)]


def mutates(node: Node) -> bool:
    """Return whether ``node`` writes into a tensor, declared by its schema or not."""
    return bool(written_nodes(node)) or has_hidden_write(node)


def all_writes(module: torch.nn.Module) -> Iterator[tuple[Node, Node]]:
    """Yield each node of ``module`` and its bodies that writes by its schema, with each node it mutates."""
    for node in nodes(module):
        for target in written_nodes(node):
            yield node, target


def root_of(node: Node) -> Node:
    """Return the node whose memory ``node`` returns, through in-place ops."""
    while node.op != "placeholder" and (targets := written_nodes(node)):
        node = targets[0]
    return node


def out_arguments(node: Node) -> list[Node]:
    """Return the nodes that ``node`` writes without reading them: ``out=``."""
    schema = schema_of_node(node)
    if schema is None or schema.op is torch.ops.aten.empty.out:  # leaves the content undefined
        return []
    return [item for name in _out_argument_names(schema) for item in _as_list(node.kwargs[name])]


def fake_arguments(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of an FX node with FakeTensors and symbolic numbers in place of nodes."""
    fakes: tuple[Any, Any] = torch.fx.map_arg((args, kwargs), lambda item: item.meta["val"])
    return fakes


def _as_list(argument: Any) -> list[Any]:
    return list(argument) if isinstance(argument, (list, tuple)) else [argument]


def has_hidden_write(node: Node) -> bool:
    """Return whether an op updates running statistics that its schema declares read-only.

    ``batch_norm``, ``native_batch_norm`` and ``instance_norm`` in training mode do. PyTorch's
    functionalization handles the first two; the last is decomposed before it runs.
    """
    schema = schema_of_node(node)
    if schema is None or "running_mean" not in schema.by_name or schema.by_name["running_mean"].writes:
        return False
    if "running_mean_out" in schema.return_names or schema.op._opname.endswith("_backward"):
        return False  # functional variants return the new statistics, backward ops only read them
    arguments = _arguments_by_name(node, schema)
    is_training = any(arguments.get(name) for name in ("training", "train", "use_input_stats"))
    return is_training and isinstance(arguments.get("running_mean"), Node)


def _arguments_by_name(node: Node, schema: OpSchema) -> dict[str, Any]:
    return dict(zip((arg.name for arg in schema.args), node.args, strict=False)) | node.kwargs


def decompose_write(node: Node) -> None:
    """Replace ``node`` by a functional op and copies of its results, where functionalization needs that.

    An op stays if PyTorch functionalizes it by itself, or if no functional op returns results of the types
    that it writes.
    """
    schema = schema_of_node(node)
    if schema is None or not schema.writes:
        return
    if schema.runs_on_copies and schema.op.namespace != "aten" and not can_be_functionalized(schema.op):
        _insert_call_on_copies(node, schema)
        return
    if not _is_misfunctionalized(schema):
        return
    # An out= op becomes its functional overload and a copy_ into each destination; foo_ becomes foo, copy_.
    arguments = _arguments_by_name(node, schema)
    names = _out_argument_names(schema) or [arg.name for arg in schema.args if arg.writes]
    targets = [item for name in names for item in _as_list(arguments.get(name))]
    if not all(isinstance(target, Node) for target in targets):
        return
    for name in _out_argument_names(schema):
        del arguments[name]
    # A copy_ casts and broadcasts, which the op itself may refuse: results of other types are not taken.
    for functional in functional_variants(schema):
        args, kwargs = _order_arguments(functional, arguments)
        results = fake_results(node, functional, args, kwargs)
        expected = [target.meta["val"] for target in targets]
        if len(results) == len(expected) and all(map(_is_same_type, results, expected)):
            _replace(node, (functional, args, kwargs), results, targets)
            return


def _is_misfunctionalized(schema: OpSchema) -> bool:
    """Return whether functionalization has no kernel for an ATen op, or one that mixes up its writes.

    The latter holds for batch norms with ``out=``: their running statistics become results.
    """
    mixes_up = "running_mean" in schema.by_name and bool(_out_argument_names(schema))
    return schema.op.namespace == "aten" and (mixes_up or not can_be_functionalized(schema.op))


def _out_argument_names(schema: OpSchema) -> list[str]:
    """Return the names of the arguments that are written but not read: ``out=``."""
    return [arg.name for arg in schema.args if arg.writes and arg.kwarg_only]


def functional_variants(schema: OpSchema) -> Iterator[OpOverload]:
    """Yield the ops with the same arguments that return what this one writes."""
    destinations = _out_argument_names(schema)
    wanted = {name: type for name, type in _types_of_arguments(schema.op).items() if name not in destinations}
    name = schema.op._opname if destinations else schema.op._opname.removesuffix("_")
    for op in overloads_of(schema.op.namespace, name):
        is_other = op is not schema.op and (destinations or not schema_of(op).writes)
        if is_other and _types_of_arguments(op) == wanted:
            yield op


def _types_of_arguments(op: OpOverload) -> dict[str, str]:
    return {arg.name: str(arg.type) for arg in op._schema.arguments}


def _order_arguments(op: OpOverload, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return args and kwargs of a call of ``op``; arguments after the first absent one go by keyword."""
    args: list[Any] = []
    rest = dict(given)
    for arg in schema_of(op).args:
        if arg.kwarg_only or arg.name not in rest:
            break
        args.append(rest.pop(arg.name))
    return tuple(args), rest


def fake_results(node: Node, op: OpOverload, args: Any, kwargs: Any) -> list[Any]:
    """Return the FakeTensors that ``op`` returns at the position of ``node``."""
    args, kwargs = fake_arguments(args, kwargs)
    with trial([item.meta["val"] for item in node.all_input_nodes]):
        results = op(*args, **kwargs)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _insert_call_on_copies(node: Node, schema: OpSchema) -> None:
    """Replace the call of a custom op by one on copies, followed by copies back into the mutated tensors.

    The call on copies returns the results of the op, then the new content of each mutated argument, in the
    order of the schema.
    """
    arguments = _arguments_by_name(node, schema)
    op, args, kwargs = functional_call(schema.op, arguments)
    results = fake_results(node, op, args, kwargs)
    with node.graph.inserting_before(node):
        called = _insert_call(node, op, args, kwargs, tuple(results))
        targets = [arguments.get(arg.name) for arg in schema.args if arg.writes]
        # The op's own results come first; for an op without any this is one None.
        first = len(results) - len(targets)
        for index, target in enumerate(targets, start=first):
            part = _insert_call(node, GETITEM, (called, index), {}, results[index])
            if isinstance(target, Node):
                _insert_copy(node, target, part)
            for position, item in enumerate(target if isinstance(target, (list, tuple)) else ()):
                element = _insert_call(node, GETITEM, (part, position), {}, results[index][position])
                _insert_copy(node, item, element)
        is_single = len(schema.op._schema.returns) == 1
        result = _insert_call(node, GETITEM, (called, 0), {}, results[0]) if is_single else called
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)


def _insert_call(node: Node, target: Any, args: Any, kwargs: Any, value: Any) -> Node:
    """Return a new FX node with the metadata of ``node`` and the result ``value``."""
    call = node.graph.call_function(target, args, kwargs)
    call.meta = {**node.meta, "val": value}
    return call


def _insert_copy(node: Node, target: Node, content: Node) -> Node:
    return _insert_call(node, torch.ops.aten.copy_.default, (target, content), {}, target.meta["val"])


def _is_same_type(left: Any, right: Any) -> bool:
    """Return whether two tensors have the same dtype and provably the same shape; or neither is a tensor."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return not isinstance(left, torch.Tensor) and not isinstance(right, torch.Tensor)
    return same_shape_and_dtype(left, right)


def _replace(node: Node, call: tuple[Any, Any, Any], results: list[Any], targets: list[Node]) -> None:
    """Replace ``node`` by ``call`` and copies of its results into ``targets``."""
    is_single = len(results) == 1
    with node.graph.inserting_before(node):
        called = _insert_call(node, *call, results[0] if is_single else tuple(results))
        parts = [called]
        if not is_single:
            parts = [_insert_call(node, GETITEM, (called, i), {}, part) for i, part in enumerate(results)]
        copies = [_insert_copy(node, target, part) for target, part in zip(targets, parts, strict=True)]
    if is_single:
        node.replace_all_uses_with(copies[0])
    # Readers get the copies, not the results: they alias the targets, as the results of the original op did.
    for user in list(node.users):
        user.replace_all_uses_with(copies[user.args[1]])  # type: ignore[index]
        node.graph.erase_node(user)
    node.graph.erase_node(node)
