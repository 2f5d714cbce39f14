"""Models built without their weights, but with what they compute from their configuration."""

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

    A parameter moves to ``meta`` when a module gets it, so that no more than one is in memory at a time, and PyTorch
    does not fill those that a layer makes. What a checkpoint leaves out, such as the frequencies of rotary embeddings,
    has content, which a graph of the model carries: it runs from the checkpoint alone. Under ``torch.device("meta")``
    it would have to be passed as constants.

    It holds for modules that this thread builds. A model that exists already is not changed.

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
            empty = _emptied(parameter)
            moved[id(parameter)] = weakref.ref(parameter), empty
        return empty

    hook = register_module_parameter_registration_hook(on_meta)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()


def _emptied(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """Return a parameter on ``meta`` of the same kind, with the attributes that the model has given it."""
    empty = torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
    vars(empty).update(vars(parameter))
    return empty
