"""Instructions of other backends: one call for each partition, with inputs and outputs checked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.core.types import Type
from npu_ir.errors import BackendError
from npu_ir.ops.calls import Binding, Slot
from npu_ir.ops.effects import is_view
from npu_ir.ops.execution import describe, is_of_type
from npu_ir.plugins.backend import Backend, copy_memory, copy_with_strides
from npu_runtime.backends.partition import Partition
from npu_runtime.lowering.instruction import Instruction, PreparedPartition, Returns
from npu_runtime.probing.op_probe import CallTraits
from npu_runtime.probing.storage import with_stated_strides


def lower_partition(backend: Backend, partition: Partition, device: torch.device) -> Instruction:
    """Return the instruction that runs a partition; its inputs are passed in their stated strides.

    Raises:
        BackendError: The backend cannot prepare them.
    """
    try:
        prepared = backend.prepare(partition.graph, backend.lower(partition.graph), device)
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {backend.name!r} failed to prepare {len(partition.nodes)} nodes that it supports:"
            f" {error}",
            where=f"nodes {partition.nodes[0].name!r} to {partition.nodes[-1].name!r}",
        ) from error
    count = len(partition.inputs)
    types = [value.type for value in partition.inputs], [value.type for value in partition.outputs]
    layouts = [_static_layout(type) for type in types[0]], [_static_layout(type) for type in types[1]]
    kernel = f"{backend.name}.run"
    function = functools.partial(_run_partition, backend, prepared, *types, *layouts)
    outputs = len(partition.outputs)
    # A backend is opaque: with a view among its nodes, any output may alias any input.
    may_share = frozenset(range(count)) if any(map(is_view, partition.nodes)) else frozenset()
    traits = CallTraits(
        kernel=kernel,
        function=function,
        in_place=None,
        shares=(may_share,) * outputs,
        has_stated_strides=(False,) * outputs,  # promised by the backend, but not observed
        starts_storage=(False,) * outputs,
        is_certain=not may_share,
    )
    return Instruction(
        nodes=partition.nodes,
        backend=backend.name,
        kernel=kernel,
        function=function,
        binding=Binding(([Slot(index) for index in range(count)],), {}),
        inputs=partition.inputs,
        outputs=partition.outputs,
        returns=Returns.SEQUENCE if partition.outputs else Returns.NOTHING,
        is_partition=True,
        prepared=PreparedPartition(backend, prepared),
        traits=traits,
    )


def bind_partition(
    prepared: PreparedPartition,
    types: Sequence[Type],
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> Callable[[], None]:
    """Return a callable that computes a partition over fixed tensors, through staging copies where needed.

    Args:
        prepared: The backend and its compiled program.
        types: The stated types of the inputs.
        inputs: Tensors of the shapes and dtypes of ``types``. Those with other strides or a lazy conj/neg
            bit are copied in each call.
        outputs: Tensors of the stated output types. They share no memory with the inputs, nor with each
            other.
    """
    copies = [
        (item, type, copy_with_strides(_to_stated_layout(item, type)))
        for item, type in zip(inputs, types, strict=True)
        if not _has_stated_layout(item, _static_layout(type))
    ]
    # By identity: one tensor may be passed for several inputs.
    of = {id(item): copy for item, _, copy in copies}
    compute = prepared.backend.bind(prepared.program, [of.get(id(item), item) for item in inputs], outputs)
    if not copies:
        return compute

    def refresh_and_compute() -> None:
        for item, type, copy in copies:
            copy_memory(_to_stated_layout(item, type), copy)
        compute()

    return refresh_and_compute


@dataclass(frozen=True, slots=True)
class _Layout:
    """Dtype, shape and strides of a type, as tensors report theirs: quick to compare."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def _static_layout(type: Type) -> _Layout | None:
    """Return the layout of a type; None for numbers, symbolic sizes, and tensors without strides."""
    if not isinstance(type, TensorType) or type.symbols or type.layout is not torch.strided:
        return None
    return _Layout(type.dtype, type.static_shape, type.static_strides)


def _run_partition(
    backend: Backend,
    prepared: Any,
    input_types: Sequence[Type],
    output_types: Sequence[Type],
    input_layouts: Sequence[_Layout | None],
    output_layouts: Sequence[_Layout | None],
    inputs: list[Any],
) -> Sequence[Any]:
    """Run a partition on tensors in stated strides, without lazy conj/neg bits; return checked outputs."""
    for index, layout in enumerate(input_layouts):
        item = inputs[index]
        if isinstance(item, torch.Tensor) and not _has_stated_layout(item, layout):
            inputs[index] = _to_stated_layout(item, input_types[index])
    outputs = backend.run(prepared, inputs)
    if len(outputs) == len(output_types):
        for output, layout, type in zip(outputs, output_layouts, output_types, strict=True):
            if not _has_stated_shape(output, layout) and not is_of_type(output, type):
                break
        else:
            return outputs
    raise BackendError(
        f"the backend {backend.name!r} returned {', '.join(map(describe, outputs)) or 'nothing'}"
        f" in place of {', '.join(map(str, output_types))}"
    )


def _to_stated_layout(tensor: torch.Tensor, type: Type) -> Any:
    """Return a tensor in the strides of a type, without lazy conj/neg bits."""
    return with_stated_strides(tensor.resolve_conj().resolve_neg(), type)


def _has_stated_layout(tensor: torch.Tensor, layout: _Layout | None) -> bool:
    """Return whether a tensor has these strides and no lazy conj/neg bit; False if it needs a full check."""
    return (
        layout is not None
        and tensor.layout is torch.strided
        and tensor.stride() == layout.strides
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def _has_stated_shape(output: Any, layout: _Layout | None) -> bool:
    """Return whether an output has the dtype and shape of its type; False if it needs a full check."""
    return (
        layout is not None
        and isinstance(output, torch.Tensor)
        and output.dtype is layout.dtype
        and output.layout is torch.strided
        and output.shape == layout.sizes
    )
