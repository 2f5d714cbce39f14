"""Tokens are generated without Python in between where a backend can, and are the same ones."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_cuda import _C
from npu_ir import BackendError, WeightError
from npu_ir.errors import UsageError
from npu_runtime import Decoder, DecoderGraphs, Sampling, extract_decoder
from tests.support.language_models import VOCABULARY, generate, language_model

PROMPTS = torch.randint(3, VOCABULARY, (2, 11), generator=torch.Generator().manual_seed(0))


@functools.cache
def extracted(*counts: int, name: str = "llama") -> tuple[Any, DecoderGraphs]:
    """Return a model with its graphs, which no test changes."""
    model = language_model(name)
    return model, extract_decoder(model, max_batch=2, max_length=64, counts=counts)


def decoder(*counts: int, name: str = "llama", **options: Any) -> Decoder:
    model, graphs = extracted(*counts, name=name)
    return Decoder(graphs, model.state_dict(), **options)


def count_calls(made: Decoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of tokens of each call from Python."""
    calls: list[int] = []
    feed = made._feed

    def counted(tokens: Tensor, padding: Any) -> Tensor:
        calls.append(tokens.shape[1])
        return feed(tokens, padding)

    monkeypatch.setattr(made, "_feed", counted)
    return calls


@pytest.mark.parametrize(("options", "calls"), [({}, [11]), ({"backend": "aten"}, [11] + 39 * [1])])
def test_python_reads_the_prompt_and_a_native_loop_the_rest(
    options: dict[str, Any], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = decoder(4, **options)
    found = count_calls(made, monkeypatch)

    tokens = made.generate(PROMPTS, max_new_tokens=40)

    assert found == calls
    assert torch.equal(tokens, generate(extracted(4)[0], PROMPTS, 40))
    assert made.position == 50


def test_tokens_of_a_stream_are_made_one_by_one_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder(4)
    expected = made.generate(PROMPTS, max_new_tokens=6)[:, 11:]
    made.reset()
    calls = count_calls(made, monkeypatch)

    for index, token in enumerate(made.stream(PROMPTS, max_new_tokens=6)):
        assert torch.equal(token, expected[:, index])
        assert made.position == 11 + index
        token.fill_(-1)  # it is the caller's

    assert calls == [11]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.5, seed=3),
        Sampling(temperature=1.5, top_k=7),
        Sampling(temperature=1.5, top_k=1),
        Sampling(temperature=1.5, top_p=0.7),
    ],
)
def test_drawn_tokens_are_those_of_a_stream(sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder(4)
    calls = count_calls(made, monkeypatch)

    tokens = made.generate(PROMPTS, max_new_tokens=14, sampling=sampling)[:, 11:]

    assert calls == [11]  # the loop draws, too
    assert torch.equal(
        tokens, decoder(4, backend="aten").generate(PROMPTS, max_new_tokens=14, sampling=sampling)[:, 11:]
    )
    made.reset()
    streamed = torch.stack([*made.stream(PROMPTS, max_new_tokens=14, sampling=sampling)], 1)
    assert torch.equal(tokens, streamed)


def test_there_is_no_step_after_all_rows_have_ended() -> None:
    made = decoder(4)
    free = made.generate(PROMPTS, max_new_tokens=12)[:, 11:]
    stop = [int(free[0, 3]), int(free[1, 5])]
    last = max(min(row.tolist().index(item) for item in stop if item in row.tolist()) for row in free)

    found = made.generate(PROMPTS, max_new_tokens=12, stop=stop)

    assert found.shape[1] == 11 + last + 1
    assert made.position == 11 + last


@pytest.mark.parametrize(("second", "count"), [(0, 1), (6, 7)])
def test_a_row_may_end_with_its_first_token(second: int, count: int) -> None:
    made = decoder(4)
    free = made.generate(PROMPTS, max_new_tokens=12)[:, 11:]
    stop = [int(free[0, 0]), int(free[1, second])]

    found = made.generate(PROMPTS, max_new_tokens=12, stop=stop)

    assert found.shape[1] == 11 + count
    assert torch.equal(found, generate(extracted(4)[0], PROMPTS, 12, eos_token_id=stop))


def test_the_loop_takes_as_many_threads_as_pytorch_has_now() -> None:
    before = torch.get_num_threads()
    stream = decoder(4).stream(PROMPTS, max_new_tokens=9)
    next(stream), next(stream)
    try:
        torch.set_num_threads(before + 1)

        next(stream)

        assert _C.thread_count() == before + 1
    finally:
        torch.set_num_threads(before)


def test_a_text_goes_on_without_reading_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder(4)
    whole = made.generate(PROMPTS, max_new_tokens=12)
    half = made.generate(PROMPTS, max_new_tokens=5)
    calls = count_calls(made, monkeypatch)

    rest = made.generate(half[:, -1:], max_new_tokens=7, reset=False)

    assert torch.equal(torch.cat([half, rest[:, 1:]], 1), whole)
    assert calls == [1]


def test_a_step_that_fails_leaves_the_cache_and_the_position() -> None:
    made = decoder(4)
    made.feed(PROMPTS)
    state = made.executor(1)._engine._state
    stream = made.stream(PROMPTS[:, :1], max_new_tokens=5)
    next(stream), next(stream)
    before = [item.clone() for item in state.tensors]
    assert made._choices._step is not None
    made._choices._step.tokens.fill_(VOCABULARY + 5)

    with pytest.raises(BackendError, match="the backend 'host' failed"):
        next(stream)

    assert made.position == 13
    assert all(map(torch.equal, state.tensors, before))


def test_a_stream_is_refused_once_a_weight_has_changed() -> None:
    model = language_model("llama")
    weights = {name: item.clone() for name, item in model.state_dict().items()}
    made = Decoder(extracted(4)[1], weights)
    stream = made.stream(PROMPTS, max_new_tokens=5)
    next(stream), next(stream)

    weights["lm_head.weight"].mul_(2)

    with pytest.raises(WeightError, match="the weight 'lm_head.weight' was changed in place"):
        next(stream)
    assert made.position == 12


def test_other_weights_are_read_by_another_loop() -> None:
    model, graphs = extracted()
    other = {name: item.clone() for name, item in model.state_dict().items()}
    other["model.norm.weight"] = torch.linspace(-1, 1, len(other["model.norm.weight"]))
    made = Decoder(graphs, model.state_dict())
    first = made.generate(PROMPTS, max_new_tokens=8)

    made.executor(1).load_state_dict(other)

    found = made.generate(PROMPTS, max_new_tokens=8)
    assert torch.equal(found, Decoder(graphs, other).generate(PROMPTS, max_new_tokens=8))
    assert not torch.equal(found, first)


@pytest.mark.parametrize("backend", [None, "aten"])
def test_a_stream_is_refused_once_other_weights_have_emptied_the_cache(backend: str | None) -> None:
    model, graphs = extracted()
    made = Decoder(graphs, model.state_dict(), backend=backend)
    stream = made.stream(PROMPTS, max_new_tokens=9)
    next(stream), next(stream)

    made.executor(1).load_state_dict(model.state_dict())

    with pytest.raises(UsageError, match="the cache of 12 positions was emptied: an executor of the decoder"):
        next(stream)
    made.reset()
    streamed = torch.stack([*made.stream(PROMPTS, max_new_tokens=9)], 1)
    assert torch.equal(streamed, generate(model, PROMPTS, 9)[:, 11:])


def test_another_source_is_read() -> None:
    model = language_model("t5")
    graphs = extract_decoder(model, max_batch=2, max_length=32, max_source_length=16)
    made = Decoder(graphs, model.state_dict())

    for source in (PROMPTS, PROMPTS.flip(1)):
        made.encode(source)
        found = made.generate(max_new_tokens=12)
        assert torch.equal(found, model.generate(source, max_new_tokens=12, do_sample=False))
    assert all(loop is not None for loop in made._choices._loops.values())


def test_a_model_whose_state_is_replaced_takes_python_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder(name="mamba")
    calls = count_calls(made, monkeypatch)

    tokens = made.generate(PROMPTS, max_new_tokens=4)

    assert calls == [11, 1, 1, 1]
    assert torch.equal(tokens, generate(extracted(name="mamba")[0], PROMPTS, 4))


def test_other_seeds_are_drawn_by_the_same_programs() -> None:
    made = decoder(4)

    for seed in range(3):
        made.generate(PROMPTS, max_new_tokens=3, sampling=Sampling(temperature=1.0, seed=seed))

    assert len(made._choices._samplers) == len(made._choices._loops) == 1
