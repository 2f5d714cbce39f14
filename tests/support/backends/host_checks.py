"""A check of what the backend ``host`` computes, all of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from npu_ir import extract_ir
from npu_runtime import IRExecutor
from tests.support.backends.native_backends import HOST
from tests.support.corpus.case import Function


def check_on_host(function: Callable[..., Any], *inputs: Tensor, rtol: float = 1e-4) -> None:
    """Check that every node runs on the backend host, and returns what PyTorch does, in the same layout."""
    graph = extract_ir(Function(function), inputs)
    executor = IRExecutor(graph, {}, backend=HOST, passes=None)
    assert {item.backend for item in executor.lowered.ops} == {"host"}, executor.lowered

    actual, expected = executor(*inputs), function(*inputs)

    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol)
    assert strides_of(actual) == strides_of(expected)


def strides_of(tensor: Tensor) -> list[int]:
    """Return the strides of the axes that have several elements: the others say nothing."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
