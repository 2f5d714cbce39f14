"""``npu::lstm`` and ``npu::lstm_backward``: a layer of an LSTM in one direction, by oneDNN as in eager mode.

PyTorch's own op, ``aten::mkldnn_rnn_layer``, keeps what its backward needs only while gradients are recorded,
which is never in a graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir._torch.tracing import without_modes
from npu_passes.ops.registration import LIBRARY, register

_LSTM_MODE = 2  # in PyTorch's numbers of cells
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def lstm(
    x: Tensor,
    weight: Tensor,
    state_weight: Tensor,
    bias: Tensor,
    state_bias: Tensor,
    h: Tensor,
    c: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the results of all steps, both states after the last one, and what the backward needs.

    Args:
        x: The input, float32[steps, batch, in].
        weight: Of the input, [4 * hidden, in]; the gates are in the order of PyTorch.
        state_weight: Of the states, [4 * hidden, hidden].
        bias: Of the input, [4 * hidden].
        state_bias: Of the states, [4 * hidden].
        h: The first state before the first step, [batch, hidden].
        c: The second one.
        reverse: Whether the last step comes first.
    """
    tensors = x, weight, state_weight, bias, state_bias, h, c
    with torch.enable_grad():  # else nothing is kept
        results = torch.ops.aten.mkldnn_rnn_layer(
            *(item.detach().contiguous() for item in tensors), **_options(h, reverse)
        )
    y, last_h, last_c, kept = results
    return y, last_h, last_c, kept


def lstm_backward(*args: Any) -> Gradients:
    """Return the gradients of input, weights, both biases (they are equal), and states of `lstm`.

    Args:
        *args: The tensors that `lstm` takes, those that it returns, the gradients of its results and of both
            states (None for 0), and ``reverse``.
    """
    *tensors, grad_y, grad_h, grad_c, reverse = args
    *tensors, kept = (item.contiguous() for item in tensors)
    grads = (None if grad is None else grad.contiguous() for grad in (grad_y, grad_h, grad_c))
    options = _options(tensors[5], reverse)
    gradients = torch.ops.aten.mkldnn_rnn_layer_backward(*tensors, *grads, **options, workspace=kept)
    grad_x, grad_weight, grad_state_weight, grad_bias, _, grad_h, grad_c = gradients
    return grad_x, grad_weight, grad_state_weight, grad_bias, grad_h, grad_c


def _options(h: Tensor, reverse: bool) -> dict[str, Any]:
    """Return the numbers of both ops, which take the memory of their tensors as if it were contiguous."""
    return {
        "reverse": reverse,
        "batch_sizes": [],
        "mode": _LSTM_MODE,
        "hidden_size": h.shape[-1],
        "num_layers": 1,
        "has_biases": True,
        "bidirectional": False,
        "batch_first": False,
        "train": True,
    }


def _fake_lstm(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, _, _, _, _, h, c, _ = args
    kept = x.new_empty((_bytes_kept(*x.shape, h.shape[-1]),), dtype=torch.uint8)
    return x.new_empty((*x.shape[:2], h.shape[-1])), h.new_empty(h.shape), c.new_empty(c.shape), kept


@functools.lru_cache
def _bytes_kept(steps: int, batch: int, columns: int, hidden: int) -> int:
    """Return how much oneDNN keeps for a backward, which only a call of it tells."""
    with without_modes():
        shapes = (steps, batch, columns), (4 * hidden, columns), (4 * hidden, hidden), (4 * hidden,)
        x, weight, state_weight, bias = (torch.zeros(shape) for shape in shapes)
        state = torch.zeros(batch, hidden)
        return lstm(x, weight, state_weight, bias, bias, state, state, False)[3].numel()


def _fake_lstm_backward(*args: Any) -> Gradients:
    x, weight, state_weight, bias, _, h, c, *_ = args
    x, weight, state_weight, bias, h, c = (
        item.new_empty(item.shape) for item in (x, weight, state_weight, bias, h, c)
    )
    return x, weight, state_weight, bias, h, c


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.reverse = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[3])


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    if all(grad is None for grad in grads):
        return (None,) * 8
    saved = ctx.saved_tensors  # read once: a checkpoint computes them
    if torch.is_grad_enabled():  # gradients of gradients will be asked for, which oneDNN does not have
        return (*_differentiate_steps(saved[:7], grads[:3], ctx.reverse), None)
    gradients = torch.ops.npu.lstm_backward(*saved, *grads[:3], ctx.reverse)
    grad_x, grad_weight, grad_state_weight, grad_bias, grad_h, grad_c = gradients
    return grad_x, grad_weight, grad_state_weight, grad_bias, grad_bias, grad_h, grad_c, None


def _differentiate_steps(
    tensors: Sequence[Tensor], grads: Sequence[Tensor | None], reverse: bool
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the tensors of `lstm` by a computation of its steps that is differentiable."""
    x, weight, state_weight, bias, state_bias, h, c = tensors
    results = []
    for row in reversed(x) if reverse else x:
        gates = F.linear(row, weight, bias) + F.linear(h, state_weight, state_bias)
        into, forget, candidate, out = gates.chunk(4, -1)
        c = forget.sigmoid() * c + into.sigmoid() * candidate.tanh()
        h = out.sigmoid() * c.tanh()
        results.append(h)
    y = torch.stack(results[::-1] if reverse else results)
    read = [(result, grad) for result, grad in zip((y, h, c), grads, strict=True) if grad is not None]
    known = [item for item in tensors if item.requires_grad]
    outputs, given = zip(*read, strict=True)
    found = iter(torch.autograd.grad(outputs, known, given, create_graph=True, allow_unused=True))
    return tuple(next(found) if item.requires_grad else None for item in tensors)


_TENSORS = "Tensor x, Tensor weight, Tensor state_weight, Tensor bias, Tensor state_bias, Tensor h, Tensor c"
register("lstm", f"({_TENSORS}, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)", lstm, _fake_lstm)
register(
    "lstm_backward",
    f"({_TENSORS}, Tensor y, Tensor last_h, Tensor last_c, Tensor kept, Tensor? grad_y, Tensor? grad_h, "
    "Tensor? grad_c, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    lstm_backward,
    _fake_lstm_backward,
)
torch.library.register_autograd("npu::lstm", _differentiate, setup_context=_save, lib=LIBRARY)
