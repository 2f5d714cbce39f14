"""Declares two operators of torchvision where its compiled ones cannot be loaded.

torchvision's wheels on PyPI are built for CUDA; beside a PyTorch without CUDA they import only once the
operators that they give a shape function exist (torchvision 0.28). No model of the run calls them.
"""

from __future__ import annotations

import importlib.util

import torch

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def make_torchvision_importable() -> None:
    """Declare the operators, unless torchvision is missing or imports as it is."""
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for operator in _OPERATORS:
            torch.library.define(f"torchvision::{operator}", _SCHEMA)
