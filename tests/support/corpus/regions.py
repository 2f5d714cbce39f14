"""Regions of other modes: no_grad, inference mode, autocast, and such modes around the whole capture."""

from typing import Any

import torch
from torch import nn, randn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((4, 4)))
add = CASES.add(lambda: call(randn(4, 4)))


def bfloat16() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@add
def no_grad_region(x: Any) -> Any:
    y = x * 2
    with torch.no_grad():
        z = y.exp() + 1
    return y + z


@add
def nested_grad_regions(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = y.sin()
        w = z + y
    return w * x


@add
def set_grad_enabled_in_line(x: Any) -> Any:
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y + x


@torch.no_grad()
def decorated(x: Any) -> Any:
    return x.exp(), x.max(dim=1)


CASES.function("no_grad_decorator", lambda x: (decorated(x)[1].values, x + 1), floats((3, 3)))
CASES.function("no_grad_everywhere", decorated, floats((3, 3)))


@add
def no_grad_region_with_many_results(x: Any) -> Any:
    with torch.no_grad():
        values, indices = x.topk(2)
        x.exp()  # nothing reads it
        y = values.sum() + 1
    return {"i": indices, "v": values, "y": y}


@add
def constant_made_in_no_grad_region(x: Any) -> Any:
    with torch.no_grad():
        mask = torch.tensor([1.0, 0.0, 1.0, 0.0])
        y = x * mask
    return y + torch.ones(4)


@add
def inference_mode_region(x: Any) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y + 1


@add
def autocast_region(x: Any) -> Any:
    with bfloat16():
        y = x @ x
        z = y.softmax(-1)
    return y, z, x @ x


@add
def autocast_around_a_branch(x: Any) -> Any:
    with bfloat16():
        return torch.cond(x.sum() > -100, lambda y: y @ y.t(), lambda y: (y @ y.t()).cos(), (x,))


@add
def autocast_disabled_within_autocast(x: Any) -> Any:
    with bfloat16():
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = x @ x
        w = z @ x
    return y, z, w


@add
def autocast_region_with_writes(x: Any) -> Any:
    with bfloat16():
        y = x @ x
        y += 1
    y.mul_(2)
    return y.float()


@add
def no_grad_within_autocast(x: Any) -> Any:
    with bfloat16():
        with torch.no_grad():
            y = torch.mm(x, x)
        z = torch.mm(x, x)
    return y + z


@CASES.add(
    floats((2, 1, 5, 5)),
    holding=lambda: {"convolution": nn.Conv2d(1, 2, 3), "norm": nn.BatchNorm2d(2), "head": nn.Linear(2, 3)},
)
@torch.autocast("cpu", dtype=torch.bfloat16)
def autocast_decorator(self: Any, x: Any) -> Any:
    return self.head(self.norm(self.convolution(x)).relu_().mean((2, 3)))


CASES.module("autocast_around_capture", lambda: nn.Linear(4, 4), floats((2, 4)), under=bfloat16)
CASES.module(
    "autocast_around_capture_of_mixed_ops",
    lambda: nn.Sequential(
        nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.Softmax(-1)
    ),
    floats((2, 4)),
    under=bfloat16,
)
CASES.function("autocast_to_half", lambda x: (x @ x) * 2, floats((3, 3)),
    under=lambda: torch.autocast("cpu", dtype=torch.float16))  # fmt: skip
CASES.module("no_grad_around_capture", lambda: nn.Linear(4, 4), floats((2, 4)), under=torch.no_grad)
CASES.module(
    "inference_mode_around_capture", lambda: nn.Linear(4, 4), floats((2, 4)), under=torch.inference_mode
)


CASES.module("grad_region_in_submodule", lambda: nn.Sequential(nn.Conv2d(2, 2, 1), Frozen(), nn.ReLU()),
    floats((1, 2, 4, 4)))  # fmt: skip


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 2, 3, padding=1).requires_grad_(False)

    @torch.no_grad()
    def forward(self, x: Any) -> Any:
        return self.convolution(x)


class Detaching(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.detach() * 2, x.requires_grad, x.clone().detach_()


CASES.module("detach", Detaching, lambda: call(randn(3, requires_grad=True)))


@CASES.add(floats((3,)))
def record_function_region(x: Any) -> Any:
    with torch.profiler.record_function("part"):
        y = x * 2
    return y + 1


@CASES.add(
    floats((3, 2, 4)),
    holding=lambda: {"norm": nn.InstanceNorm1d(2, track_running_stats=True), "batch": nn.BatchNorm1d(2)},
)
def statistics_kept_in_no_grad_region(self: Any, x: Any) -> Any:
    with torch.no_grad():
        y = self.norm(x)
        z = self.batch(x)
    return y + z
