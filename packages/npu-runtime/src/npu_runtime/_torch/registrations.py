"""Registrations of users with PyTorch that take part in a step: hooks, steps of optimizers, kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library


def global_module_hooks() -> list[dict[int, Callable[..., Any]]]:
    """Return the dicts of the hooks that run for every module."""
    from torch.nn.modules import module

    return [
        module._global_forward_pre_hooks,
        module._global_forward_hooks,
        module._global_backward_pre_hooks,
        module._global_backward_hooks,
    ]


def global_step_hooks() -> list[dict[int, Callable[..., Any]]]:
    """Return the dicts of the hooks that run for the step of every optimizer."""
    from torch.optim import optimizer

    return [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]


def has_replaced_step(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer has a step of its own, besides the one that counts calls for schedulers."""
    step = vars(optimizer).get("step")
    return step is not None and not getattr(step, "_wrapped_by_lr_sched", False)


def unwrapped_step(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """Return the step of an optimizer without PyTorch's wrappers: hooks and profiler ranges."""
    function: Any = type(optimizer).step
    function = getattr(function, "__wrapped__", function)
    return lambda: function(optimizer)


def foreign_kernels() -> list[str]:
    """Return the kernels for ATen's ops on CPUs that were registered in Python, by `torch.library`.

    PyTorch itself registers some: for other devices, and in libraries that its modules hold, a part of them
    when `torch.func.vmap` is called first.
    """
    registered: set[str] = getattr(torch.library, "_impls", set())
    others = ("/Meta", "/MPS", "/CUDA", "/XPU")
    names = {name for name in registered if name.startswith("aten/") and not name.endswith(others)}
    return sorted(names - _kernels_of_pytorch()) if names else []


def _kernels_of_pytorch() -> set[str]:
    modules = [
        module for name, module in [*sys.modules.items()] if module is not None and name.startswith("torch.")
    ]
    libraries = (item for module in modules for item in [*vars(module).values()] if type(item) is Library)
    return {name for library in libraries for name in getattr(library, "_op_impls", ())}
