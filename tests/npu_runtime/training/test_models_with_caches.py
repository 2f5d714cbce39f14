"""Models of transformers train as they are configured: a step asks them for no cache of keys and values."""

import copy
import importlib
import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_runtime import TracingError, TrainStep

TOKENS = 96


def gpt2() -> nn.Module:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = importlib.import_module("transformers")  # which takes seconds
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=TOKENS, n_positions=16, bos_token_id=0, eos_token_id=0,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.exhaustive
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_model_that_keeps_a_cache_trains_as_in_eager(accumulate: int) -> None:
    model = gpt2()
    twin = copy.deepcopy(model)
    assert model.config.use_cache
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = TrainStep(model, optimizer, accumulate=accumulate, capture="require")
    eager = torch.optim.SGD(twin.parameters(), lr=0.1)

    for _ in range(2):
        ids = torch.randint(0, TOKENS, (4, 6))
        output = step(input_ids=ids, labels=ids)
        eager.zero_grad()
        expected = twin(input_ids=ids, labels=ids)
        expected.loss.backward()
        eager.step()

        torch.testing.assert_close(output.loss, expected.loss.detach())
        torch.testing.assert_close(output.logits, expected.logits.detach(), rtol=1e-4, atol=1e-5)
        assert output.past_key_values is None


class Cache:
    """Not a tensor."""


class Caching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x: Tensor, use_cache: bool | None = None) -> Any:
        loss = self.linear(x).square().mean()
        return (loss,) if use_cache is False else (loss, Cache())


class Keeping(Caching):
    def forward(self, x: Tensor, use_cache: bool = True) -> Any:
        return super().forward(x, use_cache)


def test_a_step_asks_for_no_cache_where_the_call_leaves_it_open() -> None:
    model = Caching()
    step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1))

    assert len(step(torch.randn(4, 3))) == 1


@pytest.mark.parametrize(
    ("kind", "named"), [(Caching, {"use_cache": True}), (Keeping, {})], ids=["asked for", "by default"]
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_cache_that_is_returned_is_refused_with_the_cure(kind: Any, named: Any, accumulate: int) -> None:
    model = kind()
    step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), accumulate=accumulate)

    with pytest.raises(
        TracingError, match=r"(?s)returns Cache, which is not a tensor.*leave the Cache out.*use_cache=False"
    ):
        step(torch.randn(4, 3), **named)
