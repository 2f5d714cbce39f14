"""Dtypes of operands: casts for the default dtype of the process, and mixtures that PyTorch refuses."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from npu_ir._torch.fake import trial
from npu_ir._torch.ops import OpOverload
from npu_ir._torch.pytree import map_tensors, tensor_leaves
from npu_ir._torch.sizes import size_expression
from npu_ir._torch.tensors import is_functorch_wrapper
from npu_ir._torch.tracing import without_modes
from npu_ir.capture.fx_nodes import location_of
from npu_ir.capture.writes import fake_arguments
from npu_ir.core.isolation import default_dtype, isolated_torch_state
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import ConversionError

_DEFAULTS = (torch.float32, torch.complex64)


def needed_cast(node: Node, op: OpOverload, types: Sequence[Type]) -> torch.dtype | None:
    """Return the dtype to cast the operands of ``node`` to; None if they need no cast.

    Graphs run under the default dtype float32. If a model is captured under another one, the operands of
    divisions, roots and means of integers are cast first, so that these return the same dtype.

    Raises:
        ConversionError: A cast of the operands does not help.
    """
    wanted = [item.dtype for item in types if isinstance(item, TensorType) and _is_inexact(item.dtype)]
    operands = _operand_tensors(node)
    if not operands or all(dtype in _DEFAULTS for dtype in wanted):
        return None
    if any(_is_inexact(operand.dtype) for operand in operands):
        return None
    if _result_dtypes(node, op, lambda tensor: tensor) == wanted:
        return None
    if _result_dtypes(node, op, lambda tensor: tensor.to(wanted[0])) == wanted:
        return wanted[0]
    raise ConversionError(
        f"{op} gives {wanted[0]} here because that is the default dtype of this process",
        where=location_of(node),
        fix="cast its operands (x.to(...)), or capture the model under float32: "
        "torch.set_default_dtype(torch.float32)",
    )


def _operand_tensors(node: Node) -> list[torch.Tensor]:
    """Return the FakeTensors that ``node`` reads; symbolic numbers have no dtype to cast."""
    values = (item.meta["val"] for item in node.all_input_nodes)
    return [value for value in values if isinstance(value, torch.Tensor)]


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _result_dtypes(
    node: Node, op: OpOverload, prepared: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.dtype]:
    """Return the floating-point result dtypes of ``op`` under float32 on prepared operands of ``node``."""
    with trial(_operand_tensors(node)), default_dtype(torch.float32):
        args, kwargs = map_tensors(prepared, fake_arguments(node.args, node.kwargs))
        try:
            result: Any = op(*args, **kwargs)
        except (RuntimeError, TypeError):  # the op does not accept the cast operands
            return []
    return [leaf.dtype for leaf in tensor_leaves(result) if _is_inexact(leaf.dtype)]


_CPU = torch.device("cpu")


def require_supported_dtypes(node: Node, op: OpOverload) -> None:
    """Refuse a call that fails only because its floating-point tensors have different dtypes.

    FakeTensors do not check everything that real kernels require: a linear layer accepts half activations
    with float weights (torch 2.13). So a call with several floating-point dtypes is tried on small real
    tensors.
    """
    values = [item.meta.get("val") for item in node.all_input_nodes]
    dtypes = {item.dtype for item in tensor_leaves(values) if item.is_floating_point()}
    if len(dtypes) < 2 or op.namespace != "aten" or not all(map(_is_replaceable, values)):
        return
    arguments = fake_arguments(node.args, node.kwargs)
    sizes = _small_sizes(_operand_tensors(node))
    problem = _call_problem(op, arguments, lambda tensor: _small_tensor(tensor, sizes, tensor.dtype))
    if problem is None:
        return
    # The small sizes may be the cause, too. They are not if the call runs with one common dtype.
    common = functools.reduce(torch.promote_types, dtypes)
    if _call_problem(op, arguments, lambda tensor: _small_tensor(tensor, sizes, common)) is None:
        raise ConversionError(
            f"{op} does not take tensors of these dtypes together: {problem}",
            where=location_of(node),
            fix="cast in forward, as in x.to(weight.dtype), or give the model one dtype: model.to(dtype)",
        )


def _is_replaceable(value: Any) -> bool:
    """Return whether a small real tensor can replace ``value``: symbolic numbers have no safe substitute."""
    is_cpu = isinstance(value, torch.Tensor) and value.device.type == "cpu"
    return is_cpu and value.layout is torch.strided and not is_functorch_wrapper(value)


def _small_sizes(tensors: list[torch.Tensor]) -> dict[Any, int]:
    """Return a small size for each size: equal ones stay equal, larger ones larger, and 1 stays 1."""
    sizes = {size_expression(size) for tensor in tensors for size in tensor.shape}
    static_sizes = sorted(size for size in sizes if isinstance(size, int) and size > 1)
    open_sizes = sorted((size for size in sizes if not isinstance(size, int)), key=str)
    return {0: 0, 1: 1, **{size: number for number, size in enumerate([*static_sizes, *open_sizes], start=2)}}


def _small_tensor(tensor: torch.Tensor, sizes: dict[Any, int], dtype: torch.dtype) -> torch.Tensor:
    shape = [sizes[size_expression(size)] for size in tensor.shape]
    return torch.zeros(shape, dtype=dtype if tensor.is_floating_point() else tensor.dtype)


def _call_problem(
    op: OpOverload, arguments: Any, small: Callable[[torch.Tensor], torch.Tensor]
) -> str | None:
    """Return PyTorch's error for a call on small tensors; None if it runs."""
    args, kwargs = map_tensors(small, arguments)
    try:
        with isolated_torch_state(_CPU), without_modes(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            op(*args, **kwargs)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return str(error).strip().partition("\n")[0]
    return None
