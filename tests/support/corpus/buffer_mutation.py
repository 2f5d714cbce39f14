"""Models that change their buffers and parameters."""

from typing import Any

import torch
from torch import nn, randn

from tests.support.corpus.case import Holding, Table, call, floats

CASES = Table(floats((3,)))
images = floats((3, 2, 4, 4))
module = CASES.module


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(3), persistent=False)

    def forward(self, x: Any) -> Any:
        self.steps += 1
        self.seen.add_(x)
        return x * self.steps


module("buffers_counted_up", Counter)


@CASES.add(holding=lambda: {"state": torch.zeros(3)})
def buffer_reassigned(self: Any, x: Any) -> Any:
    self.state = self.state * 0.9 + x
    return self.state


@CASES.add(lambda: call(randn(2, 2, 4), torch.tensor([1, 3])), holding=lambda: {"keys": torch.zeros(2, 6, 4)})
def cache_written_by_position(self: Any, x: Any, position: Any) -> Any:
    self.keys.index_copy_(1, position, x)
    self.keys[0, 0].mul_(2)
    return self.keys[:, :4].sum(1)


@CASES.add(floats((1, 2, 4)), holding=lambda: {"keys": torch.zeros(1, 6, 4)})
def buffer_changed_through_views(self: Any, x: Any) -> Any:
    self.keys[:, 2:4] = x
    view = self.keys.view(6, 4)
    view[0] = 1
    return view.T @ view


def tied_buffers() -> nn.Module:
    tied = torch.ones(3)
    return Holding(lambda self, x: (self.first.add_(x), self.second * 2)[1], first=tied, second=tied)


def shared_child() -> nn.Module:
    child = Counter()
    return Holding(lambda self, x: self.encoder(x) + self.decoder(x), encoder=child, decoder=child)


module("tied_buffers_changed", tied_buffers)
module("module_with_buffers_called_twice", shared_child)


@CASES.add(holding=lambda: {"weight": nn.Parameter(randn(3))})
def parameter_changed(self: Any, x: Any) -> Any:
    with torch.no_grad():
        self.weight.mul_(0.5)
    return self.weight * x


@CASES.add(floats((2, 3)), holding=lambda: {"linear": nn.Linear(3, 3), "average": torch.zeros(3)})
def average_kept_under_no_grad(self: Any, x: Any) -> Any:
    y = self.linear(x)
    with torch.no_grad():
        self.average.lerp_(y.mean(0), 0.1)
    y += self.average
    return y


@CASES.add(holding=lambda: {"state": torch.zeros(3)})
def buffer_changed_and_returned(self: Any, x: Any) -> Any:
    old = self.state.clone()
    self.state.copy_(x)
    return old, self.state, self.state[1:]


# Normalization that keeps statistics

module("batch_norm1d_training", lambda: nn.BatchNorm1d(3), floats((4, 3)))
module("batch_norm2d_training", lambda: nn.BatchNorm2d(2), images)
module("batch_norm3d_training", lambda: nn.BatchNorm3d(2), floats((2, 2, 2, 2, 2)))
module("batch_norm_training_without_affine", lambda: nn.BatchNorm2d(2, affine=False), images)
module("batch_norm_called_twice",
    lambda: (lambda bn: nn.Sequential(bn, nn.ReLU(inplace=True), bn))(nn.BatchNorm2d(2)),
    images)  # fmt: skip
module("instance_norm_with_statistics", lambda: nn.InstanceNorm2d(2, track_running_stats=True), images)
module("instance_norm1d_affine_with_statistics",
    lambda: nn.InstanceNorm1d(2, affine=True, track_running_stats=True), floats((3, 2, 5)))  # fmt: skip
module("instance_norm_with_statistics_eval", lambda: nn.InstanceNorm2d(2, track_running_stats=True).eval(),
    images)  # fmt: skip
module("conv_bn_relu_training",
    lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Dropout(0.3)),
    images)  # fmt: skip
