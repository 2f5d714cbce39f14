"""C functions behind the Python API of ATen ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload

# Copies a list or tuple of tensors into another one, by one call for all.
copy_all: Callable[..., Any] = torch._foreach_copy_


def fast_callables(op: OpOverload) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield names and C functions behind PyTorch's Python API for an ATen op, the fastest first.

    Most accept the arguments of the operator, with 1 to 2 us less overhead than its ``OpOverload`` (torch
    2.13). They select an overload by the arguments, which may be another one.
    """
    if op.namespace != "aten" or _is_ambiguous(op):
        return
    name = op._schema.name.partition("::")[2]
    for prefix, module in _modules():
        function = getattr(module, name, None)
        if function is not None and not name.startswith("__"):
            yield f"{prefix}.{name}", function


def fast_callables_in_place(op: OpOverload) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield names and C functions of the in-place variant of an op, the fastest first."""
    name = op._schema.name.partition("::")[2] + "_"
    if op.namespace != "aten" or _is_ambiguous(op) or not hasattr(torch.ops.aten, name):
        return
    for prefix, module in _modules():
        function = getattr(module, name, None)
        if function is not None:
            yield f"{prefix}.{name}", function


def _is_ambiguous(op: OpOverload) -> bool:
    """Return whether the arguments of the op may select another overload.

    A positional ``alpha`` matches a deprecated signature: add(input, alpha, other). A tensor beside lists
    matches a number if it has no dimensions, and is then read on the host (_foreach_add.Tensor in torch
    2.13), which a capture of a GPU does not allow.
    """
    arguments = op._schema.arguments
    if any(item.name == "alpha" and not item.kwarg_only for item in arguments):
        return True
    return op._schema.name.startswith("aten::_foreach_") and any(
        isinstance(item.type, torch.TensorType) for item in arguments
    )


def _modules() -> tuple[tuple[str, Any], ...]:
    names = ("_nn", "_VariableFunctions", "_linalg", "_special", "_fft", "TensorBase")
    return tuple((f"torch._C.{name}", getattr(torch._C, name)) for name in names)
