"""Small models of every kind of training step; no weight is square, so that a transpose shows."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(7, 12), nn.Linear(12, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc3(torch.tanh(self.fc2(F.relu(self.fc1(x)))))


class Residual(nn.Module):
    """The same two layers twice, each time around a residual: every gradient is a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.head = nn.Linear(6, 11), nn.Linear(11, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + self.down(F.relu(self.up(x)))
        return self.head(x)


class ConvNet(nn.Module):
    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = (nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(12))
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        return self.head(F.relu(self.norm2(self.conv2(x))).mean((2, 3)))


class Transformer(nn.Module):
    """With ``batch_first`` the activations are transposed views, and dropout acts on these."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6, num_layers=2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Tied(nn.Module):
    """The embedding is also the output layer: its gradient is the sum of two very different ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(11, 6), nn.Linear(6, 6 * 2)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        left, right = self.mix(self.embed(tokens)).chunk(2, -1)
        return self.head(left * torch.sigmoid(right))


class Checkpointed(nn.Module):
    """A block whose activations are computed again in the backward pass, dropout and all."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 10), nn.Linear(10, 6), nn.Linear(6, 3)

    def _block(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.dropout(F.gelu(self.first(x)), 0.3, self.training))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + checkpoint(self._block, x, use_reentrant=False))


class Clipped(torch.autograd.Function):
    """The sign of a number, with the gradient of one that is cut off at -1 and 1."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class WithCustomGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(7, 10), nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(Clipped.apply(self.first(x)))


class Counting(nn.Module):
    """Writes its buffers: one in place, one anew, and one that is not in the ``state_dict``."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(7, 9), nn.Linear(9, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(9))
        self.register_buffer("last", torch.zeros(9), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        with torch.no_grad():
            self.calls.add_(1)
            self.last.copy_(hidden[-1])
            self.mean = torch.lerp(self.mean, hidden.mean(0), 0.1)
        return self.head(hidden - self.mean)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.kind, self.size = nn.Linear(7, 10), nn.Linear(10, 4), nn.Linear(10, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = F.silu(self.trunk(x))
        return {"kind": self.kind(hidden), "size": self.size(hidden).squeeze(-1)}


class OnDicts(nn.Module):
    """Takes a dict with an entry that needs no gradient, and one that is no float."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(9, 4), nn.Linear(7, 6), nn.Linear(6, 3)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        hidden = torch.cat([self.embed(batch["kind"]), batch["values"]], -1)
        weights = torch.where(batch["valid"], 1.0, 0.0)
        return self.head(torch.tanh(self.mix(hidden))) * weights[:, None]


class Normed(nn.Module):
    """Weights that are computed: from a direction and a length, and with a buffer that each step writes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Linear(7, 10))
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(10, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.softplus(self.first(x)))


class WithSpare(MLP):
    """Has a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Parameter(torch.ones(3))
