"""Torch state of the process: modes, grad mode, random generators, autocast, kernel settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import _C
from torch._ops import OpOverload

# A context below autograd's dispatch: as fast as inference mode, but with ordinary tensors.
below_autograd: Any = _C._AutoDispatchBelowAutograd

# Sets grad mode for this thread, at a tenth of the cost of `torch.set_grad_enabled`.
record_gradients: Callable[[bool], None] = _C._set_grad_enabled
# The numbers of modes.
MODE_COUNTS: tuple[Callable[[], int], ...] = (_C._len_torch_function_stack, _C._len_torch_dispatch_stack)
# What they return is false in the default state: the numbers of modes, and whether any autocast is enabled.
STATE_CHANGES: tuple[Callable[[], Any], ...] = (*MODE_COUNTS, _C._is_any_autocast_enabled)


def below_autograd_with(layouts: Iterable[torch.layout]) -> Callable[[], Any]:
    """Return the context of calls on tensors of these layouts: `below_autograd`, but for sparse ones.

    There kernels of sparse tensors fill copies of their results, and return zeros (torch 2.13).
    """
    return below_autograd if all(item is torch.strided for item in layouts) else contextlib.nullcontext


def random_state(device: torch.device, seed: int | None = None) -> torch.Tensor:
    """Return the state of the default generator of a device, seeded first if a seed is given."""
    module = torch.cuda if device.type == "cuda" else torch.random
    if seed is not None:
        torch.manual_seed(seed)
    state: torch.Tensor = module.get_rng_state()
    return state


def end_allocations(device: torch.device, pool: Any) -> None:
    """Have a CUDA device take no more memory from the pool of a capture; raises if it does not."""
    _C._cuda_endAllocateToPool(device.index or 0, pool)


def observe_calls(
    see: Callable[[OpOverload, list[Any], list[Any]], None],
) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which ``see(op, arguments, results)``, both flat, is called after each op."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class CallObserver(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            see(func, tree_leaves((args, kwargs)), tree_leaves(result))
            return result

    mode: contextlib.AbstractContextManager[Any] = CallObserver()  # type: ignore[no-untyped-call]
    return mode


def has_default_torch_state() -> bool:
    """Return whether global torch state is the default: float32 as dtype, no modes, traces or autocast."""
    return not (
        _C._len_torch_function_stack()
        or _C._len_torch_dispatch_stack()
        or in_transform()
        or _C._get_tracing_state() is not None
        or _C._is_any_autocast_enabled()
        or torch.get_default_dtype() is not torch.float32
    )


def in_transform() -> bool:
    """Return whether this thread is within a transform of `torch.func`, such as ``grad`` or ``vmap``."""
    return _C._functorch.peek_interpreter_stack() is not None


def active_modes() -> str | None:
    """Return what the caller has entered that changes calls of PyTorch as anybody may have written it."""
    if _C._len_torch_function_stack():
        return "a TorchFunctionMode, such as that of torch.set_default_device,"
    if _C._len_torch_dispatch_stack():
        return "a TorchDispatchMode"
    hooks = getattr(_C._autograd, "_top_saved_tensors_default_hooks", None)
    return "a context of saved tensors" if hooks is not None and hooks(True) is not None else None


def may_be_traced() -> bool:
    """Return whether `active_tracer` may find something: quicker, and false in the default state."""
    return bool(_C._len_torch_dispatch_stack() or in_transform() or _C._get_tracing_state() is not None)


def active_tracer() -> str | None:
    """Return what takes part in calls of PyTorch now and in no others: a trace, a transform, fake tensors."""
    if in_transform():
        return "a transform of torch.func"
    if _C._get_tracing_state() is not None:
        return "torch.jit.trace"
    modes = (_C._get_dispatch_mode(key) for key in _C._TorchDispatchModeKey.__members__.values())
    return next((type(mode).__name__ for mode in modes if mode is not None), None)


def kernel_settings() -> tuple[bool, ...]:
    """Return the global settings that select kernels, and with them the strides of results."""
    return (
        _C._get_flash_sdp_enabled(),
        _C._get_math_sdp_enabled(),
        _C._get_mem_efficient_sdp_enabled(),
        _C._get_cudnn_sdp_enabled(),
        _C._get_mkldnn_enabled(),
        _C._get_deterministic_algorithms(),
    )


def autocast_settings() -> tuple[tuple[bool, torch.dtype], ...]:
    """Return whether autocast is enabled, and its dtype, on the CPU and on CUDA."""
    return tuple(
        (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")
    )
