"""Expansion of an op into core ATen calls, which PyTorch traces on fake tensors."""

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

# Fails on tensors with the lazy conjugate bit, which fake tensors do not show.
_LOOKS_AT_MEMORY = "aten.view_as_real.default"
_CPU_ONLY = ("aten.mkldnn", "mkldnn.", "quantized.")


@dataclass(frozen=True, slots=True)
class Expansion:
    """The calls that a node expands to.

    Attributes:
        steps: The calls, in order. A `Ref` in their arguments is a value, numbered in the order: inputs
            of the node, constants, outputs of earlier calls.
        results: For each output of the node: a `Ref`, or None.
        types: The types of the results.
        constants: Tensors that the calls read.
        inputs: The number of inputs of the node.
    """

    steps: tuple[Step, ...]
    results: tuple[Any, ...]
    types: tuple[Type, ...]
    constants: tuple[torch.Tensor, ...] = field(compare=False)
    inputs: int


def expansion(
    node: OpNode, symbols: Mapping[str, Range], *, keep: tuple[str, ...] = (), per_tensor: bool = False
) -> Expansion:
    """Return the core ATen calls that a node expands to; equal calls are traced once.

    Args:
        node: A call of a PyTorch operator without regions.
        symbols: The symbols of its graph, with their ranges.
        keep: Op types that are not decomposed.
        per_tensor: Decompose only the node's own op, which takes lists of tensors, into a call per tensor.

    Raises:
        PassError: The node is in the prologue, or the op cannot be traced, calls ops that mutate,
            depends on data or on symbolic sizes, or has no decomposition; the message gives the reason.
    """
    op = find_op(node.op_type)
    if not isinstance(op, _torch.OpOverload) or node.regions:
        raise PassError(f"{node.op_type} is not a PyTorch operator without regions")
    if schema_of(op).writes:
        raise PassError(f"{node.op_type} writes into its arguments")
    if node.in_prologue:
        raise PassError("it is in the prologue, to which its parts cannot be added")
    call = TypedCall.of(node.op_type, op, node.inputs, node.attrs, node.operands, symbols)
    expanded = _expansion(call, keep, per_tensor)
    if isinstance(expanded, str):
        raise PassError(expanded)
    for output, type in zip(node.outputs, expanded.types, strict=True):
        if output.uses and not (_fits(type, output.type) and can_be_laid_out(type, output.type, symbols)):
            raise PassError(f"its parts return {type}, not {output.type}")
    return expanded


@functools.lru_cache(maxsize=4096)
def _expansion(call: TypedCall, keep: tuple[str, ...], per_tensor: bool) -> Expansion | str:
    """Return the expansion of a call, or the reason why there is none: failures are cached, too."""
    stand_ins = StandIns(dict(call.ranges))
    try:
        expanded = _attempt(call, stand_ins, keep, per_tensor)
    except PassError as error:
        return error.message
    if [step.op_type for step in expanded.steps] == [call.op_type]:
        return f"PyTorch has no decomposition of {call.op_type}"
    if any(step.op_type == _LOOKS_AT_MEMORY and _reads_input(step, expanded) for step in expanded.steps):
        return (
            f"its parts view the memory of a complex tensor, which may hold the conjugate: {_LOOKS_AT_MEMORY}"
        )
    # PyTorch has guarded on a symbolic size: it traced one branch of the decomposition.
    if stand_ins.assumptions and not _is_same_for_all(call, stand_ins, keep, per_tensor, expanded):
        return f"it expands to other ops for other sizes: to these only where {stand_ins.assumptions}"
    return expanded


def _reads_input(step: Step, found: Expansion) -> bool:
    """Return whether a call reads an input of the node directly."""
    return any(index < found.inputs for index in step.reads)


def _is_same_for_all(
    call: TypedCall, stand_ins: StandIns, keep: tuple[str, ...], per_tensor: bool, found: Expansion
) -> bool:
    """Return whether the expansion is the same at both ends of the ranges of symbolic sizes.

    Sizes that the op does not accept are skipped.
    """
    if not stand_ins.assumes_bounds_only:
        return False
    # The assumptions are bounds: what is the same below and above them is taken to hold for all sizes.
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
    """Return an expansion with the types of its values specialized to sizes."""
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
    # Decompositions may write into temporaries of their own: functionalize the module, and trace it again.
    if any(_writes(node.target) for node in module.graph.nodes):
        module = _torch.traced(torch.func.functionalize(module, remove="mutations"), inputs, table)
    recording = recorded(module, stand_ins.type_of)
    for step in recording.steps:
        if _writes(find_op(step.op_type)):
            raise PassError(f"it consists of {step.op_type}, which writes into its arguments")
        if step.op_type.startswith(_CPU_ONLY):
            raise PassError(f"it consists of {step.op_type}, which only CPUs have")
    steps = recording.steps if _names_device(call) else tuple(map(_on_any_device, recording.steps))
    return Expansion(steps, recording.results, recording.result_types, recording.constants, len(call.types))


def _slow_in_place(op: _torch.OpOverload) -> Mapping[Any, Any]:
    """Return a decomposition of an op's in-place variant, which its per-tensor kernel may call."""
    name, _, overload = op_type_of(op).rpartition(".")
    twin = find_op(f"{name}_.{overload}")
    kernel = _torch.slow_kernel(twin) if isinstance(twin, _torch.OpOverload) else None
    return {} if kernel is None else {twin: kernel}


def _writes(op: Any) -> bool:
    return isinstance(op, _torch.OpOverload) and schema_of(op).writes


@functools.lru_cache(maxsize=64)
def _decompositions(keep: tuple[str, ...]) -> Mapping[Any, Any]:
    """Return PyTorch's decomposition table, without core ops and those in ``keep``."""
    table = torch.export.default_decompositions()
    return {
        op: function
        for op, function in table.items()  # type: ignore[no-untyped-call]
        if not _torch.is_core(op) and not (isinstance(op, _torch.OpOverload) and op_type_of(op) in keep)
    }


def _names_device(call: TypedCall) -> bool:
    return any(isinstance(item, torch.device) for item in call.attrs.values())


def _on_any_device(step: Step) -> Step:
    """Return a call that creates its tensor where the graph runs, which ``meta`` denotes in attributes."""
    if not any(name == "device" and item is not None for name, item in step.kwargs):
        return step
    kwargs = ((name, torch.device("meta") if name == "device" else item) for name, item in step.kwargs)
    return replace(step, kwargs=tuple(kwargs))


def _fits(found: Type, wanted: Type) -> bool:
    if isinstance(found, TensorType):
        return found.same_shape_and_dtype(wanted)
    return found == wanted
