"""Refusal of tensors that torch.export does not accept: quantized, nested and oneDNN ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from npu_ir._torch.pytree import tree_leaves
from npu_ir.errors import ExportError


def require_plain_tensors(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse tensors of kinds that FakeTensors do not model, before anything runs.

    Raises:
        ExportError: Names the input, parameter or buffer.
    """
    inputs = [(f"args[{index}]", item) for index, item in enumerate(args)] + list(kwargs.items())
    held = [*model.named_parameters(), *model.named_buffers()]
    for name, tree in (*held, *inputs):
        for tensor in tree_leaves(tree):
            is_tensor = isinstance(tensor, torch.Tensor)
            kind = next((kind for kind, holds in _REFUSED_KINDS.items() if is_tensor and holds(tensor)), None)
            if kind is not None:
                raise ExportError(
                    f"{name} is a {kind} tensor, which torch.export does not take",
                    where=type(model).__name__,
                    fix=_PLAIN_FORMS[kind],
                )


_REFUSED_KINDS: dict[str, Callable[[torch.Tensor], bool]] = {
    "quantized": lambda tensor: tensor.is_quantized,
    "nested": lambda tensor: tensor.is_nested,
    "oneDNN": lambda tensor: tensor.is_mkldnn,
}
_PLAIN_FORMS = {
    "quantized": "pass dequantize(), or integers and scales (torch.ao.quantization.pt2e, torchao)",
    "nested": "pass values() and offsets(), or to_padded_tensor(0.0) and a mask",
    "oneDNN": "pass to_dense()",
}
