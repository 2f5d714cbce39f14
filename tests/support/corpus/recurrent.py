"""Recurrent networks, in every combination of their flags."""

import functools
import itertools
from typing import Any

import torch
from torch import nn, randn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((4, 2, 3)))
module = CASES.module


module("gru", lambda: nn.GRU(3, 4), op="aten.gru.input")
module("lstm", lambda: nn.LSTM(3, 4), op="aten.lstm.input")
module("rnn_tanh", lambda: nn.RNN(3, 4), op="aten.rnn_tanh.input")
module("rnn_relu", lambda: nn.RNN(3, 4, nonlinearity="relu"), op="aten.rnn_relu.input")
module("lstm_with_projection", lambda: nn.LSTM(3, 4, proj_size=2))
module("lstm_with_dropout", lambda: nn.LSTM(3, 4, num_layers=2, dropout=0.5))
module("gru_unbatched", lambda: nn.GRU(3, 4), floats((4, 3)))
module("lstm_given_state", lambda: nn.LSTM(3, 4, 2),
    lambda: call(randn(4, 2, 3), (randn(2, 2, 4), randn(2, 2, 4))))  # fmt: skip
module("lstm_cell", lambda: nn.LSTMCell(3, 4), lambda: call(randn(2, 3), (randn(2, 4), randn(2, 4))))
module("gru_cell", lambda: nn.GRUCell(3, 4), floats((2, 3)))


def recurrent(
    kind: type[nn.RNNBase], layers: int, bidirectional: bool, batch_first: bool, bias: bool
) -> nn.Module:
    return kind(3, 4, layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias)


for kind, *flags in itertools.product((nn.LSTM, nn.GRU), (1, 2), *[(False, True)] * 3):
    name = "{}_layers{}_bi{:d}_first{:d}_bias{:d}".format(kind.__name__.lower(), *flags)
    module(name, functools.partial(recurrent, kind, *flags))


@CASES.add(holding=lambda: {"cell": nn.GRUCell(3, 4)})
def loop_over_cells(self: Any, x: Any) -> Any:
    state = x.new_zeros(x.shape[1], 4)
    states = []
    for step in x:
        state = self.cell(step, state)
        states.append(state)
    return torch.stack(states), state
