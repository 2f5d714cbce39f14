"""Ops: overloads, schemas, functional calls and decompositions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from npu_ir._torch.fake import trial

GETITEM = operator.getitem
OpOverload: TypeAlias = torch._ops.OpOverload
HigherOrderOperator: TypeAlias = torch._ops.HigherOrderOperator


def is_functorch_call(target: Any) -> bool:
    """Return whether an FX node's target is a call that torch.export leaves of a ``torch.func`` transform."""
    return getattr(target, "__module__", "") == "torch._functorch.predispatch"


def can_be_functionalized(op: OpOverload) -> bool:
    """Return whether PyTorch has a kernel that functionalizes ``op``, which writes."""
    name = op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "Functionalize")


def functional_call(
    op: OpOverload, arguments: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return target, args and kwargs of an FX node that calls ``op``, which writes, on copies.

    The node returns the results of ``op`` (None if it has none), then the mutated copies.
    """
    from torch._higher_order_ops.auto_functionalize import auto_functionalized

    by_name = {arg.name: arguments.get(arg.name, arg.default_value) for arg in op._schema.arguments}
    return auto_functionalized, (op,), by_name


def higher_order_op(name: str) -> HigherOrderOperator | None:
    """Return the higher-order operator of this name, such as ``cond``; None if there is none."""
    import torch._higher_order_ops  # registers them

    op = torch._ops._higher_order_ops.get(name)
    return op if isinstance(op, HigherOrderOperator) else None


def has_side_effects(op: Any) -> bool:
    """Return whether PyTorch registers ``op`` as one with side effects."""
    from torch._higher_order_ops import effects
    from torch.fx.node import _side_effectful_functions

    # Until torch 2.9 it has packets of those of the profiler, not their overloads.
    if op in _side_effectful_functions or getattr(op, "overloadpacket", None) in _side_effectful_functions:
        return True
    if hasattr(effects, "_get_effect"):
        return effects._get_effect(op) is not None
    until_2_9: Any = effects
    return until_2_9.get_effect_key(op, (), {}) is not None


def overloads_of(namespace: str, name: str) -> list[OpOverload]:
    """Return every overload of the op ``namespace.name``; none if there is no such op."""
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return []
    return [getattr(packet, overload) for overload in packet.overloads()]  # type: ignore[no-untyped-call]


def takes_numbers_as_tensors(op: OpOverload) -> bool:
    """Return whether PyTorch converts numbers to tensors where ``op`` takes tensors."""
    return torch._C._should_allow_numbers_as_tensors(op._schema.name.split("::")[-1])


def is_composite(op: OpOverload) -> bool:
    """Return whether ``op`` is implemented by other ops for all backends and autograd (CompositeImplicit)."""
    return op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def inline_decomposition(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Replace one call of a composite op in an FX graph with FakeTensors by the ops that it consists of."""
    from torch.fx.experimental.proxy_tensor import make_fx

    function = _decomposition_of(node.target)
    fakes = [item.meta["val"] for item in node.all_input_nodes]

    def parts(*tensors: Any) -> Any:
        values = dict(zip(node.all_input_nodes, tensors, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        return function(*args, **kwargs)

    with trial(fakes), torch.no_grad():
        traced = make_fx(parts)(*fakes)
    arguments = (part for part in traced.graph.nodes if part.op == "placeholder")
    values: dict[torch.fx.Node, torch.fx.Node] = dict(zip(arguments, node.all_input_nodes, strict=True))
    with module.graph.inserting_before(node):
        for part in traced.graph.nodes:
            if part.op == "call_function":
                values[part] = module.graph.node_copy(part, values.__getitem__)
                values[part].meta = {**node.meta, **part.meta}
            elif part.op == "output":
                _replace(node, torch.fx.map_arg(part.args[0], values.__getitem__))


def _decomposition_of(target: Any) -> Callable[..., Any]:
    """Return the function that decomposes a composite op, or a functional call on views."""
    from torch._higher_order_ops.auto_functionalize import (
        auto_functionalized_v2,
        auto_functionalized_v2_dense,
    )

    if target is auto_functionalized_v2:
        return auto_functionalized_v2_dense
    return functools.partial(target._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)


def _replace(node: torch.fx.Node, result: Any) -> None:
    """Replace the uses of ``node`` by ``result``: one node, or one for each of several results."""
    if isinstance(result, torch.fx.Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            assert user.target is GETITEM
            user.replace_all_uses_with(result[user.args[1]])
            node.graph.erase_node(user)
    node.graph.erase_node(node)


def parse_schema(schema: str) -> Any | None:
    """Return the schema that a text of PyTorch's notation states; None if it cannot be read."""
    try:
        return torch._C.parse_schema(schema)
    except RuntimeError:
        return None  # not a schema, or of types this torch does not know


def has_namespace(namespace: str) -> bool:
    """Return whether any op of this namespace is registered."""
    return any(name.startswith(f"{namespace}::") for name in torch._C._dispatch_get_all_op_names())


def op_types_of(namespace: str) -> list[str]:
    """Return the op types of all overloads that are registered in a namespace."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith(f"{namespace}::")]
    return sorted((name if "." in name else f"{name}.default").replace("::", ".") for name in names)
