"""What a captured decoder has besides its weights, the checkpoints that it takes, and refused models."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

from npu_ir import ConversionError, WeightError, load_weights
from npu_ir.errors import UsageError
from npu_runtime import Decoder, extract_decoder
from tests.support.language_models import VOCABULARY, configuration, generate, language_model
from tests.support.rows import each_row

PROMPTS = torch.randint(3, VOCABULARY, (1, 11), generator=torch.Generator().manual_seed(0))


class WithFactors(LlamaForCausalLM):
    """Multiplies logits by numbers that no checkpoint has."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.register_buffer("factors", torch.linspace(1.0, 2.0, config.vocab_size), persistent=False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = super().forward(*args, **kwargs)
        result.logits = result.logits * self.factors
        return result

    forward.__signature__ = inspect.signature(LlamaForCausalLM.forward)  # type: ignore[attr-defined]


class Filling(WithFactors):
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self:
            module.factors.copy_(torch.linspace(1.0, 2.0, module.factors.numel()))  # type: ignore[operator]


def made_by(kind: type, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a model of a class that transformers makes of its configuration from now on."""
    config = configuration("llama")
    monkeypatch.setattr("npu_runtime.decoders.model_on_meta.automatic_class", lambda _: Of(kind))
    torch.manual_seed(0)
    return kind(config).eval()


class Of:
    def __init__(self, kind: type) -> None:
        self.kind = kind

    def from_config(self, config: Any) -> Any:
        return self.kind(config)


@pytest.mark.parametrize("source", ["model", "folder"])
def test_angles_are_as_precise_as_in_transformers_in_bfloat16(source: str, tmp_path: Path) -> None:
    exact = language_model("llama", max_position_embeddings=256)
    exact.to(torch.bfloat16).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokens = torch.randint(3, VOCABULARY, (1, 200), generator=torch.Generator().manual_seed(1))

    graphs = extract_decoder(model if source == "model" else tmp_path, max_length=256)
    logits = Decoder(graphs, tmp_path, backend="aten", passes=None).feed(tokens)

    assert model.dtype == torch.bfloat16
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert torch.equal(graphs.constants["model.rotary_emb.inv_freq"], model.model.rotary_emb.inv_freq)
    with torch.no_grad():
        found: Tensor = model(tokens).logits[:, -1]
        wide = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
        expected: Tensor = wide(tokens).logits[:, -1]
    assert (logits - expected).norm() <= 1.5 * (found - expected).norm()


@pytest.mark.parametrize("name", ["gpt_neox", "mixtral"])
def test_a_checkpoint_with_other_names_or_parts_is_loaded_by_transformers(name: str, tmp_path: Path) -> None:
    model = language_model(name)
    model.save_pretrained(tmp_path)

    made = Decoder(extract_decoder(tmp_path, max_length=32), tmp_path)

    assert torch.equal(made.generate(PROMPTS, max_new_tokens=8), generate(model, PROMPTS, 8))


def test_a_checkpoint_without_all_weights_is_not_completed(tmp_path: Path) -> None:
    model = language_model("mixtral")
    state = {name: item for name, item in model.state_dict().items() if "gate" not in name}
    model.save_pretrained(tmp_path, state_dict=state)

    with pytest.raises(WeightError, match=r"missing: model\.layers\.0\.mlp\.gate\.weight"):
        Decoder(extract_decoder(tmp_path, max_length=32), tmp_path)


LACKING = {
    "a tensor": ({}, lambda state: state.pop("model.layers.1.mlp.up_proj.weight"), r"1\.mlp\.up_proj"),
    "layers": ({"num_hidden_layers": 3}, None, r"missing: model\.layers\.2\."),
    "other shapes and layers": (
        {"hidden_size": 64, "num_hidden_layers": 3},
        None,
        r"missing: model\.layers\.2\.",
    ),
}


@each_row("changes, change, message", LACKING)
def test_no_model_is_made_where_a_checkpoint_has_too_few_elements(
    changes: dict[str, int], change: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = language_model("llama")
    state = dict(model.state_dict())
    if change is not None:
        change(state)
    model.save_pretrained(tmp_path, state_dict=state)
    configuration("llama", **changes).save_pretrained(tmp_path)
    graphs = extract_decoder(tmp_path, max_length=32)
    monkeypatch.setattr(
        "npu_runtime.decoders.checkpoint.automatic_class", lambda _: pytest.fail("a model is made")
    )

    with pytest.raises(WeightError, match=message):
        Decoder(graphs, tmp_path)


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "t5"])
def test_a_checkpoint_of_more_layers_than_the_model_is_refused(name: str, tmp_path: Path) -> None:
    language_model(name).save_pretrained(tmp_path)
    fewer = {"num_layers" if name == "t5" else "num_hidden_layers": 1}
    configuration(name, **fewer).save_pretrained(tmp_path)
    graphs = extract_decoder(tmp_path, max_length=32)

    with pytest.raises(
        WeightError, match=r"(?s)has a layer '[\w.]+\.1', which the model is without.*config.js"
    ):
        Decoder(graphs, tmp_path)


def test_layers_are_left_out_on_request(tmp_path: Path) -> None:
    language_model("llama").save_pretrained(tmp_path)
    configuration("llama", num_hidden_layers=1).save_pretrained(tmp_path)
    graphs = extract_decoder(tmp_path, max_length=32)

    made = Decoder(graphs, load_weights(tmp_path, graphs.by_count[1]))

    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(made.generate(PROMPTS, max_new_tokens=8), generate(model, PROMPTS, 8))


def test_a_checkpoint_may_have_tensors_of_other_kinds(tmp_path: Path) -> None:
    model = language_model("llama")
    others = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
        "model.layers.7.self_attn.masked_bias": torch.ones(1),
        "value_head.0.weight": torch.ones(2),
    }
    model.save_pretrained(tmp_path)
    save_file({**load_weights(tmp_path), **others}, tmp_path / "model.safetensors")
    graphs = extract_decoder(tmp_path, max_length=32)

    for path in (tmp_path, tmp_path / "model.safetensors"):
        made = Decoder(graphs, path)
        assert torch.equal(made.generate(PROMPTS, max_new_tokens=8), generate(model, PROMPTS, 8))
    with pytest.raises(WeightError, match="unexpected: "):
        Decoder(graphs, load_weights(tmp_path))


def test_a_checkpoint_that_transformers_does_not_load_is_refused_with_its_reason(tmp_path: Path) -> None:
    model = language_model("gpt_neox")
    model.save_pretrained(tmp_path)
    graphs = extract_decoder(tmp_path, max_length=32)
    (tmp_path / "config.json").write_text('{"model_type": "none such"}', encoding="utf-8")

    with pytest.raises(WeightError, match=r"(?s)no 'lm_head\.weight'.*does not load it: .*save_pretrained"):
        Decoder(graphs, tmp_path)


def test_a_decoder_may_have_more_layers_than_its_encoder() -> None:
    model = language_model("t5", num_decoder_layers=3)
    made = Decoder(extract_decoder(model, max_length=32, max_source_length=11), model.state_dict())

    made.encode(PROMPTS)

    # By its own cache transformers fails: that has the layers of the encoder (5.23).
    assert torch.equal(made.generate(max_new_tokens=8), generate(model, PROMPTS, 8, use_cache=False))


def test_a_buffer_that_no_checkpoint_has_is_that_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_by(WithFactors, monkeypatch)

    made = Decoder(extract_decoder(model, max_length=32), model.state_dict())

    with torch.no_grad():
        torch.testing.assert_close(made.feed(PROMPTS), model(PROMPTS).logits[:, -1], rtol=1e-4, atol=1e-5)


def test_a_buffer_that_the_initialization_fills_needs_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_by(Filling, monkeypatch)

    graphs = extract_decoder(model.config, max_length=32)

    assert torch.equal(graphs.constants["factors"], model.factors)


def test_a_buffer_of_unknown_content_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_by(WithFactors, monkeypatch)

    with pytest.raises(
        ConversionError, match="(?s)a buffer 'factors' that is in no checkpoint.*or give the model itself"
    ):
        extract_decoder(model.config, max_length=32)


@each_row(
    "model, message",
    {
        "a name": ("my-modle", r"(?s)there is no folder 'my-modle'.*model.save_pretrained\(\)"),
        "a name of the hub": ("meta-llama/Llama-3.2-1B", "there is no folder 'meta-llama/Llama-3.2-1B'"),
        "a path": (Path("no") / "model", "there is no folder 'no.model'"),
        "an empty name": ("", "there is no folder ''"),
        "nothing": (None, "one of transformers, its configuration, or the path of a folder, not None"),
        "a number": (5, "or the path of a folder, not 5"),
        "bytes": (b"model", "or the path of a folder, not b'model'"),
        "a class": (LlamaForCausalLM, "or the path of a folder, not <class"),
        "another module": (nn.Linear(2, 2), "or the path of a folder, not Linear"),
    },
)
def test_what_is_no_model_is_refused_and_not_looked_up(
    model: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoConfig, "from_pretrained", lambda _: pytest.fail("it is looked up"))

    with pytest.raises(UsageError, match=message):
        extract_decoder(model)


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no config.json"):
        extract_decoder(tmp_path)


def test_an_error_of_a_folder_names_it(tmp_path: Path) -> None:
    configuration("llama", hidden_act="none such").save_pretrained(tmp_path)

    with pytest.raises(ConversionError, match=f"(?s)KeyError: 'none such'.*at: {re.escape(str(tmp_path))}"):
        extract_decoder(tmp_path)


REFUSED = {
    "rwkv": (
        {"hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 1, "context_length": 64},
        "RwkvForCausalLM does not write its keys and values, or its state, into a cache",
    ),
    "gpt_neo": (
        {"hidden_size": 32, "num_layers": 1, "attention_types": [[["local"], 1]], "num_heads": 4},
        "GPTNeoForCausalLM does not write its keys and values",
    ),
    "xlnet": (
        {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 48},
        "XLNetLMHeadModel does not write its keys and values",
    ),
    "xlstm": (
        {"hidden_size": 32, "num_heads": 4, "num_blocks": 1},
        "the model cannot be captured with a cache: AttributeError: .* has no attribute 'rnn_state'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_without_a_cache_of_fixed_size_is_refused(name: str) -> None:
    sizes, message = REFUSED[name]

    with pytest.raises(ConversionError, match=message):
        extract_decoder(AutoConfig.for_model(name, vocab_size=VOCABULARY, **sizes), max_length=32)
