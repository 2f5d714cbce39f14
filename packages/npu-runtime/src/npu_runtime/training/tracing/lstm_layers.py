"""LSTMs of a traced step as one node for each layer and direction, as eager mode runs them on a CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir._torch.tensors import is_functorch_wrapper
from npu_ir._torch.tracing import is_tracing
from npu_runtime._torch.lstm_calls import replace_lstm

_INPUT_ARGUMENTS = 9  # input, states, params, has_biases, layers, dropout, train, bidirectional, batch_first


def layers_of_lstms() -> contextlib.AbstractContextManager[None]:
    """Trace LSTMs by ``npu::lstm`` where eager mode would call oneDNN.

    Otherwise a trace has each step of each layer: hundreds of nodes, and a replay slower than eager mode.
    """
    import npu_passes.ops.training.lstm  # noqa: F401 - it registers the op

    library = torch.backends.mkldnn
    has_library = library.is_available() and library.enabled  # type: ignore[no-untyped-call]

    def replace(known: Callable[..., Any]) -> Callable[..., Any]:
        def lstm(*args: Any, **kwargs: Any) -> Any:
            if has_library and not kwargs and is_tracing() and _is_supported(args):
                return _run_layers(*args)
            return known(*args, **kwargs)

        return lstm

    return replace_lstm(replace)


def _is_supported(args: Sequence[Any]) -> bool:
    """Return whether eager mode calls oneDNN, as ``use_mkldnn`` in PyTorch's RNN.cpp decides it."""
    if len(args) != _INPUT_ARGUMENTS or not isinstance(args[2], (list, tuple)):
        return False  # packed sequences
    x, (h, c), params = args[:3]
    tensors = (x, h, c, *params)
    is_plain = all(item.device.type == "cpu" and item.dtype == torch.float32 for item in tensors)
    is_whole = x.dim() == 3 and x.numel() > 0 and h.shape[-1] == c.shape[-1]
    has_wrapper = any(map(is_functorch_wrapper, tensors))  # torch.func knows no derivative of the op
    return is_plain and is_whole and not has_wrapper and not torch.is_autocast_enabled("cpu")


def _run_layers(
    x: Tensor, states: tuple[Tensor, Tensor], params: Sequence[Tensor], *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    x = (x.transpose(0, 1) if batch_first else x).contiguous()  # once, for the backward as well
    directions, count = 2 if bidirectional else 1, 4 if has_biases else 2
    last: list[tuple[Tensor, Tensor]] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = len(last)
            weights = list(params[place * count :][:count])
            if not has_biases:
                weights += [item.new_zeros(item.shape[0]) for item in weights[:1] * 2]
            state = states[0][place], states[1][place]
            y, h, c, _ = torch.ops.npu.lstm(x, *weights, *state, direction == 1)
            outputs.append(y)
            last.append((h, c))
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < layers - 1:
            x = F.dropout(x, dropout)
    h, c = (torch.stack(items) for items in zip(*last, strict=True))
    return x.transpose(0, 1) if batch_first else x, h, c
