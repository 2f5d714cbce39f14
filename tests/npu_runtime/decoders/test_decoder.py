"""Language models generate what transformers generates with them."""

import copy
import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from npu_ir.errors import SerializationError, UsageError, WeightError
from npu_runtime import Decoder, DecoderGraphs, Sampling, extract_decoder
from npu_runtime.decoders.sampler import Sampler
from tests.support.language_models import CONFIGURATIONS, VOCABULARY, configuration, generate, language_model
from tests.support.rows import each_row

USUAL = ("gpt2", "llama", "mamba")
PROMPTS = torch.randint(3, VOCABULARY, (2, 11), generator=torch.Generator().manual_seed(0))


@functools.cache
def extracted(name: str, length: int = 64) -> tuple[Any, DecoderGraphs]:
    """Return a model with its graphs, which no test changes."""
    model = language_model(name)
    return model, extract_decoder(model, max_batch=2, max_length=length, counts=(4,))


@pytest.fixture
def llama() -> tuple[Any, DecoderGraphs]:
    return extracted("llama")


@pytest.fixture(scope="module")
def used() -> Decoder:
    """Return a decoder that other tests have used."""
    model, graphs = extracted("llama")
    return Decoder(graphs, model.state_dict())


@pytest.fixture
def made(used: Decoder) -> Decoder:
    """Return a decoder without any text."""
    used.reset()
    return used


def check(name: str, count: int, backends: Sequence[str | None]) -> None:
    model, graphs = extracted(name, max(64, 11 + count))
    padded = PROMPTS.clone()
    padded[1, :4] = 0
    mask = (torch.arange(11) >= torch.tensor([[0], [4]])).long()
    expected = generate(model, PROMPTS, count)
    for backend in backends:
        made = Decoder(graphs, model.state_dict(), backend=backend)
        assert torch.equal(made.generate(PROMPTS, max_new_tokens=count), expected), backend
        assert not made.executor().lowered.state.copied
        if not graphs.is_recurrent:
            found = made.generate(padded, max_new_tokens=count, padding=[0, 4])
            assert torch.equal(found, generate(model, padded, count, attention_mask=mask)), backend


