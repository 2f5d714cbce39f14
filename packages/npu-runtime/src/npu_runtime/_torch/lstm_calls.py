"""The function that ``torch.nn.LSTM`` calls, in place of which a trace has another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import _VF

from npu_ir._torch.patches import set_attributes


def replace_lstm(replace: Callable[[Callable[..., Any]], Any]) -> contextlib.AbstractContextManager[None]:
    """Call what ``replace`` returns for ``torch.lstm``, also in backwards and checkpoints, for a block."""
    function = replace(torch.lstm)
    return set_attributes((_VF, "lstm", function), (torch, "lstm", function))
