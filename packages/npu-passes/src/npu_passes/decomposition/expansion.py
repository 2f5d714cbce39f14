"""What an op consists of: PyTorch runs it on values without data, and the ATen ops it calls are written down."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from npu_ir import NpuError, OpNode, TensorType
from npu_ir.core.types import Type
from npu_ir.ops.execution import run_op
from npu_ir.ops.fake_values import CPU, LARGE, StandIns
from npu_ir.ops.inference import TypedCall
from npu_ir.ops.schema import find_op, op_type_of, schema_of
from npu_ir.ops.torch_sizes import NotExpressibleError
from npu_ir.symbolic.constraints import Range
from npu_passes import _torch
from npu_passes.decomposition.recorded_calls import Step, recorded
from npu_passes.errors import PassError
from npu_passes.rewriting.layout import can_be_laid_out

# Fails on tensors that PyTorch conjugates lazily, which stand-ins do not tell.
_LOOKS_AT_MEMORY = "aten.view_as_real.default"
_CPU_ONLY = ("aten.mkldnn", "mkldnn.", "quantized.")


@dataclass(frozen=True, slots=True)
class Expansion:
    """The calls that a node consists of.

    Attributes:
        steps: In order. A `Ref` in their arguments is a value: an input of the node, a constant, or an output of a
            step before, counted in this order.
        results: For each output of the node: a `Ref`, or the plain data that it always is.
        types: Of the results.
        constants: Tensors that the steps read.
        inputs: How many the node has.
    """

    steps: tuple[Step, ...]
    results: tuple[Any, ...]
    types: tuple[Type, ...]
    constants: tuple[torch.Tensor, ...] = field(compare=False)
    inputs: int


def expansion(
    node: OpNode, symbols: Mapping[str, Range], *, keep: tuple[str, ...] = (), per_tensor: bool = False
) -> Expansion:
    """Return the core ATen calls that a node consists of; nodes that are alike are traced once.

    Args:
        node: Calls an operator of PyTorch, without regions.
        symbols: Of its graph.
        keep: Op types that are not taken apart.
        per_tensor: Take apart only the node's own op, one that works on lists of tensors: a call per tensor.

    Raises:
        PassError: The node is in the prologue, or the op cannot be traced, calls ops that write, depends on data or on open sizes, or consists of
            itself; the message says which.
    """
    op = find_op(node.op_type)
    if not isinstance(op, _torch.OpOverload) or node.regions:
        raise PassError(f"{node.op_type} is no operator of PyTorch without regions")
    if schema_of(op).writes:
        raise PassError(f"{node.op_type} writes into its arguments")
    if node.in_prologue:
        raise PassError("it is in the prologue, to which its parts cannot be added")
    call = TypedCall.of(node.op_type, op, node.inputs, node.attrs, node.operands, symbols)
    found = _expansion(call, keep, per_tensor)
    if isinstance(found, str):
        raise PassError(found)
    for output, type in zip(node.outputs, found.types, strict=True):
        if output.uses and not (_fits(type, output.type) and can_be_laid_out(type, output.type, symbols)):
            raise PassError(f"its parts return {type}, not {output.type}")
    return found


@functools.lru_cache(maxsize=4096)
def _expansion(call: TypedCall, keep: tuple[str, ...], per_tensor: bool) -> Expansion | str:
    """Return the expansion of a call, or why there is none."""
    stand_ins = StandIns(dict(call.ranges))
    try:
        found = _attempt(call, stand_ins, keep, per_tensor)
    except PassError as error:
        return error.message
    if [step.op_type for step in found.steps] == [call.op_type]:
        return f"PyTorch has no decomposition of {call.op_type}"
    if any(step.op_type == _LOOKS_AT_MEMORY and _reads_input(step, found) for step in found.steps):
        return f"its parts look at the memory of a complex tensor, which may hold the conjugate: {_LOOKS_AT_MEMORY}"
    if stand_ins.assumptions and not _is_same_for_all(call, stand_ins, keep, per_tensor, found):
        return f"it consists of other ops for other sizes: of these only where {stand_ins.assumptions}"
    return found


def _reads_input(step: Step, found: Expansion) -> bool:
    """Whether a step reads an input of the node as it is."""
    return any(index < found.inputs for index in step.reads)


def _is_same_for_all(
    call: TypedCall, stand_ins: StandIns, keep: tuple[str, ...], per_tensor: bool, found: Expansion
) -> bool:
    """Whether the expansion is the same at both ends of the ranges of open sizes, where the op accepts these."""
    if not stand_ins.assumes_bounds_only:
        return False
    for near in (1, LARGE):
        others = StandIns(dict(call.ranges), near)
        try:
            other = _attempt(call, others, keep, per_tensor)
        except PassError:
            continue
        if _at(found, others.examples) != _at(other, others.examples):
            return False
    return True


def _at(found: Expansion, sizes: Mapping[str, int]) -> Expansion:
    """Return an expansion with the types of its values for these sizes."""
    steps = (
        replace(step, types=tuple(type.substitute(sizes) for type in step.types)) for step in found.steps
    )
    return replace(found, steps=tuple(steps), types=tuple(type.substitute(sizes) for type in found.types))


def _attempt(call: TypedCall, stand_ins: StandIns, keep: tuple[str, ...], per_tensor: bool) -> Expansion:
    op = call.op
    assert isinstance(op, _torch.OpOverload)
    called = _torch.slow_kernel(op) if per_tensor else op
    if called is None:
        raise PassError(f"{call.op_type} has no kernel that calls one op per tensor")
    table = _slow_in_place(op) if per_tensor else _decompositions(keep)
    binding = call.binding

    def run(*inputs: Any) -> list[Any]:
        return run_op(called, binding, inputs, CPU)

    try:
        with torch.inference_mode(False), stand_ins.running():
            inputs = [stand_ins.stand_in(type) for type in call.types]
            return _recorded(call, stand_ins, run, inputs, table)
    except NpuError:
        raise
    except NotExpressibleError as error:
        raise PassError(f"in its parts, {error}") from error
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise PassError(f"PyTorch cannot trace it: {type(error).__name__}: {reason}") from error


def _recorded(
    call: TypedCall,
    stand_ins: StandIns,
    run: Callable[..., Any],
    inputs: Sequence[Any],
    table: Mapping[Any, Any],
) -> Expansion:
    module = _torch.traced(run, inputs, table)
    if any(_writes(node.target) for node in module.graph.nodes):
        module = _torch.traced(torch.func.functionalize(module, remove="mutations"), inputs, table)
    found = recorded(module, stand_ins.type_of)
    for step in found.steps:
        if _writes(find_op(step.op_type)):
            raise PassError(f"it consists of {step.op_type}, which writes into its arguments")
        if step.op_type.startswith(_CPU_ONLY):
            raise PassError(f"it consists of {step.op_type}, which only CPUs have")
    steps = found.steps if _names_device(call) else tuple(map(_on_any_device, found.steps))
    return Expansion(steps, found.results, found.result_types, found.constants, len(call.types))


def _slow_in_place(op: _torch.OpOverload) -> Mapping[Any, Any]:
    """Return how to take apart the in-place twin of an op on lists, by which some kernels work: ``_foreach_zero_``."""
    name, _, overload = op_type_of(op).rpartition(".")
    twin = find_op(f"{name}_.{overload}")
    kernel = _torch.slow_kernel(twin) if isinstance(twin, _torch.OpOverload) else None
    return {} if kernel is None else {twin: kernel}


def _writes(op: Any) -> bool:
    return isinstance(op, _torch.OpOverload) and schema_of(op).writes


@functools.lru_cache(maxsize=64)
def _decompositions(keep: tuple[str, ...]) -> Mapping[Any, Any]:
    """Return PyTorch's table, less what is core already, and what is kept."""
    table = torch.export.default_decompositions()
    return {
        op: function
        for op, function in table.items()  # type: ignore[no-untyped-call]
        if not _torch.is_core(op) and not (isinstance(op, _torch.OpOverload) and op_type_of(op) in keep)
    }


def _names_device(call: TypedCall) -> bool:
    return any(isinstance(item, torch.device) for item in call.attrs.values())


def _on_any_device(step: Step) -> Step:
    """Return a step that makes its tensor where the graph runs: the graph's own way to say so is ``meta``."""
    if not any(name == "device" and item is not None for name, item in step.kwargs):
        return step
    kwargs = ((name, torch.device("meta") if name == "device" else item) for name, item in step.kwargs)
    return replace(step, kwargs=tuple(kwargs))


def _fits(found: Type, wanted: Type) -> bool:
    if isinstance(found, TensorType):
        return found.same_shape_and_dtype(wanted)
    return found == wanted
