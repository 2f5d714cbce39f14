"""Models that cannot be captured because of what they do to their buffers, modules and inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, randn

from npu_ir import ExportError
from tests.support.corpus.case import Refusals, call

REFUSED = Refusals()
refuse = REFUSED.add


class LateBuffer(nn.Module):
    def forward(self, x: Any) -> Any:
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.ones(3))
        return x * self.mask


class LateModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential()

    def forward(self, x: Any) -> Any:
        if not len(self.inner):
            self.inner.append(nn.Linear(3, 3))
        return self.inner(x)


refuse(
    "buffer_registered_in_forward",
    LateBuffer,
    r"forward registers, replaces or removes mask\n  at: LateBuffer",
)
refuse("module_added_in_forward", LateModule, r"forward registers, replaces or removes inner.0\n")
refuse("lazy_module", lambda: nn.LazyLinear(3), r"uninitialized parameter", error=ExportError)


class OverlappingBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.register_buffer("tail", self.state[2:])

    def forward(self, x: Any) -> Any:
        self.state.add_(x)
        return self.tail


refuse(
    "overlapping_buffers_changed",
    OverlappingBuffers,
    r"state, tail overlap in memory",
    lambda: call(randn(4)),
)


# What torch.export runs for real, on tensors that it does not replace while it runs forward


COUNT = torch.zeros(2)


class WritesIntoAGlobal(nn.Module):
    def forward(self, x: Any) -> Any:
        COUNT.add_(1)
        return x * COUNT.sum()


class CountsAndReturnsAnObject(nn.Module):
    """Its buffer is held by a list, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.norm = nn.BatchNorm1d(3)
        self.held: list[Any] = [self.count]
        self.log: dict[str, list[Any]] = {"calls": []}

    def forward(self, x: Any) -> Any:
        self.held[0].add_(1)
        self.log["calls"].append(x)
        self.norm(x)
        return object()


refuse(
    "a_global_tensor_written_to",
    WritesIntoAGlobal,
    (
        r"add_\.Tensor changes 'lifted_tensor_0', which is not a parameter or buffer\n"
        r"  at: .*refused_state\.py:\d+\n.*register_buffer"
    ),
)
refuse("an_object_returned_after_counting", CountsAndReturnsAnObject, r"not a known type", error=ExportError)
