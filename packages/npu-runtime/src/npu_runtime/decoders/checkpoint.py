"""Weights of a decoder from a checkpoint on disk."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from torch import Tensor

from npu_ir import Graph, WeightError, load_weights
from npu_ir.core.node import external_names
from npu_ir.serial.checkpoints import weight_names
from npu_runtime.decoders.extract import DecoderGraphs, missing_weights
from npu_runtime.decoders.model_on_meta import automatic_class


def read_checkpoint(path: str | os.PathLike[str], graphs: DecoderGraphs) -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint by the names that the graphs have.

    They are mapped, not copied. Where a folder of transformers has other names, or weights in parts that the
    model has as one (Mixtral), transformers itself loads it: then they are in memory, once.

    Raises:
        WeightError: The checkpoint cannot be read, by transformers either where it has other names; or it has
            more layers than the model.
    """
    graph = graphs.by_count[1]
    weights = load_weights(path, graph)
    computed = {*graphs.constants, *graphs.positions}
    missing = missing_weights(graph, {*weights, *computed})
    if missing and Path(path, "config.json").is_file():
        # An executor says what is missing.
        return _load_by_transformers(path, graph, missing, computed) or weights
    known = {name for value in graph.weights for name in external_names(value)}
    _require_no_more_layers(path, known, weight_names(path))
    return weights


def _has_enough(stored: Mapping[str, Tensor], graph: Graph, computed: AbstractSet[str]) -> bool:
    """Return whether what a graph does not find can be made of what it does not take.

    Transformers renames, joins, splits and transposes tensors: none of that makes elements.
    """
    taken: set[str] = set()
    needed = 0
    for value in graph.weights:
        names, shape = external_names(value), value.tensor_type.static_shape
        fitting = [name for name in names if name in stored and tuple(stored[name].shape) == tuple(shape)]
        taken.update(fitting)
        if not fitting and computed.isdisjoint(names):
            needed += math.prod(shape)
    return needed <= sum(item.numel() for name, item in stored.items() if name not in taken)


def _require_no_more_layers(
    path: str | os.PathLike[str], known: AbstractSet[str], stored: Iterable[str]
) -> None:
    """Refuse a checkpoint that has layers which the model is without, and others like them that it has.

    Tensors of another kind are usual in checkpoints: masks, frequencies, a head of something else.
    """
    prefixes = {prefix for name in known for prefix in _layers_of(name)}
    kinds = {_kind_of(name) for name in known}
    for name in sorted(stored):
        dropped = [prefix for prefix in _layers_of(name) if prefix not in prefixes]
        if dropped and _kind_of(name) in kinds:
            raise WeightError(
                f"the checkpoint has a layer {dropped[0]!r}, which the model is without",
                where=str(path),
                fix="set the number of layers in config.json to that of the checkpoint; to leave layers out,"
                " give the weights of the others: load_weights(path, graphs.by_count[1])",
            )


def _layers_of(name: str) -> list[str]:
    """Return the names of the layers that a tensor is in: ``a.0`` and ``a.0.b.1`` of ``a.0.b.1.weight``."""
    parts = name.split(".")
    return [".".join(parts[: index + 1]) for index, part in enumerate(parts) if part.isdecimal()]


def _kind_of(name: str) -> str:
    """Return a name that is the same for a tensor of each layer."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def _load_by_transformers(
    path: str | os.PathLike[str], graph: Graph, missing: Sequence[str], computed: AbstractSet[str]
) -> Mapping[str, Tensor] | None:
    """Return what transformers loads from a folder; None if that does not have all weights either.

    Args:
        path: The folder.
        graph: A graph of the model.
        missing: Its weights that the checkpoint does not have by name.
        computed: Those that no checkpoint has.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path)
        # A model of random weights is made first, of any size that the configuration asks for. Weights that
        # are quantized have fewer elements than the model.
        is_quantized = getattr(config, "quantization_config", None) is not None
        if not is_quantized and not _has_enough(load_weights(path), graph, computed):
            return None
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
    _require_no_more_layers(path, set(state), found["unexpected_keys"])
    return state
