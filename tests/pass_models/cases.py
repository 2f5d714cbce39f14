"""The models that pipelines are measured on, whole and small."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch import nn

from benchmarks.models import UNet
from npu_passes.ops.fused import ADD_LAYER_NORM, ADD_RMS_NORM, LINEAR_ACTIVATION
from tests.pass_models.convnets import MobileNetV3, with_random_norms

FUSED = ("aten.scaled_dot_product_attention.default", ADD_LAYER_NORM, ADD_RMS_NORM, LINEAR_ACTIVATION)


@dataclass(frozen=True, slots=True)
class Case:
    """A model and its arguments."""

    name: str
    make: Callable[[bool], nn.Module]
    inputs: Callable[[bool], dict[str, torch.Tensor]]
    norms: int = 0
    fused: tuple[int, int, int, int] = (0, 0, 0, 0)

    def model(self, whole: bool) -> nn.Module:
        torch.manual_seed(0)
        return with_random_norms(self.make(whole)).eval()


class Images(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=x).logits


class Texts(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **tokens: torch.Tensor) -> torch.Tensor:
        return self.model(**tokens, return_dict=False)[0]


def _resnet(layer: str, depths: list[int], widths: list[int]) -> Callable[[bool], nn.Module]:
    def make(whole: bool) -> nn.Module:
        config = transformers.ResNetConfig(
            layer_type=layer,
            depths=depths if whole else [1, 1, 1, 1],
            hidden_sizes=widths if whole else [8, 8, 16, 16],
            embedding_size=64 if whole else 8,
        )
        return Images(transformers.ResNetForImageClassification(config))

    return make


def _images(whole: bool) -> dict[str, torch.Tensor]:
    size = 224 if whole else 32
    return {"x": torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))}


def _tokens(*names: str, length: int = 64) -> Callable[[bool], dict[str, torch.Tensor]]:
    def inputs(whole: bool) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        size = (2, length if whole else 8)
        return {name: torch.randint(4, 100, size, generator=generator) for name in names}

    return inputs


def _text_model(kind: str, **sizes: Any) -> Callable[[bool], nn.Module]:
    """Make a model whose sizes are pairs: of the whole one and of the small one."""

    def make(whole: bool) -> nn.Module:
        chosen = {
            name: value[0 if whole else 1] if isinstance(value, tuple) else value
            for name, value in sizes.items()
        }
        config = getattr(transformers, f"{kind}Config")(**chosen)
        config._attn_implementation = "eager"
        return Texts(getattr(transformers, f"{kind}Model")(config))

    return make


def _vit(whole: bool) -> nn.Module:
    sizes = {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768}
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(
        **(sizes if whole else small), image_size=224 if whole else 32, patch_size=16
    )
    config._attn_implementation = "eager"
    return Images(transformers.ViTForImageClassification(config))


CASES = (
    Case("ResNet-18", _resnet("basic", [2, 2, 2, 2], [64, 128, 256, 512]), _images, 20),
    Case("ResNet-50", _resnet("bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]), _images, 53),
    Case(
        "MobileNetV3-Large", lambda whole: MobileNetV3(blocks=15 if whole else 4), _images, 46, (0, 0, 0, 1)
    ),
    Case("U-Net", lambda whole: UNet(32, 4) if whole else UNet(4, 2), _images, 22),
    Case(
        "BERT",
        _text_model(
            "Bert",
            vocab_size=1000,
            hidden_size=(256, 16),
            num_hidden_layers=(12, 2),
            num_attention_heads=(4, 2),
            intermediate_size=(1024, 32),
        ),
        _tokens("input_ids"),
        fused=(2, 4, 0, 2),
    ),
    Case(
        "GPT-2",
        _text_model(
            "GPT2", vocab_size=1000, n_embd=(256, 16), n_layer=(12, 2), n_head=(4, 2), use_cache=False
        ),
        _tokens("input_ids"),
        fused=(2, 4, 0, 2),
    ),
    Case(
        "Llama",
        _text_model(
            "Llama",
            vocab_size=1000,
            hidden_size=(256, 16),
            intermediate_size=(688, 32),
            num_hidden_layers=(12, 2),
            num_attention_heads=(8, 2),
            num_key_value_heads=(4, 1),
            use_cache=False,
        ),
        _tokens("input_ids"),
        fused=(2, 0, 4, 2),
    ),
    Case("ViT", _vit, _images, fused=(2, 5, 0, 2)),
    Case(
        "T5",
        _text_model(
            "T5",
            vocab_size=1000,
            d_model=(256, 16),
            d_kv=(64, 8),
            d_ff=(1024, 32),
            num_layers=(6, 2),
            num_heads=(4, 2),
            use_cache=False,
        ),
        _tokens("input_ids", "decoder_input_ids"),
        fused=(6, 0, 10, 4),
    ),
)
