"""``npu::lstm_layer`` and ``npu::rnn_layer``: one layer of a recurrent network, in one direction.

The projection of its input, which does not depend on the states, is a linear layer before it. The weight of
the states is in panels of [ceil(hidden / units), in, gates * units], made by ``npu::pack_gates``: panel i has
the outputs from i * units on of every gate, gate by gate, and zeros beyond the last one. Importing this
module registers the ops with PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_passes.ops.packed import MOST_WIDTH, panel_width
from npu_passes.ops.registration import register_composite, register_differentiable

PACK_GATES = "npu.pack_gates.default"
LSTM_LAYER = "npu.lstm_layer.default"
RNN_LAYER = "npu.rnn_layer.default"
GATES: Mapping[str, int] = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3}
_LEAST_UNITS = 16


def units_of_panel(gates: int, hidden: int) -> int:
    """Return the number of outputs in a panel that suits every processor."""
    return panel_width(hidden) if gates == 1 else max(_LEAST_UNITS, MOST_WIDTH // gates // 16 * 16)


@register_composite("(Tensor weight, int gates) -> Tensor")
def pack_gates(weight: Tensor, gates: int) -> Tensor:
    """Return the panels of a weight of [gates * hidden, in]."""
    hidden, columns = weight.shape[0] // gates, weight.shape[1]
    units = units_of_panel(gates, hidden)
    padded = F.pad(weight.reshape(gates, hidden, columns), (0, 0, 0, -hidden % units))
    parts = padded.reshape(gates, padded.shape[1] // units, units, columns).permute(1, 3, 0, 2)
    return parts.reshape(padded.shape[1] // units, columns, gates * units).contiguous()


def weight_of(panels: Tensor, gates: int, hidden: int) -> Tensor:
    """Return the weight that panels were made of."""
    count, columns, width = panels.shape
    parts = panels.reshape(count, columns, gates, width // gates).permute(2, 0, 3, 1)
    return parts.reshape(gates, count * width // gates, columns)[:, :hidden].reshape(gates * hidden, columns)


def _lstm_layer(
    projected: Tensor, panels: Tensor, h: Tensor, c: Tensor, bias: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of all steps, and both states after the last one.

    Args:
        projected: [steps, batch, 4 * hidden]: the input, times its weight, with its bias.
        panels: Those of the weight of the states, [4 * hidden, hidden].
        h: The first state before the first step, [batch, hidden].
        c: The second one.
        bias: Panels of the bias of the states, as a weight of [4 * hidden, 1].
        reverse: Whether the last step comes first.
    """

    def step(gates: Tensor, of_state: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
        into, forget, candidate, out = (gates + of_state).chunk(4, -1)
        c = forget.sigmoid() * c + into.sigmoid() * candidate.tanh()
        return out.sigmoid() * c.tanh(), c

    return _run(projected, panels, h, c, bias, reverse, 4, step)


def _rnn_layer(
    projected: Tensor, panels: Tensor, h: Tensor, bias: Tensor | None, cell: str, reverse: bool
) -> tuple[Tensor, Tensor]:
    """Return the results of all steps, and the state after the last one.

    ``cell`` is "gru", "tanh" or "relu"; the other arguments are those of ``npu::lstm_layer``.
    """
    step = _gru_step if cell == "gru" else _plain_step(cell)
    y, h, _ = _run(projected, panels, h, h, bias, reverse, GATES[cell], step)
    return y, h


_Step = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _gru_step(gates: Tensor, of_state: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = gates.chunk(3, -1), of_state.chunk(3, -1)
    new = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
    return (h - new) * (update_x + update_h).sigmoid() + new, c


def _plain_step(cell: str) -> _Step:
    function = torch.tanh if cell == "tanh" else torch.relu
    return lambda gates, of_state, h, c: (function(gates + of_state), c)  # noqa: ARG005


def _run(
    projected: Tensor,
    panels: Tensor,
    h: Tensor,
    c: Tensor,
    bias: Tensor | None,
    reverse: bool,
    gates: int,
    step: _Step,
) -> tuple[Tensor, Tensor, Tensor]:
    weight = weight_of(panels, gates, h.shape[-1])
    row = None if bias is None else weight_of(bias, gates, h.shape[-1])[:, 0]
    results: list[Tensor] = []
    for time in reversed(projected) if reverse else projected:
        h, c = step(time, F.linear(h, weight, row), h, c)
        results.append(h)
    y = torch.stack(results[::-1] if reverse else results) if results else _empty_results(projected, h)
    # A result of its own, whatever h and c are.
    return y, h.clone(memory_format=torch.contiguous_format), c.clone(memory_format=torch.contiguous_format)


def _empty_results(projected: Tensor, h: Tensor) -> Tensor:
    return projected.new_empty((*projected.shape[:2], h.shape[-1]))


def _fake_lstm(projected: Tensor, panels: Tensor, h: Tensor, c: Tensor, *_: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
    return _empty_results(projected, h), h.new_empty(h.shape), c.new_empty(c.shape)


def _fake_rnn(projected: Tensor, panels: Tensor, h: Tensor, *_: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
    return _empty_results(projected, h), h.new_empty(h.shape)


register_differentiable(
    "lstm_layer",
    "(Tensor projected, Tensor panels, Tensor h, Tensor c, Tensor? bias, bool reverse) "
    "-> (Tensor, Tensor, Tensor)",
    _lstm_layer,
    _fake_lstm,
)
register_differentiable(
    "rnn_layer",
    "(Tensor projected, Tensor panels, Tensor h, Tensor? bias, str cell, bool reverse) -> (Tensor, Tensor)",
    _rnn_layer,
    _fake_rnn,
)
