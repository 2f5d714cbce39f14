"""Construction of models without their parameters, but with their computed buffers and tensors."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy


@contextlib.contextmanager
def empty_weights() -> Iterator[None]:
    """Build models whose parameters are on ``meta``, while buffers and plain tensors are computed.

    A parameter moves to ``meta`` when it is registered, so that at most one is in memory at a time, and
    PyTorch does not initialize those that a layer creates. Tensors outside the checkpoint, such as the
    frequencies of rotary embeddings, have content, which a graph of the model carries: it runs from the
    checkpoint alone. Under ``torch.device("meta")`` they would have to be passed as constants.

    It affects modules that this thread builds. A model that exists already is not changed.

    Example:
        >>> with empty_weights():
        ...     model = torch.nn.BatchNorm1d(4)
        >>> model.weight.device.type, model.running_var.device.type
        ('meta', 'cpu')
    """
    thread = threading.get_ident()
    moved: dict[int, tuple[weakref.ref[torch.nn.Parameter], torch.nn.Parameter]] = {}

    def on_meta(
        _module: torch.nn.Module, _name: str, parameter: torch.nn.Parameter
    ) -> torch.nn.Parameter | None:
        if threading.get_ident() != thread or parameter.is_meta or is_lazy(parameter):
            return None
        original, empty = moved.get(id(parameter), (None, None))
        if original is None or original() is not parameter:
            empty = _move_to_meta(parameter)
            moved[id(parameter)] = weakref.ref(parameter), empty
        return empty

    hook = register_module_parameter_registration_hook(on_meta)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()


def _move_to_meta(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """Return a parameter on ``meta`` of the same type, with the attributes that the model has set on it."""
    empty = torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
    vars(empty).update(vars(parameter))
    return empty
