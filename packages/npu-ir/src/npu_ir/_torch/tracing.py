"""Tracing: the modes that are active, assumptions on sizes, and the messages of PyTorch."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from types import ModuleType
from typing import Any

import torch

from npu_ir._torch.patches import SharedPatch


def is_tracing() -> bool:
    """Return whether PyTorch is tracing, as torch.export does while a model runs."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


def uncompiled_traces() -> contextlib.AbstractContextManager[None]:
    """Return a context in which make_fx returns modules whose source is generated when it is asked for."""
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    return _use_lazy_graph_module(True)


def below_autograd() -> Any:
    """Return a context in which control-flow operators only run; above autograd they trace their bodies."""
    return torch._C._AutoDispatchBelowAutograd()


def without_modes() -> Any:
    """Return a context without dispatch modes: real tensors stay real while PyTorch is tracing."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def relaxed_size_assumptions() -> Any:
    """Return a context in which torch.export assumes that symbolic sizes are at least 1, not 2."""
    from torch.fx.experimental import _config

    return _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]


@functools.cache
def right_states_of_lstms() -> SharedPatch:
    """Trace the last states of an LSTM with the shapes that it returns.

    In torch 2.12, those of a batch are traced with a dimension too many: f32[1, 1, 3, 7] for f32[1, 3, 7].
    """
    from torch._decomp import decompositions

    def right(traced: Callable[..., Any]) -> Callable[..., Any]:
        def one_layer_lstm(*args: Any, **kwargs: Any) -> Any:
            out, states = traced(*args, **kwargs)
            return out, tuple(state.squeeze(0) if state.dim() == 3 else state for state in states)

        return one_layer_lstm

    return SharedPatch(decompositions, "one_layer_lstm", right)


@contextlib.contextmanager
def hold_log(
    hold: Callable[[logging.LogRecord], None], names: Collection[str] | None = None
) -> Iterator[None]:
    """Pass each warning and error that PyTorch logs in this thread to ``hold``, once, and not to stderr.

    Nothing is held if the user has configured the logs, by ``TORCH_LOGS`` or by `torch._logging.set_logs`.
    Filtered are the handlers of the loggers called ``names``; None for all that PyTorch has registered.
    """
    from torch._logging import _internal

    state = _internal.log_state
    if state.log_qname_to_level or state.artifact_names:
        yield
        return
    thread = threading.get_ident()
    seen: set[int] = set()

    def passes(record: logging.LogRecord) -> bool:
        if record.thread != thread or record.levelno < logging.WARNING:
            return True
        if id(record) not in seen:  # several handlers get it
            seen.add(id(record))
            hold(record)
        return False

    loggers = map(logging.getLogger, _internal.log_registry.get_log_qnames() if names is None else names)
    handlers = {handler for logger in loggers for handler in logger.handlers}
    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)


def printing_module() -> ModuleType:
    """Return the module of torch.export that prints a partial graph when it fails (torch 2.13)."""
    import torch.export._trace

    return torch.export._trace
