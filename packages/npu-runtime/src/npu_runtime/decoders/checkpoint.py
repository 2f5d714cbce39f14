"""Weights of a decoder from a checkpoint on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from npu_ir import load_weights
from npu_ir.core.node import external_names
from npu_runtime.decoders.extract import DecoderGraphs, automatic_class


def read_checkpoint(path: str | os.PathLike[str], graphs: DecoderGraphs) -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint by the names that the graphs have.

    They are mapped, not copied. Where a folder of transformers has other names, or weights in parts that the
    model has as one (Mixtral), transformers itself loads it: then they are in memory, once.

    Raises:
        WeightError: The checkpoint cannot be read.
    """
    graph = graphs.by_count[1]
    weights = load_weights(path, graph)
    known = {*weights, *graphs.constants, *graphs.positions}
    if all(known.intersection(external_names(value)) for value in graph.weights):
        return weights
    return _load_by_transformers(path) or weights


def _load_by_transformers(path: str | os.PathLike[str]) -> Mapping[str, Tensor] | None:
    """Return what transformers loads from a folder; None if it is not one, or does not have all weights."""
    if not Path(path, "config.json").is_file():
        return None
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path)
        model, found = automatic_class(config).from_pretrained(path, output_loading_info=True)
    except Exception:  # noqa: BLE001 - the error of the checkpoint itself says more
        return None
    if any(found[name] for name in ("missing_keys", "mismatched_keys", "error_msgs")):
        return None
    state: dict[str, Any] = model.state_dict()
    return state
