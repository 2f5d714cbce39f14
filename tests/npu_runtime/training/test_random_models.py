"""Gradients of random models: a step of SGD moves parameters as eager mode moves them."""

import copy
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st
from torch import Tensor, nn, optim
from torch.nn.functional import cross_entropy

from npu_runtime import TrainStep
from tests.support.random_layers import Stack, stacks
from tests.support.tiers import examples


def _moved(model: nn.Module, step: Any, dtype: torch.dtype, images: Tensor, kinds: Tensor) -> list[Tensor]:
    """Return how far a step moves each parameter."""
    before = [item.detach().clone() for item in model.parameters()]
    step(images.to(dtype), kinds)
    return [(item.detach() - old).double() for item, old in zip(model.parameters(), before, strict=True)]


def _eager(model: nn.Module) -> Any:
    optimizer = optim.SGD(model.parameters(), 1.0)

    def step(images: Tensor, kinds: Tensor) -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), kinds).backward()
        optimizer.step()

    return step


@examples(4, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(model=stacks(), backend=st.sampled_from(["aten", "host"]), is_last=st.booleans())
def test_gradients_of_a_random_model_are_those_of_eager_mode(
    model: Stack, backend: str, is_last: bool
) -> None:
    generator = torch.Generator().manual_seed(1)
    images, kinds = torch.randn(3, 3, 6, 10, generator=generator), torch.tensor([0, 4, 2])
    images = images.contiguous(memory_format=torch.channels_last) if is_last else images
    exact, ours = copy.deepcopy(model).double(), copy.deepcopy(model)
    target = _moved(exact, _eager(exact), torch.float64, images, kinds)
    wanted = _moved(model, _eager(model), torch.float32, images, kinds)

    step = TrainStep(ours, optim.SGD(ours.parameters(), 1.0), cross_entropy, backend=backend)
    found = _moved(ours, step, torch.float32, images, kinds)

    # In relation to the largest gradient of all: those of a bias before a norm are noise.
    scale = max(float(item.abs().max()) for item in target)
    names = [name for name, _ in model.named_parameters()]
    for name, item, eager, true in zip(names, found, wanted, target, strict=True):
        allowed = 8 * float((eager - true).abs().max()) + 1e-5 * scale
        assert float((item - true).abs().max()) <= allowed, name
