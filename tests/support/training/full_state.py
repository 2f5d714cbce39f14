"""Whole states of training, to be compared bit by bit: never norms."""

from collections.abc import Mapping

import torch
from torch import nn

from npu_runtime import CompileArtifact


def state_bits(artifact: CompileArtifact) -> dict[str, bytes]:
    """Return every parameter, buffer and optimizer state as bytes, with the random state of the CPU."""
    found = {name: bits(item) for name, item in artifact.weights.items()}
    return {**found, "random": bits(torch.get_rng_state())}


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().cpu().numpy().tobytes()


def require_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    """Fail where a tensor differs in dtype, shape or one bit."""
    assert left.keys() == right.keys()
    for name, item in left.items():
        other = right[name]
        assert (item.dtype, item.shape) == (other.dtype, other.shape), name
        assert bits(item) == bits(other), name


class Mlp(nn.Module):
    """Weights that are not square, and dropout."""

    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(7, 12), nn.Linear(12, 5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.dropout(self.first(x).relu())
        return self.second(hidden)


class Convolutions(nn.Module):
    """A convolution without bias, a batch norm, pooling, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.linear = nn.Linear(6 * 3 * 2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        return self.linear(pooled.flatten(1))
