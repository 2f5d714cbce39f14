"""Models with an encoder generate what transformers generates with them."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from npu_ir import ConversionError, ExecutionError
from npu_ir.errors import UsageError
from npu_runtime import Decoder, DecoderGraphs, GenerationWarning, extract_decoder
from tests.support.language_models import VOCABULARY, WITH_ENCODER, configuration, generate, language_model
from tests.support.rows import each_row

SOURCE = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
MASK = (torch.arange(9) < torch.tensor([[9], [5]])).long()
START = torch.ones(2, 1, dtype=torch.int64)


def features() -> Tensor:
    return torch.randn(2, 8, 60, generator=torch.Generator().manual_seed(0))


@functools.cache
def extracted(name: str, length: int = 30) -> tuple[Any, DecoderGraphs]:
    """Return a model with its graphs, which no test changes."""
    model = language_model(name)
    return model, extract_decoder(model, max_batch=2, max_length=length, counts=(4,), **sizes(name))


def check(name: str, count: int, backends: tuple[str | None, ...]) -> None:
    model, graphs = extracted(name, count)
    sources = [(features(), None)] if name == "whisper" else [(SOURCE, None), (SOURCE, MASK)]
    for backend in backends:
        made = Decoder(graphs, model.state_dict(), backend=backend)
        for source, mask in sources:
            options = {} if mask is None else {"attention_mask": mask}
            expected = generate(model, source, count, decoder_input_ids=START, **options)
            made.encode(source, mask)
            found = made.generate(max_new_tokens=count)
            # Transformers leaves out the first token of a text from sound.
            assert torch.equal(found[:, -expected.shape[1] :], expected), backend
        assert not made.executor().lowered.state.copied


def sizes(name: str) -> dict[str, int]:
    return {} if name == "whisper" else {"max_source_length": 12}


@pytest.mark.parametrize("name", ["t5", pytest.param("whisper", marks=pytest.mark.exhaustive)])
def test_tokens_are_those_of_transformers(name: str) -> None:
    check(name, 30, (None, "aten"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WITH_ENCODER)
def test_two_hundred_tokens_of_each_architecture_are_those_of_transformers(name: str) -> None:
    check(name, 200, (None, "aten"))


@pytest.fixture
def t5() -> tuple[Any, DecoderGraphs]:
    return extracted("t5")


def test_a_source_stays_until_there_is_another_one(t5: tuple[Any, DecoderGraphs]) -> None:
    made = Decoder(t5[1], t5[0].state_dict())
    made.encode(SOURCE)
    first = made.generate(max_new_tokens=8)

    assert torch.equal(made.generate(max_new_tokens=8), first)
    assert torch.equal(made.generate(first[:, :5], max_new_tokens=4), first)
    made.encode(SOURCE.flip(1))
    assert made.position == 0
    assert not torch.equal(made.generate(max_new_tokens=8), first)


def test_what_cannot_be_read_is_refused(t5: tuple[Any, DecoderGraphs]) -> None:
    made = Decoder(t5[1], t5[0].state_dict())

    with pytest.raises(UsageError, match="the decoder has no source to read\n  fix: call encode"):
        made.generate(max_new_tokens=2)
    with pytest.raises(
        UsageError, match="the source has 13 tokens, and the encoder reads 12[\\s\\S]*max_source_length=13"
    ):
        made.encode(torch.ones(2, 13, dtype=torch.int64))
    with pytest.raises(UsageError, match=r"tokens are int64 \[2, count\], not torch.int64 \[1, 9\]"):
        made.encode(SOURCE[:1])
    with pytest.raises(UsageError, match=r"the mask is \[2, 8\], and the source is \[2, 9\]"):
        made.encode(SOURCE, MASK[:, :8])
    with pytest.raises(UsageError, match="the mask hides all tokens of a row"):
        made.encode(SOURCE, MASK * torch.tensor([[1], [0]]))
    with pytest.raises(UsageError, match="the mask is torch.float32: it is a tensor of bool, or of integers"):
        made.encode(SOURCE, MASK.float())
    with pytest.raises(UsageError, match="the elements of the mask are on the device meta: there is no data"):
        made.encode(SOURCE, MASK.to("meta"))
    with pytest.raises(UsageError, match=r"tokens are a tensor, int64 \[2, count\], not str"):
        made.encode("abc")  # type: ignore[arg-type]
    made.encode(SOURCE)
    with pytest.raises(UsageError, match="a model with an encoder reads the padding of its prompt, too"):
        made.generate(SOURCE, max_new_tokens=2, padding=[0, 2])


def test_features_have_the_form_of_the_model() -> None:
    model, graphs = extracted("whisper")
    made = Decoder(graphs, model.state_dict())

    with pytest.raises(ExecutionError, match=r"f32\[2, 8, 50\]"):
        made.encode(features()[..., :50])
    with pytest.raises(UsageError, match="features have no mask"):
        made.encode(features(), MASK)
    with pytest.raises(UsageError, match="the features are on the device meta: there is no data to read"):
        made.encode(features().to("meta"))
    with pytest.raises(UsageError, match="features are a tensor, not NoneType"):
        made.encode(None)  # type: ignore[arg-type]


def test_positions_that_a_checkpoint_lacks_are_computed(tmp_path: Path) -> None:
    language_model("marian").save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    made = Decoder(extract_decoder(tmp_path, max_batch=2, max_length=12, counts=()), tmp_path)

    made.encode(SOURCE)

    expected = generate(model, SOURCE, 12, decoder_input_ids=START)
    assert torch.equal(made.generate(START, max_new_tokens=12), expected)


def test_parts_of_a_model_stay_more_precise() -> None:
    model = language_model("t5").to(torch.bfloat16)
    for name, item in model.named_parameters():
        item.data = item.data.float() if name.endswith("wo.weight") else item.data
    made = Decoder(
        extract_decoder(model, max_batch=2, max_length=4, counts=(), max_source_length=9), model.state_dict()
    )

    made.encode(SOURCE)

    with torch.no_grad():
        expected = model(input_ids=SOURCE, decoder_input_ids=START).logits[:, -1]
    torch.testing.assert_close(made.feed(START), expected, rtol=5e-2, atol=0.3)


def test_options_that_are_not_followed_are_warned_of() -> None:
    model = language_model("bart")
    model.generation_config.no_repeat_ngram_size = 3
    model.generation_config.decoder_start_token_id = [4, 4]

    with pytest.warns(GenerationWarning, match="comes with no_repeat_ngram_size for generate") as caught:
        graphs = extract_decoder(model, max_batch=2, max_length=4, counts=(), max_source_length=4)

    assert graphs.start == 4
    assert caught[0].filename == __file__


def test_a_model_without_an_encoder_reads_no_source() -> None:
    model = language_model("gpt2")
    made = Decoder(extract_decoder(model, max_length=4, counts=()), model.state_dict())

    with pytest.raises(UsageError, match="the model has no encoder"):
        made.encode(SOURCE[:1])
    with pytest.raises(UsageError, match="does not say with which token a text begins\n  fix: give tokens"):
        made.generate(max_new_tokens=2)


@each_row("name", ["llama", "whisper"])
def test_a_length_of_a_source_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"max_source_length is given, and {name} has no encoder of tokens"):
        extract_decoder(configuration(name), max_length=4, max_source_length=4)


def test_a_source_is_not_longer_than_the_positions_of_the_model() -> None:
    with pytest.raises(UsageError, match="the model has 256 positions, and max_source_length is 300"):
        extract_decoder(configuration("bart"), max_length=4, max_source_length=300)


def test_an_encoder_of_something_else_is_refused_by_name() -> None:
    from transformers import AutoConfig

    parts = {"encoder": AutoConfig.for_model("vit"), "decoder": configuration("gpt2")}
    given = {name: config.to_dict() for name, config in parts.items()}
    config = AutoConfig.for_model("vision-encoder-decoder", **given)

    with pytest.raises(ConversionError, match="vision-encoder-decoder has an encoder of something else"):
        extract_decoder(config, max_length=4)