@pytest.mark.parametrize("name", USUAL)
def test_tokens_are_those_of_transformers(name: str) -> None:
    check(name, 40, (None, "aten"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_two_hundred_tokens_of_each_architecture_are_those_of_transformers(name: str) -> None:
    check(name, 200, (None, "aten"))


def test_the_cache_is_written_in_place_and_shared(llama: tuple[Any, DecoderGraphs]) -> None:
    made = Decoder(llama[1], llama[0].state_dict())
    states = [made.executor(count)._engine._state.tensors for count in (1, 4)]
    before = [item.data_ptr() for item in states[0]]

    made.generate(PROMPTS, max_new_tokens=9)

    for count in (1, 4):
        assert len(made.executor(count).lowered.state.in_place) == 4
        assert [item.data_ptr() for item in made.executor(count)._engine._state.tensors] == before

    def packed(count: int) -> set[int]:
        values = made.executor(count)._engine.bound.values
        return {item.data_ptr() for value, item in values.items() if value.producer is not None}

    assert packed(1) == packed(4)


@pytest.mark.smoke
def test_a_text_goes_on_where_it_ended(llama: tuple[Any, DecoderGraphs], made: Decoder) -> None:
    model, _ = llama
    whole = torch.cat([PROMPTS, PROMPTS.flip(1)], 1)

    first = made.feed(PROMPTS)
    second = made.feed(PROMPTS.flip(1))

    with torch.no_grad():
        logits = model(whole).logits
    torch.testing.assert_close(first, logits[:, 10], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second, logits[:, -1], rtol=1e-4, atol=1e-4)
    assert made.position == 22
    made.reset()
    torch.testing.assert_close(made.feed(PROMPTS), first, rtol=0, atol=0)


def test_a_row_ends_at_a_stop_token(made: Decoder) -> None:
    free = made.generate(PROMPTS, max_new_tokens=12)
    stop = int(free[0, 13])

    found = made.generate(PROMPTS, max_new_tokens=12, stop=[stop], fill=95)

    ends = [row.tolist().index(stop, 11) if stop in row[11:].tolist() else 22 for row in free]
    assert found.shape[1] == max(ends) + 1
    for row, end in enumerate(ends):
        assert found[row, : end + 1].tolist() == free[row, : end + 1].tolist()
        assert set(found[row, end + 1 :].tolist()) <= {95}


def test_tokens_come_one_by_one(made: Decoder) -> None:

    stream = made.stream(PROMPTS, max_new_tokens=5)
    first = next(stream)

    assert made.position == 11
    columns = [first, *stream]
    assert torch.equal(torch.stack(columns, 1), made.generate(PROMPTS, max_new_tokens=5)[:, 11:])


def test_a_stream_is_not_mixed_with_another_use(made: Decoder) -> None:
    stream = made.stream(PROMPTS, max_new_tokens=5)
    next(stream)

    made.generate(PROMPTS, max_new_tokens=2)

    with pytest.raises(UsageError, match="the decoder was used otherwise since the last token"):
        next(stream)


def test_repetitions_are_penalized_as_in_transformers(
    llama: tuple[Any, DecoderGraphs], made: Decoder
) -> None:
    expected = generate(llama[0], PROMPTS, 20, repetition_penalty=1.7)

    found = made.generate(PROMPTS, max_new_tokens=20, sampling=Sampling(repetition_penalty=1.7))

    assert torch.equal(found, expected)


@each_row("kept", [{}, {"top_k": 5}, {"top_p": 0.6}, {"top_k": 9, "top_p": 0.8}])
def test_tokens_are_drawn_as_often_as_they_are_likely(kept: dict[str, Any]) -> None:
    logits = torch.randn(1, 20) * 2
    sampling = Sampling(temperature=0.7, **kept)
    likely, order = (logits[0] / 0.7).softmax(-1).sort(descending=True)
    likely[kept.get("top_k", 20) :] = 0
    likely /= likely.sum()
    likely[likely.cumsum(-1) - likely >= kept.get("top_p", 1.1)] = 0
    count = 20_000
    drawn = (torch.arange(count) + 0.5) / count

    found = Sampler(sampling)(logits.expand(count, 20), torch.zeros(count, 20, dtype=torch.bool), drawn)

    shares = torch.bincount(found[:, 0], minlength=20)[order] / count
    torch.testing.assert_close(shares, likely / likely.sum(), rtol=0, atol=1e-3)


def test_drawn_tokens_depend_on_the_seed_alone(made: Decoder) -> None:
    texts = [
        made.generate(PROMPTS, max_new_tokens=16, sampling=Sampling(temperature=2.0, seed=seed))
        for seed in (1, 2, 1)
    ]

    assert torch.equal(texts[0], texts[2])
    assert not torch.equal(texts[0], texts[1])


@each_row(
    "call, message",
    {
        "rows": (lambda d: d.feed(PROMPTS[:1]), r"tokens are int64 \[2, count\], not torch.int64 \[1, 11\]"),
        "dtype": (lambda d: d.feed(PROMPTS.float()), r"not torch.float32 \[2, 11\]"),
        "on meta": (lambda d: d.feed(PROMPTS.to("meta")), "the tokens are on the device meta: there is no"),
        "fake": (lambda d: d.feed(FakeTensorMode().from_tensor(PROMPTS)), "the tokens are a FakeTensor"),
        "none": (lambda d: d.feed(PROMPTS[:, :0]), r"not torch.int64 \[2, 0\]"),
        "length": (
            lambda d: d.generate(PROMPTS, max_new_tokens=60),
            "the cache has 64 positions, of which 0 are in use: there is no place for 70 more",
        ),
        "padding": (lambda d: d.feed(PROMPTS, [1]), r"for each of 2 rows, not \[1\]"),
        "too much padding": (
            lambda d: d.generate(PROMPTS, max_new_tokens=1, padding=[0, 11]),
            r"less than 11, for each of 2 rows, not \[0, 11\]",
        ),
        "token": (lambda d: d.feed(PROMPTS + 96), "tokens are from 0 to 95, not from"),
        "no tokens": (
            lambda d: d.generate(PROMPTS, max_new_tokens=-3),
            "max_new_tokens is -3, not 1 or more",
        ),
        "late padding": (
            lambda d: (d.feed(PROMPTS), d.feed(PROMPTS, [1, 0])),
            "there is padding at the beginning of a row only",
        ),
        "sparse": (lambda d: d.feed(PROMPTS.to_sparse()), "tokens are a dense tensor, not torch.sparse_coo"),
        "a fraction as filler": (
            lambda d: d.generate(PROMPTS, max_new_tokens=1, fill=1.5),
            r"fill is an integer of int64, not 1.5",
        ),
        "a truth value as filler": (
            lambda d: d.generate(PROMPTS, max_new_tokens=1, fill=True),
            "fill is an integer of int64, not True",
        ),
        "a text as filler": (
            lambda d: d.generate(PROMPTS, max_new_tokens=1, fill="a"),
            "fill is an integer of int64, not 'a'",
        ),
        "no filler": (
            lambda d: d.generate(PROMPTS, max_new_tokens=1, fill=None),
            "fill is an integer of int64, not None",
        ),
        "a large filler": (
            lambda d: d.generate(PROMPTS, max_new_tokens=1, fill=2**70),
            "fill is an integer of int64, not 1180591620717411303424",
        ),
        "no sampling": (
            lambda d: d.generate(PROMPTS, max_new_tokens=1, sampling=None),
            "sampling is a Sampling, not NoneType",
        ),
        "options of sampling": (
            lambda d: next(d.stream(PROMPTS, max_new_tokens=1, sampling={"top_k": 1})),
            "sampling is a Sampling, not dict",
        ),
        "count": (lambda d: d.executor(7), "there is no graph for 7 tokens, but for 1, 4"),
    },
)
def test_wrong_calls_are_refused(call: Any, message: str, made: Decoder) -> None:
    made.reset()

    with pytest.raises(UsageError, match=message):
        call(made)
    assert made.position in (0, 11)  # what was fed before


@each_row(
    "options, message",
    {
        "temperature": ({"temperature": -1.0}, "temperature is -1.0, not a number of 0 or more"),
        "top_k": ({"top_k": 0}, "top_k is 0, not an integer of 1 or more"),
        "top_p": ({"top_p": 1.5}, "top_p is 1.5, not a number above 0, and at most 1"),
        "a string": ({"temperature": "1"}, "temperature is '1', not a number of 0 or more"),
        "a truth value": ({"top_k": True}, "top_k is True, not an integer of 1 or more"),
        "not a number": ({"temperature": float("nan")}, "temperature is nan, not a number"),
        "seed": ({"seed": 0.5}, "seed is 0.5, not an integer from 0 to"),
        "a large seed": (
            {"seed": 2**64},
            r"seed is 18446744073709551616, not an integer from 0 to 2\*\*64 - 1",
        ),
        "repetition_penalty": (
            {"repetition_penalty": 0.0},
            "repetition_penalty is 0.0, not a number above 0",
        ),
    },
)
def test_wrong_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sampling(**options)


def test_a_refused_call_leaves_the_cache(made: Decoder) -> None:
    made.feed(PROMPTS)

    with pytest.raises(UsageError, match="there is no place for 70 more"):
        made.generate(PROMPTS, max_new_tokens=60)

    assert made.position == 11


def test_a_cache_is_not_longer_than_the_positions_of_the_model() -> None:
    config = configuration("gpt2", n_positions=20)

    with pytest.raises(UsageError, match="the model has 20 positions, and max_length is 64"):
        extract_decoder(config, max_length=64)
    model = language_model("gpt2", n_positions=20)
    made = Decoder(extract_decoder(model, max_batch=2, counts=(8,)), model.state_dict())
    assert made.graphs.length == 20
    assert torch.equal(made.generate(PROMPTS, max_new_tokens=9), generate(model, PROMPTS, 9))


def test_a_vanishing_temperature_is_none() -> None:
    logits, seen = torch.randn(3, 20), torch.zeros(3, 20, dtype=torch.bool)

    found = Sampler(Sampling(temperature=1e-40))(logits, seen, torch.rand(3))

    assert torch.equal(found, logits.argmax(-1, keepdim=True))


@each_row("top_p", [1e-30, 1e-40, 1e-46, 1e-300, 5e-324])
def test_the_most_likely_token_stays_however_small_top_p_is(top_p: float) -> None:
    logits, seen = torch.randn(3, 20), torch.zeros(3, 20, dtype=torch.bool)

    found = Sampler(Sampling(temperature=1.0, top_p=top_p))(logits, seen, torch.rand(3))

    assert torch.equal(found, logits.argmax(-1, keepdim=True))


@pytest.mark.parametrize("backend", [None, "aten"])
def test_a_tiny_top_p_generates_the_most_likely_text(
    backend: str | None, llama: tuple[Any, DecoderGraphs]
) -> None:
    made = Decoder(llama[1], llama[0].state_dict(), backend=backend)

    for sampling in (Sampling(temperature=1.0, top_p=1e-300), Sampling(temperature=1e-300)):
        found = made.generate(PROMPTS, max_new_tokens=9, sampling=sampling)
        assert torch.equal(found, generate(llama[0], PROMPTS, 9))


def test_padding_of_a_recurrent_model_is_refused() -> None:
    model, graphs = extracted("mamba")
    made = Decoder(graphs, model.state_dict())

    with pytest.raises(
        UsageError, match="a model with a recurrent state reads the padding of its prompt, too"
    ):
        made.feed(PROMPTS, [0, 2])
    assert list(made.graphs.by_count) == [1]


def test_a_recurrent_model_cannot_forget_its_last_tokens() -> None:
    model, graphs = extracted("mamba")
    made = Decoder(graphs, model.state_dict())
    made.feed(PROMPTS)

    with pytest.raises(UsageError, match="one state for all tokens, and cannot forget the last ones"):
        made.position = 1
    assert made.position == PROMPTS.shape[1]


@each_row("weights", {"nothing": None, "a number": 5, "a list": [1], "bytes": b"model"})
def test_what_is_no_weights_is_refused(weights: Any, llama: tuple[Any, DecoderGraphs]) -> None:
    message = f"tensors by name, or the path of a checkpoint, not {type(weights).__name__}"

    with pytest.raises(WeightError, match=message):
        Decoder(llama[1], weights)


def test_a_decoder_without_graphs_is_refused(llama: tuple[Any, DecoderGraphs]) -> None:
    with pytest.raises(UsageError, match="made of the graphs of a model, not of NoneType"):
        Decoder(None, llama[0].state_dict())  # type: ignore[arg-type]


@each_row(
    "options, message",
    {
        "a number": ({"counts": 5}, "counts is a sequence of positive integers, not 5"),
        "none": ({"counts": None}, "counts is a sequence of positive integers, not None"),
        "a text": ({"counts": ("4",)}, "counts has positive integers, not '4'"),
        "a list of forms": ({"quantize": ["int8"]}, r"there is no quantization \['int8'\], but int8, int4"),
    },
)
def test_wrong_options_of_the_capture_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        extract_decoder(configuration("gpt2"), **options)


def test_what_is_no_decoder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="max_length has positive integers, not 0"):
        extract_decoder(configuration("gpt2"), max_length=0)
    monkeypatch.setattr("npu_runtime.decoders.extract._TRANSFORMERS", "no_such_package")
    with pytest.raises(UsageError, match="not installed\n.*npu-runtime\\[transformers\\]"):
        extract_decoder(configuration("gpt2"))


def test_a_checkpoint_on_disk_is_mapped(tmp_path: Any, llama: tuple[Any, DecoderGraphs]) -> None:
    model, graphs = llama
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2

    found = Decoder(extract_decoder(tmp_path, max_batch=2, max_length=64, counts=(4,)), tmp_path)

    expected = Decoder(graphs, model.state_dict()).generate(PROMPTS, max_new_tokens=8)
    assert torch.equal(found.generate(PROMPTS, max_new_tokens=8), expected)


def test_weights_of_half_precision_are_kept() -> None:
    model = language_model("llama").to(torch.bfloat16)
    made = Decoder(extract_decoder(model, max_batch=2, max_length=32, counts=(4,)), model.state_dict())

    logits = made.feed(PROMPTS)

    with torch.no_grad():
        expected: Tensor = model(PROMPTS).logits[:, -1]
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits, expected, rtol=0.1, atol=0.3)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_decoders_are_made_anew_and_not_copied_or_pickled(
    duplicate: Callable[[Any], Any], made: Decoder
) -> None:
    with pytest.raises(SerializationError, match=r"(?s)a Decoder cannot be copied.*Decoder\(graphs, w"):
        duplicate(made)


def test_graphs_of_a_decoder_can_be_copied_and_pickled(
    llama: tuple[Any, DecoderGraphs], made: Decoder
) -> None:
    expected = made.generate(PROMPTS, max_new_tokens=4)

    for graphs in (copy.deepcopy(llama[1]), pickle.loads(pickle.dumps(llama[1]))):  # noqa: S301 - its own
        other = Decoder(graphs, llama[0].state_dict())
        assert torch.equal(other.generate(PROMPTS, max_new_tokens=4), expected)
