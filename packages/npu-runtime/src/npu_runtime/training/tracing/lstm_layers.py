"""LSTMs of a traced step as one node for each layer and direction, as eager mode runs them on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_INPUT_ARGUMENTS = 9  # input, states, params, has_biases, layers, dropout, train, bidirectional, batch_first


class LstmLayers(TorchFunctionMode):
    """A mode that traces LSTMs by ``npu::lstm`` where eager mode would call oneDNN.

    Otherwise a trace has each step of each layer: hundreds of nodes, and a replay slower than eager mode.
    """

    def __init__(self) -> None:
        super().__init__()
        import npu_passes.ops.training.lstm  # noqa: F401 - it registers the op

        library = torch.backends.mkldnn
        self._has_library = library.is_available() and library.enabled  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.lstm and not kwargs and self._has_library and _is_supported(args):
            return _run_layers(*args)
        return func(*args, **(kwargs or {}))


def _is_supported(args: Sequence[Any]) -> bool:
    """Return whether eager mode calls oneDNN, as ``use_mkldnn`` in PyTorch's RNN.cpp decides it."""
    if len(args) != _INPUT_ARGUMENTS or not isinstance(args[2], (list, tuple)):
        return False  # packed sequences
    x, (h, c), params = args[:3]
    tensors = (x, h, c, *params)
    is_plain = all(item.device.type == "cpu" and item.dtype == torch.float32 for item in tensors)
    is_whole = x.dim() == 3 and x.numel() > 0 and h.shape[-1] == c.shape[-1]
    return is_plain and is_whole and not torch.is_autocast_enabled("cpu")


def _run_layers(
    x: Tensor, states: tuple[Tensor, Tensor], params: Sequence[Tensor], *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    x = (x.transpose(0, 1) if batch_first else x).contiguous()
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
