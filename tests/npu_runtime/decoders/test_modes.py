"""Tokens do not depend on the modes of PyTorch around calls, nor on which thread calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_runtime import Decoder, Sampling, extract_decoder
from tests.npu_runtime.decoders.test_token_loop import PROMPTS, decoder
from tests.support.language_models import language_model

SAMPLINGS = (Sampling(), Sampling(temperature=1.3, seed=3), Sampling(repetition_penalty=1.3))


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


MODES: dict[str, Callable[[], Any]] = {
    "inference": torch.inference_mode,
    "float64": lambda: default_dtype(torch.float64),
    "meta": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def texts(made: Decoder) -> list[Tensor]:
    return [made.generate(PROMPTS, max_new_tokens=5, sampling=item, padding=[0, 2]) for item in SAMPLINGS]


@pytest.mark.parametrize("mode", MODES)
def test_a_first_text_within_a_mode_is_that_of_any_other_call(mode: str) -> None:
    expected = texts(decoder(4))
    with MODES[mode]():
        made = decoder(4)

        within = texts(made)

    assert all(map(torch.equal, within, expected))
    assert all(map(torch.equal, texts(made), expected))


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_goes_on_in_another_mode(mode: str) -> None:
    expected = decoder(4).generate(PROMPTS, max_new_tokens=5, sampling=SAMPLINGS[2])[:, 11:]
    stream = decoder(4).stream(PROMPTS, max_new_tokens=5, sampling=SAMPLINGS[2])

    with MODES[mode]():
        first = [next(stream), next(stream)]

    assert torch.equal(torch.stack([*first, *stream], 1), expected)


def test_a_source_that_is_read_in_inference_mode_gives_way_to_another() -> None:
    model = language_model("t5")
    graphs = extract_decoder(model, max_batch=2, max_length=32, max_source_length=16)
    made = Decoder(graphs, model.state_dict())
    with torch.inference_mode():
        made.encode(PROMPTS)
        made.generate(max_new_tokens=3)

    made.encode(PROMPTS.flip(1))

    expected = model.generate(PROMPTS.flip(1), max_new_tokens=6, do_sample=False)
    assert torch.equal(made.generate(max_new_tokens=6), expected)


def test_threads_that_share_a_decoder_take_turns() -> None:
    made = decoder(4)
    prompts = PROMPTS, PROMPTS.flip(1)
    expected = [made.generate(item, max_new_tokens=40) for item in prompts]
    found: list[tuple[int, Tensor]] = []

    def work(number: int) -> None:
        found.extend((number, made.generate(prompts[number], max_new_tokens=40)) for _ in range(15))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 30
    assert all(torch.equal(tokens, expected[number]) for number, tokens in found)
