"""Registration of ops in the namespace ``npu`` with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from npu_passes import _torch

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])

LIBRARY = torch.library.Library("npu", "FRAGMENT")  # type: ignore[no-untyped-call]


def register_composite(schema: str) -> Callable[[_Kernel], _Kernel]:
    """Register an op, named as its function, that is differentiated and decomposed as the ops in it are."""

    def decorate(function: _Kernel) -> _Kernel:
        LIBRARY.define(function.__name__ + schema)  # type: ignore[no-untyped-call]
        LIBRARY.impl(function.__name__, function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
        return function

    return decorate


def register(
    name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None = None
) -> None:
    """Register an op that runs on every device, for a kernel composed of PyTorch's own ops.

    ``name`` lacks the namespace; an overload follows after a dot. ``fake`` is the kernel for tensors without
    data, by default the kernel itself.
    """
    LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"npu::{name}", fake or kernel, lib=LIBRARY)


def register_differentiable(
    name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]
) -> None:
    """Register an op as `register` does, for a kernel whose ops autograd is to record one by one."""
    register(name, schema, kernel, fake)
    LIBRARY.impl(name, kernel, "Autograd")  # type: ignore[no-untyped-call]


def register_without_gradient(
    name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None = None
) -> None:
    """Register an op whose results do not require gradients, as in ``torch.no_grad()``."""

    # The Autograd fallthrough does not exclude that key, so autograd would record the ops inside the kernel.
    def run_without_grad(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return kernel(*args, **kwargs)

    register(name, schema, run_without_grad, fake)
    LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")  # type: ignore[no-untyped-call]


def register_in_place(
    name: str,
    schema: str,
    kernel: Callable[..., None],
    functional: Callable[..., Any],
    written: Callable[..., Sequence[Tensor]],
) -> None:
    """Register an op that writes to its arguments and returns nothing.

    ``schema`` has ``(a!)`` at the arguments that are written. ``functional`` calls the functional op on the
    same arguments and returns the new contents: functionalization replaces the op by it. ``written`` returns
    the tensors written, flat, in the order of its results.
    """

    def run_functionally(*args: Any, **kwargs: Any) -> None:
        _torch.write_functionally(functional, written, args, kwargs)

    register_without_gradient(name, schema, kernel, lambda *_args, **_kwargs: None)
    LIBRARY.impl(name, run_functionally, "Functionalize")  # type: ignore[no-untyped-call]
