"""The untrained models of the demo: well-known architectures built from ``transformers`` configs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model that can be built, and an input to run it on.

    Attributes:
        model_class: Its class in ``transformers``.
        config: Its sizes.
        input_shape: Shape of its one input.
        vocabulary: How many tokens there are; None for a model of images.
        dtype: Of its weights.
    """

    model_class: type
    config: transformers.PretrainedConfig
    input_shape: tuple[int, ...]
    vocabulary: int | None = None
    dtype: torch.dtype = torch.float32

    def build(self) -> nn.Module:
        """Return the model in eval mode, with random weights; without any under ``torch.device("meta")``."""
        return self.model_class(self.config).to(self.dtype).eval()

    def example(self) -> Tensor:
        """Return an input: random tokens or pixels, always the same."""
        generator = torch.Generator("cpu").manual_seed(0)
        if self.vocabulary is None:
            return torch.randn(self.input_shape, generator=generator, device="cpu")
        return torch.randint(self.vocabulary, self.input_shape, generator=generator, device="cpu")


def architecture(name: str, *, small: bool = False) -> Architecture:
    """Return an architecture of the demo; ``small`` keeps its shape and shrinks its sizes."""
    return {"gpt2": gpt2, "resnet50": resnet, "llama-70b": llama}[name](small)


def gpt2(small: bool) -> Architecture:
    """Return GPT-2: 12 layers, 124 million parameters, the head tied to the embedding."""
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 500, "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(use_cache=False, **(sizes if small else {}))
    return Architecture(GPT2LMHeadModel, config, (1, 16 if small else 128), config.vocab_size)


def resnet(small: bool) -> Architecture:
    """Return ResNet-50 for images of 224 x 224 pixels."""
    sizes = {"embedding_size": 8, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 2, 1, 1]}
    config = ResNetConfig(num_labels=1000, **(sizes if small else {}))
    size = 32 if small else 224
    return Architecture(ResNetForImageClassification, config, (4, 3, size, size))


def llama(small: bool) -> Architecture:
    """Return a decoder of the shape of Llama 3 70B, in bfloat16: 141 GB of weights."""
    config = LlamaConfig(
        vocab_size=500 if small else 128_256,
        hidden_size=64 if small else 8192,
        intermediate_size=128 if small else 28_672,
        num_hidden_layers=4 if small else 80,
        num_attention_heads=8 if small else 64,
        num_key_value_heads=2 if small else 8,
        use_cache=False,
    )
    return Architecture(
        LlamaForCausalLM, config, (1, 16 if small else 128), config.vocab_size, torch.bfloat16
    )
