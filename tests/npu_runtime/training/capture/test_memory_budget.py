"""Steps under a memory budget: the plan keeps to it, and every step gives the same bits as without it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_runtime import CaptureError, TrainStep, compile_and_capture
from npu_runtime.training.capture.options import CaptureOptions
from tests.support.rows import each_row
from tests.support.training.eager import full_state


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, 2))
        x = x + self.dropout(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        return x + self.dropout(self.down(F.gelu(self.up(x))))


def perceptron() -> tuple[nn.Module, Tensor, Tensor]:
    layers = [part for _ in range(8) for part in (nn.Linear(16, 16), nn.GELU())]
    return nn.Sequential(*layers), torch.randn(512, 16), torch.randn(512, 16)


def transformer() -> tuple[nn.Module, Tensor, Tensor]:
    return nn.Sequential(*(Block(16) for _ in range(4))), torch.randn(8, 32, 16), torch.randn(8, 32, 16)


def convolutions() -> tuple[nn.Module, Tensor, Tensor]:
    layers = [
        part for _ in range(4) for part in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())
    ]
    return nn.Sequential(*layers), torch.randn(8, 8, 16, 16), torch.randn(8, 8, 16, 16)


MODELS = {"perceptron": perceptron, "transformer": transformer, "convolutions": convolutions}


class Trained:
    """A model, its optimizer, and its step."""

    def __init__(self, make: Callable[[], Any], **options: Any) -> None:
        torch.manual_seed(0)
        self.model, *self.batch = make()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.step = TrainStep(self.model, self.optimizer, F.mse_loss, **options)
        torch.manual_seed(1)

    def take(self) -> Tensor:
        loss: Tensor = self.step(*self.batch)
        return loss

    @property
    def bytes(self) -> int:
        assert self.step.artifact.plan is not None
        return self.step.artifact.plan.peak_bytes


def run(steps: int, make: Callable[[], Any], **options: Any) -> tuple[Trained, list[Tensor], Any]:
    trained = Trained(make, **options)
    losses = [trained.take() for _ in range(steps)]
    return trained, losses, copy.deepcopy(full_state(trained.model, trained.optimizer))


@each_row("make", MODELS)
def test_steps_within_a_budget_give_the_same_bits(make: Callable[[], Any]) -> None:
    plain, losses, state = run(4, make, capture="require")
    budget = int(plain.bytes * 0.7)

    frugal, found, found_state = run(4, make, capture="require", memory_budget_bytes=budget)

    assert frugal.bytes <= budget
    assert len(frugal.step.graph) > len(plain.step.graph)
    assert all(map(torch.equal, found, losses))
    torch.testing.assert_close(found_state, state, rtol=0, atol=0)


@each_row("make", MODELS)
def test_the_bytes_that_the_pass_counts_are_those_of_the_plan(make: Callable[[], Any]) -> None:
    plain, *_ = run(1, make, capture="require")

    off, *_ = run(1, make, capture="off", memory_budget_bytes=plain.bytes)

    table = off.step.artifact.memory_table
    assert table is not None
    assert plain.bytes == pytest.approx(table.peak_before, rel=0.1)


def test_what_fits_is_not_recomputed() -> None:
    plain, *_ = run(1, perceptron)

    frugal, *_ = run(1, perceptron, memory_budget_bytes=plain.bytes)

    table = frugal.step.artifact.memory_table
    assert str(frugal.step.graph) == str(plain.step.graph)
    assert table is not None
    assert (table.nodes, table.peak_before, table.peak_after) == (0, plain.bytes, plain.bytes)


def test_the_explanation_says_what_is_kept_and_why() -> None:
    plain, *_ = run(1, transformer)

    frugal, *_ = run(1, transformer, memory_budget_bytes=int(plain.bytes * 0.7))

    text = frugal.step.explain()
    assert (
        f"memory budget {int(plain.bytes * 0.7):,} bytes: peak {plain.bytes:,} before, {frugal.bytes:,} after"
        in text
    )
    assert "nodes run twice" in text
    assert "of aten.native_layer_norm.default" in text
    assert "memory budget" not in plain.step.explain()
    assert plain.step.artifact.memory_table is None


def test_a_budget_that_is_too_small_is_refused_with_one_that_is_not() -> None:
    plain, *_ = run(1, perceptron)
    trained = Trained(perceptron, memory_budget_bytes=4096)
    before = copy.deepcopy(full_state(trained.model, trained.optimizer))

    with pytest.raises(
        CaptureError, match=f"does not fit in 4,096 bytes: it takes {plain.bytes:,} without"
    ) as caught:
        trained.take()

    torch.testing.assert_close(full_state(trained.model, trained.optimizer), before, rtol=0, atol=0)
    lowest = int(
        str(caught.value).partition("raise memory_budget_bytes= to ")[2].partition(" or")[0].replace(",", "")
    )
    assert lowest < plain.bytes
    assert run(1, perceptron, memory_budget_bytes=lowest)[0].bytes <= lowest


@pytest.mark.parametrize("count", [0, -1, "1GB", 0.5])
def test_budgets_are_positive_numbers_of_bytes(count: Any) -> None:
    with pytest.raises(CaptureError, match=f"a memory budget is a positive number of bytes, not {count!r}"):
        CaptureOptions(memory_budget_bytes=count)


def test_compiled_steps_take_a_budget() -> None:
    torch.manual_seed(0)
    model, *batch = perceptron()
    parts = model, torch.optim.SGD(model.parameters(), 0.1), F.mse_loss, batch
    before = compile_and_capture(*parts).plan
    assert before is not None

    after = compile_and_capture(*parts, memory_budget_bytes=int(before.peak_bytes * 0.8)).plan

    assert after is not None
    assert after.peak_bytes <= before.peak_bytes * 0.8
    assert len(after.graph) > len(before.graph)
