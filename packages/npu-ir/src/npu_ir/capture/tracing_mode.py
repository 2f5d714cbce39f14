"""Torch function modes in which ``forward`` runs while torch.export traces it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from npu_ir._torch.fake import is_fake
from npu_ir._torch.pytree import tensor_leaves, tree_map
from npu_ir._torch.tensors import is_functorch_wrapper, is_wrapper
from npu_ir._torch.tracing import is_tracing, without_modes
from npu_ir.core.tensor_bytes import same_data
from npu_ir.core.user_code import calling_line, is_user_file
from npu_ir.errors import ConversionError

_READS_OF_STORED_ITEMS = frozenset(
    {"_nnz", "is_coalesced", "values", "_values", "indices", "_indices", "col_indices", "row_indices"}
)
_READ_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class ForwardCallMode(TorchFunctionMode):
    """A mode that corrects or refuses calls which torch.export misinterprets (torch 2.13).

    torch.export loses track of ``tensor.data``, which is replaced by ``tensor.detach()``. It treats a
    generator as an input, and its numbers as those of a generator in any state. A sparse input stores no
    items while it is traced, so neither their count nor what has their shape can be part of a graph.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _READ_DATA:
            return args[0].detach()
        # Dynamo traces this mode into the branches of control flow, where it must do nothing but the call:
        # the check of the types there is an error (torch 2.15).
        if torch.compiler.is_dynamo_compiling():
            return func(*args, **kwargs)
        if any(isinstance(argument, torch.Generator) for argument in (*args, *kwargs.values())):
            raise ConversionError(
                f"{getattr(func, '__name__', func)} draws from a torch.Generator, "
                "whose state is not part of a graph",
                where=calling_line(),
                fix="leave generator= out: graphs draw from the default generator, "
                "seeded by torch.manual_seed before they run; or pass the random tensor as an input",
            )
        # PyTorch reads them, too, while it makes FakeTensors.
        is_read = getattr(func, "__name__", "") in _READS_OF_STORED_ITEMS and _has_unknown_items(args[0])
        if is_read and _is_called_by_user():
            raise ConversionError(
                f"{func.__name__}() of a sparse tensor depends on the items that it stores, which are data",
                where=calling_line(),
                fix="pass the values and the indices as inputs of their own, and make the sparse tensor of "
                "them in forward; or compute with .to_dense()",
            )
        return func(*args, **kwargs)


def _is_called_by_user() -> bool:
    """Return whether user code makes the call that this and other modes were asked about."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name == "__torch_function__":
        frame = frame.f_back
    return is_user_file(frame.f_code.co_filename)


def _has_unknown_items(tensor: Any) -> bool:
    is_sparse = isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided
    return is_sparse and is_fake(tensor) and tensor._nnz() == 0


class TensorIdentityMode(TorchFunctionMode):
    """A mode that maps each registered tensor to the tensor that torch.export traces for it.

    A registered tensor may be reached another way, such as through a cache object. torch.export treats a
    tensor that it does not find in a module as a constant, and executes writes to it (torch 2.13).
    ``registered`` has, by the id of each, the dict of a module that has the traced one, and the key in it.
    With ``meta_is_cpu``, what ``forward`` creates on ``meta`` is created on the CPU.
    """

    def __init__(self, registered: Mapping[int, tuple[dict[str, Any], str]], *, meta_is_cpu: bool) -> None:
        super().__init__()
        self._registered = registered
        self._meta_is_cpu = meta_is_cpu
        self._traced: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # torch.export also prepares and checks the model, untraced; Dynamo traces the bodies of control flow.
        if torch.compiler.is_dynamo_compiling() or not is_tracing():
            return func(*args, **(kwargs or {}))
        if not self._traced:  # before forward replaces any
            self._traced = {key: owner[name] for key, (owner, name) in self._registered.items()}
        args, kwargs = tree_map(self._map_leaf, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _map_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._traced.get(id(leaf), leaf)
        if self._meta_is_cpu and isinstance(leaf, (str, torch.device)) and str(leaf) == "meta":
            return torch.device("cpu")
        return leaf


class ContentGuard(TorchFunctionMode):
    """A mode that restores, at its end, the content of every real tensor that PyTorch's functions mutate.

    Parameters, buffers and inputs are FakeTensors while torch.export runs ``forward``. Tensors that it
    reaches another way (in a plain attribute, or a buffer that a cache object holds, too) are not, and an op
    on only such tensors runs for real (torch 2.13). Before that, they are copied.
    """

    def __init__(self) -> None:
        super().__init__()
        self._contents: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Dynamo traces this mode into branches of control flow; torch.export reads all weights untraced.
        if torch.compiler.is_dynamo_compiling() or not is_tracing():
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") != "__get__":  # reads of attributes do not write
            self._save(tensor_leaves((args, kwargs)))
        return func(*args, **kwargs)

    def _save(self, tensors: list[torch.Tensor]) -> None:
        if any(is_fake(tensor) or tensor.is_meta for tensor in tensors):
            return
        for tensor in tensors:
            if id(tensor) not in self._contents and _is_copyable(tensor):
                with without_modes(), torch.no_grad():
                    self._contents[id(tensor)] = tensor, tensor.detach().clone()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for tensor, content in self._contents.values():
                if tensor.shape == content.shape and not same_data(tensor, content):
                    tensor.copy_(content)


def _is_copyable(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout is torch.strided and not is_wrapper(tensor)
    return is_plain and not torch.nn.parameter.is_lazy(tensor) and not is_functorch_wrapper(tensor)
