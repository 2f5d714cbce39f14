"""Names of a graph as those of a program of PyTorch's, which are identifiers."""

from __future__ import annotations

import re

import torch


def identifier(name: str) -> str:
    """Return the name of a value or node with all that no identifier can have replaced."""
    plain = re.sub(r"\W", "_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def free_attribute(module: torch.nn.Module, name: str) -> str:
    """Return ``name``, or the first of ``name_1``, ``name_2``, ... that ``module`` has no attribute of."""
    found, count = name, 0
    while hasattr(module, found):
        count += 1
        found = f"{name}_{count}"
    return found
