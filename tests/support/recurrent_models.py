"""Recurrent networks in all forms that PyTorch has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

NETWORKS: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "lstm": (nn.LSTM, {}),
    "lstm without biases": (nn.LSTM, {"bias": False}),
    "lstm of two layers, both directions": (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "lstm, batches first": (nn.LSTM, {"batch_first": True, "num_layers": 2}),
    "gru": (nn.GRU, {}),
    "gru without biases, batches first": (nn.GRU, {"bias": False, "batch_first": True}),
    "gru of two layers, both directions": (
        nn.GRU,
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    ),
    "rnn": (nn.RNN, {}),
    "rnn, both directions": (nn.RNN, {"bidirectional": True}),
    "rnn of relu": (nn.RNN, {"nonlinearity": "relu", "bias": False}),
}


class Recurrent(nn.Module):
    """A network, with first states that it is given, or zeros."""

    def __init__(self, name: str, inputs: int = 5, hidden: int = 7) -> None:
        super().__init__()
        torch.manual_seed(0)
        kind, options = NETWORKS[name]
        self.network = kind(inputs, hidden, **options)

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        first: Any = states if len(states) > 1 else states[0] if states else None
        return self.network(x, first)

    def first_states(self, rows: int) -> tuple[Tensor, ...]:
        network = self.network
        shape = network.num_layers * (1 + network.bidirectional), rows, network.hidden_size
        return tuple(torch.randn(shape) for _ in range(1 + isinstance(network, nn.LSTM)))
