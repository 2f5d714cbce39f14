"""Arguments of a model's call, from the inputs of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_ir.cli.input_text import FileReference, Input
from npu_ir.cli.tensor_files import read_input
from npu_ir.core.structure import unflatten
from npu_ir.core.types import TensorType
from npu_ir.core.user_code import required_names, signature_mismatch
from npu_ir.errors import UsageError
from npu_ir.interpreter.random_data import translated_errors

# Returns a tensor of a type.
Fill = Callable[[TensorType], torch.Tensor]


def empty_tensor(type: TensorType) -> torch.Tensor:
    """Return a tensor of ``type`` without data, on ``meta``, for capture from types."""
    with translated_errors(type):
        if type.strides is None:
            return torch.empty(type.static_shape, dtype=type.dtype, layout=type.layout, device="meta")
        return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device="meta")


def realize_input(item: Input, fill: Fill) -> Any:
    """Return the argument that an input describes; ``fill`` returns the tensors of leaves that are types."""

    def leaf(part: Any) -> Any:
        if isinstance(part, TensorType):
            return fill(part)
        return read_input(part, item.name) if isinstance(part, FileReference) else part

    return unflatten(item.structure, [leaf(part) for part in item.leaves])


def model_arguments(inputs: Sequence[Input], fill: Fill) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments that the inputs describe."""
    args = tuple(realize_input(item, fill) for item in inputs if not item.name)
    kwargs = {item.name: realize_input(item, fill) for item in inputs if item.name}
    return args, kwargs


def require_arguments(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse inputs that do not fit the model's signature."""
    wrong_call = signature_mismatch(model.forward, args, kwargs)
    if wrong_call is None:
        return
    missing = [name for name in required_names(model.forward)[len(args) :] if name not in kwargs]
    options = [f'-i "{name}=f32[2,3]"' for name in missing]
    raise UsageError(
        f"forward of {type(model).__name__} cannot be called so: {wrong_call}",
        fix=f"add {' '.join(options)}, with its own dtype and shape"
        if options
        else "leave out what it does not take",
    )
