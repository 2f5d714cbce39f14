"""How ``forward`` is run while torch.export traces it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from npu_ir import _torch
from npu_ir.equality import same_data

_READ_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class DataIsDetach(TorchFunctionMode):
    """Read ``tensor.data`` as ``tensor.detach()``: torch.export loses track of the first (torch 2.13)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _READ_DATA:
            return args[0].detach()
        return func(*args, **(kwargs or {}))


class ByIdentity(TorchFunctionMode):
    """Take a tensor for what it is in the model, whatever else holds it.

    torch.export takes what it does not find in a module for a constant, and runs writes to that (torch 2.13).

    Args:
        registered: Where the parameters and buffers of the model are: by id, a dict of a module and the key in it.
            While torch.export traces, what it traces is there.
        held: Other tensors of the model, which keep their content.
        meta_is_cpu: Make what ``forward`` makes on ``meta`` on the CPU.
    """

    def __init__(
        self,
        registered: Mapping[int, tuple[dict[str, Any], str]],
        held: Mapping[int, torch.Tensor],
        *,
        meta_is_cpu: bool,
    ) -> None:
        super().__init__()
        self._registered = registered
        self._held = held
        self._meta_is_cpu = meta_is_cpu
        self._traced: dict[int, torch.Tensor] = {}
        self._contents: dict[int, torch.Tensor] = {}

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
            if id(leaf) in self._held and id(leaf) not in self._contents:
                with _torch.outside_tracing():
                    self._contents[id(leaf)] = leaf.detach().clone()
            return self._traced.get(id(leaf), leaf)
        if self._meta_is_cpu and isinstance(leaf, (str, torch.device)) and str(leaf) == "meta":
            return torch.device("cpu")
        return leaf

    @contextlib.contextmanager
    def contents_kept(self) -> Iterator[None]:
        """Run with this mode, and give tensors that are held the content back that they had."""
        try:
            with self:
                yield
        finally:
            for key, content in self._contents.items():
                if not same_data(self._held[key].detach(), content):
                    self._held[key].detach().copy_(content)
