"""Private torch APIs that passes need, each wrapped under one name; no other module uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree

OpOverload: TypeAlias = torch._ops.OpOverload


def trace(function: Callable[..., Any], inputs: Sequence[Any], decompositions: Mapping[Any, Any]) -> Any:
    """Return the FX module of the ATen ops that ``function`` calls on fake tensors and symbolic numbers.

    ``decompositions`` has the functions that are traced in place of operators.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    with enable_python_dispatcher():  # some ops decompose only in Python: batch_norm, lstm
        return make_fx(function, decomposition_table=dict(decompositions))(*inputs)


def composite_kernel(op: OpOverload) -> Callable[..., Any] | None:
    """Return an op's composite kernel, which calls other ops on any device; None if it has none.

    The composite kernel of a ``_foreach_*`` op calls one op per tensor.
    """
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    if not op.has_kernel_for_dispatch_key(key):
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():  # a torch function mode would call the op itself (torch 2.13)
            return op._op_dk(key, *args, **kwargs)

    return call


def is_core(op: object) -> bool:
    """Return whether an operator belongs to core ATen."""
    return isinstance(op, OpOverload) and torch.Tag.core in op.tags


def version_of(tensor: torch.Tensor) -> int:
    """Return the number of in-place writes to a tensor; 0 for inference tensors, which keep no count."""
    return 0 if tensor.is_inference() else tensor._version


def write_functionally(
    functional: Callable[..., Any],
    written: Callable[..., Sequence[torch.Tensor]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Apply a mutating op to functional tensors: compute the new contents and commit them.

    ``functional`` gets functional tensors unwrapped, and returns the new contents, nested in any way;
    ``written`` returns the tensors that the op writes to, flat.
    """
    targets = written(*args, **kwargs)
    inner_args, inner_kwargs = _pytree.tree_map_only(torch.Tensor, _unwrap, (tuple(args), dict(kwargs)))
    # Commit and sync after each replacement, as PyTorch's generated functionalization kernels do.
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)):
        results = _pytree.tree_leaves(functional(*inner_args, **inner_kwargs))
        for target, result in zip(targets, results, strict=True):
            torch._functionalize_replace(target, result)
            torch._functionalize_commit_update(target)
            torch._functionalize_sync(target)


def _unwrap(tensor: torch.Tensor) -> torch.Tensor:
    if not torch._is_functional_tensor(tensor):
        return tensor
    torch._functionalize_sync(tensor)
    return torch._from_functional_tensor(tensor)


def register_autocast(library: torch.library.Library, name: str) -> None:
    """Make autocast cast the floating-point arguments of a library's op, as it does for ``aten::linear``."""
    op = getattr(getattr(torch.ops, library.ns), name).default
    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        library.impl(name, _autocast_kernel(op, device, key), key)  # type: ignore[no-untyped-call]


def _autocast_kernel(op: OpOverload, device: str, key: str) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def call(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)

        def cast(item: Any) -> Any:
            is_cast = (
                isinstance(item, torch.Tensor) and item.is_floating_point() and item.dtype != torch.float64
            )
            return item.to(dtype) if is_cast else item

        with torch._C._ExcludeDispatchKeyGuard(keys):  # the op would dispatch to this kernel again
            return op(*map(cast, args), **{name: cast(item) for name, item in kwargs.items()})

    return call


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor fill its memory without overlaps or gaps."""
    return tensor.is_contiguous() or bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


# Kernels that update lists of tensors: builtins, which skip the Python side of the dispatcher.
fused_adam_: Callable[..., None] = torch._fused_adam_
fused_adamw_: Callable[..., None] = torch._fused_adamw_
fused_sgd_: Callable[..., None] = torch._fused_sgd_
foreach_add_: Callable[..., None] = torch._foreach_add_
