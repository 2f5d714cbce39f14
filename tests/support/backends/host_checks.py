"""A check of what the backend ``host`` computes, all of it."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_runtime import IRExecutor, TrainStep
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


def check_training_on_host(model: nn.Module, x: Tensor, target: Tensor) -> set[str]:
    """Check that steps on the backend host are those of PyTorch; return the kinds of their native ops."""
    actual = copy.deepcopy(model)
    step = TrainStep(actual, torch.optim.SGD(actual.parameters(), lr=0.1), F.mse_loss, backend=HOST)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for _ in range(3):
        loss = step(x, target)
        optimizer.zero_grad()
        expected = F.mse_loss(model(x), target)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach())

    torch.testing.assert_close(actual.state_dict(), model.state_dict(), rtol=1e-4, atol=1e-5)
    return {item.op.kind for item in step.artifact.lowered.ops if item.backend == "host"}
