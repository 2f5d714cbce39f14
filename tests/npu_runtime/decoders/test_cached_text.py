"""A decoder knows the text in its cache: its tokens, and whether it is still there; arguments are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_ir.errors import UsageError
from npu_runtime import Decoder, Sampling
from tests.npu_runtime.decoders.test_token_loop import PROMPTS, decoder

PENALTY = Sampling(repetition_penalty=3.0)


@pytest.mark.parametrize("first", [Sampling(), PENALTY])
def test_tokens_in_the_cache_count_as_repeated(first: Sampling) -> None:
    made = decoder(4)
    start = made.generate(PROMPTS, max_new_tokens=20, sampling=first, padding=[0, 3])
    expected = made.generate(start, max_new_tokens=20, sampling=PENALTY, padding=[0, 3])
    made.generate(PROMPTS, max_new_tokens=20, sampling=first, padding=[0, 3])

    found = made.generate(start[:, -1:], max_new_tokens=20, sampling=PENALTY, reset=False)

    assert torch.equal(torch.cat([start, found[:, 1:]], 1), expected)


def test_tokens_that_were_fed_count_as_repeated_in_a_stream() -> None:
    made, prefers = decoder(4), Sampling(repetition_penalty=0.1)
    expected = made.generate(PROMPTS, max_new_tokens=20, sampling=prefers)[:, 11:]
    made.reset()
    made.feed(PROMPTS[:, :9])

    found = torch.stack([*made.stream(PROMPTS[:, 9:], max_new_tokens=20, sampling=prefers)], 1)

    assert torch.equal(found, expected)


def test_a_text_whose_executor_was_reset_does_not_go_on() -> None:
    made = decoder(4)
    made.generate(PROMPTS, max_new_tokens=6)

    made.executor(4).reset()

    with pytest.raises(UsageError, match="the cache of 16 positions was emptied"):
        made.generate(PROMPTS[:, :1], max_new_tokens=6, reset=False)
    with pytest.raises(UsageError, match="the cache of 16 positions was emptied"):
        made.feed(PROMPTS[:, :1])
    assert made.generate(PROMPTS, max_new_tokens=6).shape == (2, 17)


@pytest.mark.parametrize("position", [0, 5, 11, 15])
def test_tokens_behind_a_position_are_forgotten(position: int) -> None:
    made = decoder(4)
    text = made.generate(PROMPTS, max_new_tokens=5, sampling=PENALTY)

    made.position = position
    found = made.generate(text[:, position:], max_new_tokens=6, sampling=PENALTY, reset=False)

    expected = made.generate(text, max_new_tokens=6, sampling=PENALTY)
    assert torch.equal(torch.cat([text[:, :position], found], 1), expected)


@pytest.mark.parametrize("position", [-1, 16, 2.0, True, None])
def test_a_position_that_is_not_in_use_is_refused(position: Any) -> None:
    made = decoder(4)
    made.generate(PROMPTS, max_new_tokens=5)

    with pytest.raises(UsageError, match="not an integer from 0 to 15, which are in use"):
        made.position = position
    assert made.position == 15


def test_samplings_that_are_long_past_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npu_runtime.decoders.choices._MOST_KEPT", 2)
    made = decoder(4)

    for number in range(4):
        made.generate(PROMPTS, max_new_tokens=2, sampling=Sampling(temperature=1.0 + number))

    assert len(made._choices._samplers) == len(made._choices._loops) == 2


BAD_CALLS: dict[str, tuple[Callable[[Decoder], Any], str]] = {
    "stop is a number": (
        lambda made: made.generate(PROMPTS, max_new_tokens=3, stop=5),  # type: ignore[arg-type]
        r"stop is a sequence of integers, not 5",
    ),
    "stop has fractions": (
        lambda made: made.generate(PROMPTS, max_new_tokens=3, stop=[5.5]),  # type: ignore[list-item]
        r"stop is a sequence of integers, not \[5\.5\]",
    ),
    "stop is too large": (
        lambda made: made.generate(PROMPTS, max_new_tokens=3, stop=[2**64]),
        r"stop is a sequence of integers, not \[18446744073709551616\]",
    ),
    "padding has fractions": (
        lambda made: made.generate(PROMPTS, max_new_tokens=3, padding=[1.7, 0]),  # type: ignore[list-item]
        r"padding is a sequence of integers, not \[1\.7, 0\]",
    ),
    "padding of more rows": (
        lambda made: list(made.stream(PROMPTS, max_new_tokens=3, padding=[0, 0, 0], sampling=PENALTY)),
        r"padding has a number of tokens, less than 11, for each of 2 rows",
    ),
    "a list": (
        lambda made: made.generate([[1, 2]], max_new_tokens=3),  # type: ignore[arg-type]
        r"tokens are a tensor, int64 \[2, count\], not list",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_arguments_that_are_none_of_the_kind_are_refused_by_name(name: str) -> None:
    call, message = BAD_CALLS[name]

    with pytest.raises(UsageError, match=message):
        call(decoder(4))


@pytest.mark.parametrize("kind", [tuple, set, torch.tensor])
def test_stop_tokens_come_in_any_sequence(kind: Callable[[list[int]], Any]) -> None:
    made = decoder(4)
    stop = made.generate(PROMPTS, max_new_tokens=6)[:, 13].tolist()

    found = made.generate(PROMPTS, max_new_tokens=6, stop=kind(stop))

    assert torch.equal(found, made.generate(PROMPTS, max_new_tokens=6, stop=stop))
    assert found.shape[1] <= 14
