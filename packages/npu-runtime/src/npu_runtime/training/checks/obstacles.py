"""Obstacles to a capture: in the graph of a step, by tags and schemas of ops, in its parts and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.tensor_bytes import same_data
from npu_ir.core.types import ScalarType
from npu_ir.ops.effects import is_random, is_view
from npu_ir.ops.execution import location_of
from npu_ir.ops.schema import find_op
from npu_runtime._torch.ops import OpOverload
from npu_runtime.training.checks.violations import Violation
from npu_runtime.training.tracing.components import TrainingComponents

# Namespaces whose ops draw from PyTorch's own generators, which a capture registers.
_PYTORCH_NAMESPACES = ("aten", "prims", "npu")


def graph_violations(graph: Graph, device: torch.device) -> Iterator[Violation]:
    """Yield the violations of nodes, in order, then those of arguments, constants and updates."""
    for part in graph.graphs():
        for node in part.nodes:
            for check in _NODE_CHECKS:
                yield from check(node, device)
    yield from _symbolic_sizes(graph)
    yield from _baked_tensors(graph)
    yield from _accumulated_gradients(graph)
    yield from _prepared_weights(graph)


def _host_sync(node: OpNode, device: torch.device) -> Iterator[Violation]:  # noqa: ARG001 - one signature
    if not _has_tag(node, torch.Tag.data_dependent_output) and not _converts_tensor_to_number(node):
        return
    yield Violation(
        "host-sync",
        f"{node.op_type} reads the content of a tensor in Python: a replay would use the value of the trace",
        location_of(node),
        "keep it a tensor: no .item(), float() or comparison of tensors in Python",
    )


def _converts_tensor_to_number(node: OpNode) -> bool:
    """Return whether a node turns tensors into a number, other than a size, which is inferred from types."""
    op = find_op(node.op_type)
    if not isinstance(op, OpOverload) or not any(isinstance(item.type, TensorType) for item in node.inputs):
        return False
    if any(item.real_type.kind() == "SymIntType" for item in op._schema.returns):  # as of attention on GPUs
        return False
    numbers = [item.type for item in node.outputs if isinstance(item.type, ScalarType)]
    return any(
        item.kind != "none" and item.value is None for item in numbers
    ) and not node.op_type.startswith("aten.sym_")


def _data_dependent_size(node: OpNode, device: torch.device) -> Iterator[Violation]:  # noqa: ARG001
    input_symbols = {name for value in node.inputs for name in value.type.symbols}
    if any(value.type.symbols - input_symbols for value in node.outputs):
        yield Violation(
            "data-dependent-size",
            f"{node.op_type} returns a number of elements that depends on data: memory cannot be planned",
            location_of(node),
            "use a mask and torch.where in place of nonzero(), masked_select() and boolean indices",
        )


def _other_device(node: OpNode, device: torch.device) -> Iterator[Violation]:
    for name, item in node.attrs.items():
        if isinstance(item, torch.device) and item.type != "meta" and not _is_same_device(item, device):
            yield Violation(
                "other-device",
                f"{node.op_type} works on {item} ({name}=), the step on {device}",
                location_of(node),
                "make the tensor on the device of the step: "
                f"device=x.device, or .to({str(device)!r}) before the step",
            )


def _is_same_device(left: torch.device, right: torch.device) -> bool:
    return left.type == right.type and (left.index or 0) == (right.index or 0)


def _unregistered_random(node: OpNode, device: torch.device) -> Iterator[Violation]:
    if node.attrs.get("generator") is not None or "generator" in (node.operands or ()):
        yield Violation(
            "unregistered-random",
            f"{node.op_type} draws from a generator of its own, whose state the graph does not have",
            location_of(node),
            "leave generator= out: a replay then draws from PyTorch's generator of the device, "
            "and advances it",
        )
    namespace = node.op_type.partition(".")[0]
    if device.type == "cuda" and namespace not in _PYTORCH_NAMESPACES and is_random(node):
        yield Violation(
            "unregistered-random",
            f"{node.op_type} draws random numbers, and nothing is known of its generator",
            location_of(node),
            "let the op take a seed and an offset as tensors, or draw with PyTorch and pass the numbers in",
        )


def _has_tag(node: OpNode, tag: torch.Tag) -> bool:
    op = find_op(node.op_type)
    return isinstance(op, OpOverload) and tag in op.tags


def _symbolic_sizes(graph: Graph) -> Iterator[Violation]:
    for value in graph.arguments:
        if value.type.symbols:
            yield Violation(
                "symbolic-size",
                f"%{value.name} is {value.type}: memory is planned for fixed sizes",
                f"graph {graph.name!r}",
                "fix the sizes: graph.specialize({...}); or capture one step for each",
            )


def _baked_tensors(graph: Graph) -> Iterator[Violation]:
    for value in graph.constants.values():
        argument = value.argument
        assert argument is not None
        if argument.data is None or not _is_inexact(value):
            continue
        is_number = value.tensor_type.numel == 1
        held = repr(argument.data.reshape(()).item()) if is_number else f"{value.tensor_type.numel} elements"
        yield Violation(
            "baked-number" if is_number else "baked-tensor",
            f"the tensor %{value.name} holds in every replay what it held when the step was traced: {held}",
            _reader_location(value, graph),
            "pass it to the step as an argument, or make it a buffer, if it has to change; "
            "otherwise ignore this note",
            is_note=True,
        )


def _is_inexact(value: Value) -> bool:
    dtype = value.tensor_type.dtype
    return dtype.is_floating_point or dtype.is_complex


def _reader_location(value: Value, graph: Graph) -> str:
    return next((location_of(node) for node in value.users), f"graph {graph.name!r}")


def _accumulated_gradients(graph: Graph) -> Iterator[Violation]:
    for target in graph.updates:
        name = target.name if target.argument is None else target.argument.target
        if name.rpartition(".")[2] == "grad" and target.users:
            yield Violation(
                "accumulated-gradient",
                f"the step adds to %{target.name}, a gradient from the step before",
                _reader_location(target, graph),
                "call optimizer.zero_grad() in the step, not with set_to_none=False; "
                "to accumulate, call backward() several times in one step",
            )


def _prepared_weights(graph: Graph) -> Iterator[Violation]:
    """Yield weights that passes compute with before the first step, such as a batch norm that they fold."""
    readers: dict[str, OpNode] = {}
    for node in graph.nodes:
        for value in node.inputs if node.in_prologue and not is_view(node) else ():
            argument = _viewed(value).argument
            if argument is not None and argument.data is None:
                readers.setdefault(argument.target, node)
    for target, reader in readers.items():
        yield Violation(
            "prepared-weight",
            f"{target!r} is not trained, and the passes read it once: a step does not see it change",
            location_of(reader),
            "to change it between steps, leave passes= to the default, or make the step again after",
            is_note=True,
        )


def _viewed(value: Value) -> Value:
    """Return the value that a view is of, by its first input."""
    while value.producer is not None and is_view(value.producer):
        value = value.producer.inputs[0]
    return value


_NODE_CHECKS: tuple[Callable[[OpNode, torch.device], Iterator[Violation]], ...] = (
    _host_sync,
    _data_dependent_size,
    _other_device,
    _unregistered_random,
)


def component_violations(components: TrainingComponents) -> Iterator[Violation]:
    """Yield hooks that a replay would not run."""
    for name, parameter in components.parameters().items():
        hooks = [
            *(parameter._backward_hooks or {}).values(),
            *(getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values(),
        ]
        for hook in hooks:
            yield Violation(
                "parameter-hook",
                f"the parameter {name!r} has a hook, {_hook_name(hook)}, which would not run in a replay",
                _hook_location(hook),
                "change gradients in the step function, between backward() and step(); and remove the hook",
            )
    for prefix, optimizer in components.optimizers.items():
        kinds = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        for hook in (hook for hooks in kinds for hook in hooks.values()):
            yield Violation(
                "optimizer-hook",
                f"{prefix}{type(optimizer).__name__} has a hook on its step, {_hook_name(hook)}, which would "
                "not run in a replay",
                _hook_location(hook),
                "do its work after each replay, and remove the hook",
            )


def baked_parameters(graph: Graph, weights: Mapping[str, torch.Tensor]) -> Iterator[Violation]:
    """Yield constants of a graph with the contents of a parameter: copies that would never be trained."""
    trained = {name: item for name, item in weights.items() if item.requires_grad and item.numel() > 1}
    for value in graph.constants.values():
        assert value.argument is not None
        data = value.argument.data
        if data is None:
            continue
        for name, item in trained.items():
            is_meta = data.is_meta or item.is_meta
            if data.requires_grad or (not is_meta and same_data(data, item)):
                yield Violation(
                    "baked-tensor",
                    f"the constant %{value.name} is a copy of the parameter {name!r}: "
                    "it would never be trained",
                    next(
                        (str(node.provenance) or node.name for node in value.users), f"graph {graph.name!r}"
                    ),
                    "reach the parameter through its module in the step, not through a detached copy",
                )
                break


def device_violations(graph: Graph, weights: Mapping[str, Any], device: torch.device) -> Iterator[Violation]:
    """Yield weights that are on another device than the step."""
    for value in graph.arguments:
        argument = value.argument
        assert argument is not None
        item = weights.get(argument.target)
        if isinstance(item, torch.Tensor) and item.device.type != device.type:
            yield Violation(
                "other-device",
                f"{argument.target!r} is on {item.device}, the step on {device}",
                f"graph {graph.name!r}",
                f"move the model before its optimizer is made: model.to({str(device)!r})",
            )


def _hook_name(hook: Any) -> str:
    return repr(getattr(hook, "__qualname__", type(hook).__name__))


def _hook_location(hook: Any) -> str:
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    return "its source is unknown" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
