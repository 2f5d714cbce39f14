"""Protection of the content of real tensors while torch.export runs ``forward``.

Parameters, buffers and inputs are FakeTensors then. Tensors that ``forward`` reaches another way (in a
plain attribute, or a buffer that a cache object holds, too) are not, and an op on only such tensors runs
for real (torch 2.13).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from npu_ir._torch.fake import is_fake
from npu_ir._torch.pytree import tree_leaves
from npu_ir._torch.tensors import is_functorch_wrapper, is_wrapper
from npu_ir._torch.tracing import is_tracing, without_modes
from npu_ir.core.tensor_bytes import same_data


@contextlib.contextmanager
def restore_contents() -> Iterator[None]:
    """Restore the content of every real tensor that PyTorch's functions mutate in the context."""
    first = _ContentRecorder()
    try:
        with first:
            yield
    finally:
        first.restore()


class _ContentRecorder(TorchFunctionMode):
    """A mode that copies, before a call on real tensors only, the tensors that it might write into."""

    def __init__(self) -> None:
        super().__init__()
        self._contents: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Dynamo traces this mode into branches of control flow; torch.export reads all weights untraced.
        if torch.compiler.is_dynamo_compiling() or not is_tracing():
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") != "__get__":  # reads of attributes do not write
            self._save([leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)])
        return func(*args, **kwargs)

    def _save(self, tensors: list[torch.Tensor]) -> None:
        if any(is_fake(tensor) or tensor.is_meta for tensor in tensors):
            return
        for tensor in tensors:
            if id(tensor) not in self._contents and _is_copyable(tensor):
                with without_modes(), torch.no_grad():
                    self._contents[id(tensor)] = tensor, tensor.detach().clone()

    def restore(self) -> None:
        """Restore the content of every copied tensor whose shape is unchanged."""
        with torch.no_grad():
            for tensor, content in self._contents.values():
                if tensor.shape == content.shape and not same_data(tensor, content):
                    tensor.copy_(content)


def _is_copyable(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout is torch.strided and not is_wrapper(tensor)
    return is_plain and not torch.nn.parameter.is_lazy(tensor) and not is_functorch_wrapper(tensor)
