"""Tensors: FakeTensors, opaque layouts."""

from __future__ import annotations

import torch


def packed_layout() -> torch.layout:
    """Return the opaque layout of tensors that oneDNN packs."""
    layout: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
    return layout


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a FakeTensor."""
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor)
