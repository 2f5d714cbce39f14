"""Modes in which ``forward`` runs while torch.export traces it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from npu_ir import _torch
from npu_ir.core.user_code import calling_line
from npu_ir.errors import ConversionError

_READ_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class ForwardCalls(TorchFunctionMode):
    """Mends or refuses calls of ``forward`` that torch.export takes for something else (torch 2.13).

    It loses track of ``tensor.data``, which is read as ``tensor.detach()``. It takes a generator for an input, and its
    numbers for those of a generator in any state.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _READ_DATA:
            return args[0].detach()
        # Dynamo traces this mode into the branches of control flow, and nothing else may be in it there.
        if not torch.compiler.is_dynamo_compiling() and _has_generator((*args, *kwargs.values())):
            raise ConversionError(
                f"{getattr(func, '__name__', func)} draws from a torch.Generator, whose state is not part of a graph",
                where=calling_line(),
                fix="leave generator= out: graphs draw from the default generator, seeded by torch.manual_seed "
                "before they run; or pass the random tensor as an input",
            )
        return func(*args, **kwargs)


def _has_generator(arguments: Iterable[Any]) -> bool:
    return any(isinstance(argument, torch.Generator) for argument in arguments)


class ByIdentity(TorchFunctionMode):
    """Take a tensor for what it is in the model, whatever else holds it.

    torch.export takes what it does not find in a module for a constant, and runs writes to that (torch 2.13).

    Args:
        registered: Where the parameters and buffers of the model are: by id, a dict of a module and the key in it.
            While torch.export traces, what it traces is there.
        meta_is_cpu: Make what ``forward`` makes on ``meta`` on the CPU.
    """

    def __init__(
        self,
        registered: Mapping[int, tuple[dict[str, Any], str]],
        *,
        meta_is_cpu: bool,
    ) -> None:
        super().__init__()
        self._registered = registered
        self._meta_is_cpu = meta_is_cpu
        self._traced: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # torch.export prepares and checks what is in the model; the bodies of control flow are traced by Dynamo.
        if torch.compiler.is_dynamo_compiling() or not _torch.is_tracing():
            return func(*args, **(kwargs or {}))
        if not self._traced:  # before forward replaces any
            self._traced = {key: owner[name] for key, (owner, name) in self._registered.items()}
        args, kwargs = _torch.tree_map(self._found, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _found(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._traced.get(id(leaf), leaf)
        if self._meta_is_cpu and isinstance(leaf, (str, torch.device)) and str(leaf) == "meta":
            return torch.device("cpu")
        return leaf
