"""Expansion of an op into core ATen calls, which PyTorch traces on fake tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from npu_ir import NpuError, OpNode
from npu_ir.ops.execution import run_op
from npu_ir.ops.fake_values import CPU, LARGE, FakeValues
from npu_ir.ops.inference import TypedCall
from npu_ir.ops.schema import find_op, op_type_of, schema_of
from npu_ir.ops.torch_sizes import NotExpressibleError
from npu_ir.symbolic.constraints import Range
from npu_passes import _torch
from npu_passes.decomposition.recorded_calls import RecordedCall, Recording, record_calls
from npu_passes.errors import PassError
from npu_passes.rewriting.value_replacement import can_convert_strides, equals_up_to_strides

# Fails on tensors with the lazy conjugate bit, which fake tensors do not show.
_VIEW_AS_REAL = "aten.view_as_real.default"
_CPU_ONLY = ("aten.mkldnn", "mkldnn.", "quantized.")


def expand(
    node: OpNode, symbols: Mapping[str, Range], *, keep: tuple[str, ...] = (), per_tensor: bool = False
) -> Recording:
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
    expanded = _expand_cached(call, keep, per_tensor)
    if isinstance(expanded, str):
        raise PassError(expanded)
    for output, type in zip(node.outputs, expanded.types, strict=True):
        if output.uses and not (
            equals_up_to_strides(type, output.type) and can_convert_strides(type, output.type, symbols)
        ):
            raise PassError(f"its parts return {type}, not {output.type}")
    return expanded


@functools.lru_cache(maxsize=4096)
def _expand_cached(call: TypedCall, keep: tuple[str, ...], per_tensor: bool) -> Recording | str:
    """Return the expansion of a call, or the reason why there is none: failures are cached, too."""
    fakes = FakeValues(dict(call.ranges))
    try:
        expanded = _try_expand(call, fakes, keep, per_tensor)
    except PassError as error:
        return error.message
    if [step.op_type for step in expanded.calls] == [call.op_type]:
        return f"PyTorch has no decomposition of {call.op_type}"
    views = [step for step in expanded.calls if step.op_type == _VIEW_AS_REAL]
    if any(index < expanded.inputs for step in views for index in step.reads):
        return f"its parts view the memory of a complex tensor, which may hold the conjugate: {_VIEW_AS_REAL}"
    # PyTorch has guarded on a symbolic size: it traced one branch of the decomposition.
    if fakes.assumptions and not _is_same_for_all_sizes(call, fakes, keep, per_tensor, expanded):
        return f"it expands to other ops for other sizes: to these only where {fakes.assumptions}"
    return expanded


def _is_same_for_all_sizes(
    call: TypedCall, fakes: FakeValues, keep: tuple[str, ...], per_tensor: bool, found: Recording
) -> bool:
    """Return whether the expansion is the same at both ends of the ranges of symbolic sizes.

    Sizes that the op does not accept are skipped.
    """
    if not fakes.assumes_bounds_only:
        return False
    # The assumptions are bounds: what is the same below and above them is taken to hold for all sizes.
    for near in (1, LARGE):
        others = FakeValues(dict(call.ranges), near)
        try:
            other = _try_expand(call, others, keep, per_tensor)
        except PassError:
            continue
        if _specialize(found, others.examples) != _specialize(other, others.examples):
            return False
    return True


def _specialize(found: Recording, sizes: Mapping[str, int]) -> Recording:
    """Return an expansion with the types of its values specialized to sizes."""
    steps = (
        replace(step, types=tuple(type.substitute(sizes) for type in step.types)) for step in found.calls
    )
    return replace(found, calls=tuple(steps), types=tuple(type.substitute(sizes) for type in found.types))


def _try_expand(call: TypedCall, fakes: FakeValues, keep: tuple[str, ...], per_tensor: bool) -> Recording:
    op = call.op
    assert isinstance(op, _torch.OpOverload)
    called = _torch.composite_kernel(op) if per_tensor else op
    if called is None:
        raise PassError(f"{call.op_type} has no kernel that calls one op per tensor")
    table = _inplace_decomposition(op) if per_tensor else _decomposition_table(keep)
    binding = call.binding

    def run(*inputs: Any) -> list[Any]:
        return run_op(called, binding, inputs, CPU)

    try:
        with torch.inference_mode(False), fakes.activate():
            inputs = [fakes.fake_value(type) for type in call.types]
            return _trace_and_record(call, fakes, run, inputs, table)
    except NpuError:
        raise
    except NotExpressibleError as error:
        raise PassError(f"in its parts, {error}") from error
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise PassError(f"PyTorch cannot trace it: {type(error).__name__}: {reason}") from error


def _trace_and_record(
    call: TypedCall,
    fakes: FakeValues,
    run: Callable[..., Any],
    inputs: Sequence[Any],
    table: Mapping[Any, Any],
) -> Recording:
    module = _torch.trace(run, inputs, table)
    # Decompositions may write into temporaries of their own: functionalize the module, and trace it again.
    if any(_is_mutating(node.target) for node in module.graph.nodes):
        module = _torch.trace(torch.func.functionalize(module, remove="mutations"), inputs, table)
    recording = record_calls(module, fakes.type_of)
    for step in recording.calls:
        if _is_mutating(find_op(step.op_type)):
            raise PassError(f"it consists of {step.op_type}, which writes into its arguments")
        if step.op_type.startswith(_CPU_ONLY):
            raise PassError(f"it consists of {step.op_type}, which only CPUs have")
    if any(isinstance(item, torch.device) for item in call.attrs.values()):
        return recording
    return replace(recording, calls=tuple(map(_strip_device, recording.calls)))


def _inplace_decomposition(op: _torch.OpOverload) -> Mapping[Any, Any]:
    """Return a decomposition of an op's in-place variant, which its per-tensor kernel may call."""
    name, _, overload = op_type_of(op).rpartition(".")
    twin = find_op(f"{name}_.{overload}")
    kernel = _torch.composite_kernel(twin) if isinstance(twin, _torch.OpOverload) else None
    return {} if kernel is None else {twin: kernel}


def _is_mutating(op: Any) -> bool:
    return isinstance(op, _torch.OpOverload) and schema_of(op).writes


@functools.lru_cache(maxsize=64)
def _decomposition_table(keep: tuple[str, ...]) -> Mapping[Any, Any]:
    """Return PyTorch's decomposition table, without core ops and those in ``keep``."""
    table = torch.export.default_decompositions()
    return {
        op: function
        for op, function in table.items()  # type: ignore[no-untyped-call]
        if not _torch.is_core(op) and not (isinstance(op, _torch.OpOverload) and op_type_of(op) in keep)
    }


def _strip_device(step: RecordedCall) -> RecordedCall:
    """Return a call that creates its tensor where the graph runs, which ``meta`` denotes in attributes."""
    if not any(name == "device" and item is not None for name, item in step.kwargs):
        return step
    kwargs = ((name, torch.device("meta") if name == "device" else item) for name, item in step.kwargs)
    return replace(step, kwargs=tuple(kwargs))
