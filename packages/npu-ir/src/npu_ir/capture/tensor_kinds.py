"""Kinds of tensors in a model: some are refused, those on ``meta`` are replaced by FakeTensors on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from npu_ir._torch.fake import is_fake
from npu_ir._torch.pytree import tensor_leaves
from npu_ir._torch.tensors import is_wrapper, replace_parts, wrapped_parts
from npu_ir.core.storage import storage_id
from npu_ir.errors import ExportError


def require_plain_tensors(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse tensors of kinds that FakeTensors do not model, by name, before anything runs."""
    inputs = [(f"args[{index}]", item) for index, item in enumerate(args)] + list(kwargs.items())
    held = [*model.named_parameters(), *model.named_buffers()]
    for name, tree in (*held, *inputs):
        for tensor in tensor_leaves(tree):
            for kind, (is_of_kind, plain_form) in _REFUSED_KINDS.items():
                if is_of_kind(tensor):
                    raise ExportError(
                        f"{name} is a {kind} tensor, which torch.export does not take",
                        where=type(model).__name__,
                        fix=plain_form,
                    )


# How to recognize each kind, and what to pass instead.
_REFUSED_KINDS: dict[str, tuple[Callable[[torch.Tensor], bool], str]] = {
    "quantized": (
        lambda tensor: tensor.is_quantized,
        "pass dequantize(), or integers and scales (torch.ao.quantization.pt2e, torchao)",
    ),
    "nested": (
        lambda tensor: tensor.is_nested,
        "pass values() and offsets(), or to_padded_tensor(0.0) and a mask",
    ),
    "oneDNN": (lambda tensor: tensor.is_mkldnn, "pass to_dense()"),
}


class FakeSubstitutes:
    """A one-to-one mapping of ``meta`` tensors to FakeTensors on the CPU, which replace them during capture.

    Tied tensors stay tied, and views of one storage stay views of one storage.
    """

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        # By id, together with the original: while that is alive, no other tensor gets its id.
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the FakeTensor for ``tensor``; ``tensor`` itself if it is not on ``meta``."""
        if not is_on_meta(tensor):
            return tensor
        if id(tensor) not in self._fakes:
            self._fakes[id(tensor)] = tensor, self._make_fake(tensor)
        return self._fakes[id(tensor)][1]

    def _make_fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if is_wrapper(tensor):
            parts = wrapped_parts(tensor).items()
            fake = replace_parts(tensor, {name: self.of(part) for name, part in parts})
        else:
            with self.mode:
                fake = torch.empty(0, dtype=tensor.dtype, device="cpu")
                fake.set_(self._fake_storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride())
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(fake, tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad)

    def _fake_storage(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        key, size = storage_id(tensor), tensor.untyped_storage().nbytes()
        if key not in self._storages:
            self._storages[key] = torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()
        return self._storages[key]

    @contextlib.contextmanager
    def install(self, model: torch.nn.Module) -> Iterator[None]:
        """Replace the parameters and buffers of ``model`` by FakeTensors, and restore them at the end."""
        originals: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        try:
            for module in model.modules():
                for owner in (module._parameters, module._buffers):
                    for key, tensor in owner.items():
                        if tensor is not None and is_on_meta(tensor):
                            originals.append((owner, key, tensor))
                            owner[key] = self.of(tensor)  # type: ignore[assignment]
            yield
        finally:
            for owner, key, tensor in originals:
                owner[key] = tensor  # type: ignore[assignment]


def is_on_meta(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is on ``meta``, and not a FakeTensor."""
    return tensor.is_meta and not is_fake(tensor)


def has_content(tensor: Any) -> bool:
    """Return whether ``tensor`` is a tensor with data: neither on ``meta`` nor fake."""
    return isinstance(tensor, torch.Tensor) and not tensor.is_meta and not is_fake(tensor)
