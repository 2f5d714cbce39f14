"""The zoo of training: each model with its batches, its loss, and how its step differs from the plain one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.training import models

Groups = list[dict[str, Any]]


def all_parameters(model: nn.Module) -> Groups:
    return [{"params": list(model.parameters())}]


def trainable(model: nn.Module) -> Groups:
    return [{"params": [parameter for parameter in model.parameters() if parameter.requires_grad]}]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A model and how it is trained.

    Attributes:
        name: In test ids and on the page.
        build: Makes the model.
        batch: Makes the inputs and the target from a generator.
        loss: What is trained on; of what it returns the first is the loss.
        groups: Parameter groups; ``lr_scale`` in one scales what the recipe says.
        options: Of `TrainStep`: accumulation, clipping, autocast.
        without_gradient: Of parameters the elements whose true gradient is zero, so that what they become
            is chance where an optimizer divides by the size of the gradient; and what is shifted by them.
            Not judged.
        why: Why they have none.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Any, ...]]
    loss: Callable[..., Any] = F.mse_loss
    groups: Callable[[nn.Module], Groups] = all_parameters
    options: Mapping[str, Any] = field(default_factory=dict)
    without_gradient: Mapping[str, slice] = field(default_factory=dict)
    why: str = ""

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build()

    def batches(self, count: int) -> list[tuple[Any, ...]]:
        generator = torch.Generator().manual_seed(1)
        return [self.batch(generator) for _ in range(count)]


def rows(size: int, *shape: int, outputs: int = 3) -> Callable[[torch.Generator], tuple[Any, ...]]:
    """Make batches of random numbers, and random numbers as targets."""

    def batch(generator: torch.Generator) -> tuple[Any, ...]:
        x = torch.randn(size, *shape, generator=generator)
        return x, torch.randn(size, outputs, generator=generator)

    return batch


def images(generator: torch.Generator) -> tuple[Any, ...]:
    x = torch.randn(4, 3, 9, 8, generator=generator)
    return x, torch.randint(0, 5, (4,), generator=generator)


def tokens(kinds: int, *target: int, classes: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    def batch(generator: torch.Generator) -> tuple[Any, ...]:
        x = torch.randint(0, kinds, (4, 6), generator=generator)
        return x, torch.randint(0, classes, (4, *target), generator=generator)

    return batch


def dicts(generator: torch.Generator) -> tuple[Any, ...]:
    batch = {
        "kind": torch.randint(0, 9, (6,), generator=generator),
        "values": torch.randn(6, 3, generator=generator),
        "valid": torch.rand(6, generator=generator) > 0.3,
    }
    return batch, torch.randn(6, 3, generator=generator)


def two_targets(generator: torch.Generator) -> tuple[Any, ...]:
    x = torch.randn(5, 7, generator=generator)
    kind = torch.randint(0, 4, (5,), generator=generator)
    return x, {"kind": kind, "size": torch.randn(5, generator=generator)}


def sequence_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def two_losses(found: dict[str, torch.Tensor], target: dict[str, torch.Tensor]) -> Any:
    kind = F.cross_entropy(found["kind"], target["kind"])
    size = F.huber_loss(found["size"], target["size"])
    hits = (found["kind"].argmax(-1) == target["kind"]).sum()
    return kind + 0.5 * size, {"kind": kind, "size": size, "hits": hits}


def frozen() -> nn.Module:
    model = models.MLP()
    model.fc1.weight.requires_grad_(False)
    model.fc2.requires_grad_(False)
    return model


def biases_apart(model: nn.Module) -> Groups:
    """Return two groups: biases learn at another rate, and without weight decay where there is any."""
    named = list(model.named_parameters())
    return [
        {"params": [item for name, item in named if "bias" not in name]},
        {"params": [item for name, item in named if "bias" in name], "lr_scale": 0.3},
    ]


# A row of softmax does not change with what is added to all its logits, as a bias of the keys does.
KEY_BIAS = {f"encoder.layers.{index}.self_attn.in_proj_bias": slice(8, 16) for index in range(2)}
KEY_BIAS_WHY = "a bias of the keys adds the same to every logit of a row of softmax"
CONV_BIAS = {"conv1.bias": slice(None), "norm1.running_mean": slice(None)}
CONV_BIAS_WHY = "the batch norm behind it subtracts a bias again; the running mean is shifted by it"

CASES = (
    Case("mlp", models.MLP, rows(5, 7)),
    Case("residual, shared layers", models.Residual, rows(5, 6, outputs=4)),
    Case("cnn, batch norm", models.ConvNet, images, F.cross_entropy),
    Case(
        "cnn, bias before batch norm",
        lambda: models.ConvNet(bias=True),
        images,
        F.cross_entropy,
        without_gradient=CONV_BIAS,
        why=CONV_BIAS_WHY,
    ),
    Case(
        "transformer, dropout",
        models.Transformer,
        tokens(20, classes=5),
        F.cross_entropy,
        without_gradient=KEY_BIAS,
        why=KEY_BIAS_WHY,
    ),
    Case("lstm", models.Recurrent, rows(4, 5, 4)),
    Case("embedding, tied weights", models.Tied, tokens(11, 6, classes=11), sequence_loss),
    Case("frozen parameters", frozen, rows(5, 7), groups=trainable),
    Case("parameter groups", models.MLP, rows(5, 7), groups=biases_apart),
    Case("norm of gradients clipped", models.MLP, rows(5, 7), options={"clip_grad_norm": 0.5}),
    Case("gradients clipped", models.MLP, rows(5, 7), options={"clip_grad_value": 0.05}),
    Case("4 microbatches", models.MLP, rows(8, 7), options={"accumulate": 4}),
    Case("autocast bf16", models.MLP, rows(5, 7), options={"autocast": torch.bfloat16}),
    Case("activation checkpointing", models.Checkpointed, rows(5, 6)),
    Case("autograd.Function", models.WithCustomGradient, rows(5, 7)),
    Case("buffers written", models.Counting, rows(5, 7)),
    Case("weight norm, spectral norm", models.Normed, rows(5, 7)),
    Case("unused parameter", models.WithSpare, rows(5, 7)),
    Case("several losses", models.TwoHeads, two_targets, two_losses),
    Case("dict batches", models.OnDicts, dicts),
)


def case_named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)
