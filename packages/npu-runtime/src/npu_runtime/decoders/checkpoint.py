"""Weights of a decoder from a checkpoint on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from npu_ir import WeightError, load_weights
from npu_runtime.decoders.extract import DecoderGraphs, missing_weights
from npu_runtime.decoders.model_on_meta import automatic_class


def read_checkpoint(path: str | os.PathLike[str], graphs: DecoderGraphs) -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint by the names that the graphs have.

    They are mapped, not copied. Where a folder of transformers has other names, or weights in parts that the
    model has as one (Mixtral), transformers itself loads it: then they are in memory, once.

    Raises:
        WeightError: The checkpoint cannot be read, by transformers either where it has other names.
    """
    graph = graphs.by_count[1]
    weights = load_weights(path, graph)
    missing = missing_weights(graph, {*weights, *graphs.constants, *graphs.positions})
    if not missing or not Path(path, "config.json").is_file():
        return weights  # an executor says what is missing
    return _load_by_transformers(path, missing) or weights


def _load_by_transformers(
    path: str | os.PathLike[str], missing: Sequence[str]
) -> Mapping[str, Tensor] | None:
    """Return what transformers loads from a folder; None if that does not have all weights either."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path)
        model, found = automatic_class(config).from_pretrained(path, output_loading_info=True)
    except Exception as error:  # of transformers, of any type
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise WeightError(
            f"the checkpoint has no {missing[0]!r}, and transformers, which may know it by another name, does"
            f" not load it: {type(error).__name__}: {reason}",
            where=str(path),
            fix="save the model again: model.save_pretrained(folder)",
        ) from error
    if any(found[name] for name in ("missing_keys", "mismatched_keys", "error_msgs")):
        return None
    state: dict[str, Any] = model.state_dict()
    return state
