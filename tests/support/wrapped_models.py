"""Tensor subclasses that wrap plain tensors, and models with parameters of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree

_COPIES = (torch.ops.aten.detach.default, torch.ops.aten.clone.default, torch.ops.aten.alias.default)


_MULTIPLIES = (F.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__)


class Wrapper(Tensor):
    """Is taken apart where it is multiplied, before torch.export sees the op."""

    def plain(self) -> Tensor:
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _MULTIPLIES:
            args = [arg.plain() if isinstance(arg, Wrapper) else arg for arg in args]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


class Scaled(Wrapper):
    """An i8 tensor and the scale of its rows; ``note`` is read by nothing."""

    @staticmethod
    def __new__(cls, q: Tensor, scale: Tensor, note: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, q.shape, dtype=torch.float32, device=q.device)

    def __init__(self, q: Tensor, scale: Tensor, note: Tensor) -> None:
        self.q, self.scale, self.note = q, scale, note

    def __tensor_flatten__(self) -> Any:
        return ["q", "scale", "note"], None

    @staticmethod
    def __tensor_unflatten__(parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return Scaled(parts["q"], parts["scale"], parts["note"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Scaled(...)"

    def plain(self) -> Tensor:
        return self.q.to(torch.float32) * self.scale

    def each(self, function: Callable[[Tensor], Tensor]) -> Scaled:
        return Scaled(function(self.q), function(self.scale), function(self.note))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _COPIES:
            return args[0].each(function)
        if function is torch.ops.aten._to_copy.default:
            return args[0].each(lambda part: part.clone())
        args, kwargs = _pytree.tree_map_only(cls, lambda tensor: tensor.plain(), (args, kwargs or {}))
        return function(*args, **kwargs)


class Negated(Wrapper):
    """The negative of a tensor, which may be a `Scaled`."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return Negated(parts["inner"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Negated(...)"

    def plain(self) -> Tensor:
        return -(self.inner.plain() if isinstance(self.inner, Wrapper) else self.inner)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _COPIES:
            return Negated(function(args[0].inner))
        args, kwargs = _pytree.tree_map_only(cls, lambda tensor: tensor.plain(), (args, kwargs or {}))
        return function(*args, **kwargs)


def scaled(device: str = "cpu") -> Scaled:
    q = torch.arange(16, dtype=torch.int8, device=device).reshape(4, 4)
    return Scaled(q, torch.full((4, 1), 0.5, device=device), torch.ones(2, device=device))


def parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


class Quantized(nn.Module):
    """A linear layer whose weight is a `Scaled`."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, device=device)
        self.layer.weight = parameter(scaled(device))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Using(nn.Module):
    """Calls a function with a parameter and the input."""

    def __init__(self, weight: Tensor, function: Callable[..., Any]) -> None:
        super().__init__()
        self.w = parameter(weight)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.w, x)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Quantized(), Quantized()
        self.b.layer.weight = self.a.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))
