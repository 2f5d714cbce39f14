"""The private torch APIs that passes need, each behind one name; nothing else touches them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload


def traced(function: Callable[..., Any], inputs: Sequence[Any], decompositions: Mapping[Any, Any]) -> Any:
    """Return the FX module of the ATen ops that ``function`` calls on FakeTensors and symbolic numbers.

    Args:
        function: Takes ``inputs``.
        inputs: FakeTensors and numbers.
        decompositions: By operator: what is traced in its place.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    with enable_python_dispatcher():  # some ops consist of others only in Python: batch_norm, lstm
        return make_fx(function, decomposition_table=dict(decompositions))(*inputs)


def slow_kernel(op: OpOverload) -> Callable[..., Any] | None:
    """Return the kernel of an op that calls other ops on any device; None if it has none.

    That of a ``_foreach_*`` op calls one op per tensor.
    """
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    if not op.has_kernel_for_dispatch_key(key):
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():  # a torch function mode would call the op itself (torch 2.13)
            return op._op_dk(key, *args, **kwargs)

    return call


def is_composite(op: OpOverload) -> bool:
    """Return whether an operator consists of others, into which PyTorch takes it apart wherever it runs."""
    return op._can_decompose()


def is_core(op: object) -> bool:
    """Return whether an operator belongs to core ATen."""
    return isinstance(op, OpOverload) and torch.Tag.core in op.tags


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to in place; 0 for inference tensors, which do not count."""
    return 0 if tensor.is_inference() else tensor._version


__all__ = ["OpOverload", "is_composite", "is_core", "slow_kernel", "traced", "version_of"]
