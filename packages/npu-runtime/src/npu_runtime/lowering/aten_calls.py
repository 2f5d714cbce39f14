"""Instructions of ATen: one node as one call of its operator, or of the executor registered for its op."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from npu_ir import ExecutionError, OpNode
from npu_ir.ops.calls import Binding, Slot
from npu_ir.ops.effects import is_pure, is_random
from npu_ir.ops.execution import binding_of, execute_node
from npu_ir.ops.schema import Op, find_op
from npu_ir.plugins import plugin_manager
from npu_runtime._torch.ops import HigherOrderOperator, OpOverload
from npu_runtime.lowering.instruction import Instruction, Returns
from npu_runtime.probing.op_probe import OpProbe

# By argument: a function from the values of the symbols to the callable of a region.
Regions = Mapping[str, Callable[[Any], Callable[..., Any]]]

ATEN = "aten"
_PROBED_NAMESPACES = frozenset({"aten", "prims", "mkl", "mkldnn", "onednn", "quantized", "npu"})


def lower_node(
    node: OpNode, probe: OpProbe, device: torch.device, regions: Regions | None = None
) -> Instruction:
    """Return the instruction that runs a node in PyTorch, by the fastest callable known to be equivalent.

    Args:
        node: Any node.
        probe: Observes call traits.
        device: The device in place of ``meta`` in the arguments of the node.
        regions: The callables of its regions.
    """
    op = find_op(node.op_type)
    is_registered = plugin_manager.registry().table("execution").get(node.op_type) is not None
    if is_registered or node.regions or op is None or isinstance(op, HigherOrderOperator):
        return _interpreted(node, device, regions or {})
    try:
        binding = _replace_meta_device(binding_of(node, op), device)
    except ExecutionError:
        return _interpreted(node, device, {})  # the error is raised when it runs, as in the interpreter
    traits = None if binding.written or not _is_safe_to_probe(node, op) else probe.observe(node, op, binding)
    if traits is None:
        return _interpreted(node, device, {})
    returns_nested = _returns_nested_lists(op)
    return Instruction(
        nodes=(node,),
        backend=ATEN,
        kernel=traits.kernel,
        function=_flatten_results(traits.function) if returns_nested else traits.function,
        binding=binding,
        inputs=node.inputs,
        outputs=node.outputs,
        returns=_return_convention(op),
        traits=traits,
    )


def _interpreted(node: OpNode, device: torch.device, regions: Regions) -> Instruction:
    """Return an instruction that runs a node as the interpreter does, with all its checks."""
    count = len(node.inputs)
    return Instruction(
        nodes=(node,),
        backend=ATEN,
        kernel=f"checked {node.op_type}",
        function=functools.partial(_execute, node, device, regions),
        binding=Binding(([Slot(index) for index in range(count)],), {}),
        inputs=node.inputs,
        outputs=node.outputs,
        returns=Returns.SEQUENCE if node.outputs else Returns.NOTHING,
        needs_symbols=True,
    )


def _execute(
    node: OpNode, device: torch.device, regions: Regions, symbols: Any, inputs: list[Any]
) -> list[Any]:
    bound = {argument: region(symbols) for argument, region in regions.items()}
    return execute_node(node, inputs, device, symbols, bound)


def _is_safe_to_probe(node: OpNode, op: Op) -> bool:
    """Return whether a node may be run as a trial, without side effects: not so for third-party ops."""
    is_torch = not isinstance(op, OpOverload) or op.namespace in _PROBED_NAMESPACES
    return is_torch and (is_pure(node) or is_random(node))


def _replace_meta_device(binding: Binding, device: torch.device) -> Binding:
    """Return a binding with ``device`` in place of ``meta``."""

    def placed(item: Any) -> Any:
        if type(item) is list:
            return [placed(part) for part in item]
        return device if isinstance(item, torch.device) and item.type == "meta" else item

    keyword = {name: placed(item) for name, item in binding.keyword.items()}
    return replace(binding, positional=tuple(map(placed, binding.positional)), keyword=keyword)


def _return_convention(op: Op) -> Returns:
    if not isinstance(op, OpOverload):
        return Returns.ONE  # a Python function of numbers
    returns = op._schema.returns
    if not returns:
        return Returns.NOTHING
    return Returns.ONE if len(returns) == 1 and not _is_list_type(returns[0]) else Returns.SEQUENCE


def _returns_nested_lists(op: Op) -> bool:
    return (
        isinstance(op, OpOverload)
        and len(op._schema.returns) > 1
        and any(map(_is_list_type, op._schema.returns))
    )


def _is_list_type(item: Any) -> bool:
    return isinstance(item.type, torch.ListType)


def _flatten_results(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    def call(*args: Any, **kwargs: Any) -> list[Any]:
        result = function(*args, **kwargs)
        return [leaf for part in result for leaf in (part if isinstance(part, (list, tuple)) else (part,))]

    return call
