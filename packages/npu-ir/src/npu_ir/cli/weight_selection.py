"""Weights for running a graph: from files, or random."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from npu_ir.cli.quantities import count_text
from npu_ir.core.tensor_bytes import same_data
from npu_ir.errors import UsageError
from npu_ir.graph.graph import Graph
from npu_ir.interpreter.random_data import needed_weights, random_weights
from npu_ir.serial.checkpoints import load_weights
from npu_ir.serial.load import read_document


def select_weights(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, torch.Tensor], str]:
    """Return the weights and constants that the command line selects, and their origin.

    Without ``--weights`` and ``--random-weights``, those that were saved with the graph.

    Raises:
        UsageError: The graph needs weights and there are none, or constants contradict the weights.
        WeightError: They cannot be read.
    """
    constants = load_constants(options)
    weights, origin = _select_without_constants(graph, options, constants)
    if options.random_weights is None:
        require_no_conflict(graph, weights, constants, options)
    return _merge_constants(weights, origin, constants, options)


def weights_or_random(
    graph: Graph, options: argparse.Namespace, seed: int
) -> tuple[dict[str, torch.Tensor], str]:
    """Return weights as `select_weights` does, or random ones if there are none."""
    is_given = options.weights is not None or options.random_weights is not None
    saved: Any = read_document(options.file)["weights"]
    constants = load_constants(options)
    if is_given or saved is not None or not _missing_weights(graph, constants):
        return select_weights(graph, options)
    return _merge_constants(random_weights(graph, seed), f"random, seed {seed}", constants, options)


def load_constants(options: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Return the tensors of ``--constants``; an empty dict without it."""
    return {} if options.constants is None else load_weights(options.constants)


def require_no_conflict(
    graph: Graph,
    weights: Mapping[str, torch.Tensor],
    constants: Mapping[str, torch.Tensor],
    options: argparse.Namespace,
) -> None:
    """Refuse constants that contradict the weights in a parameter or persistent buffer of ``graph``."""
    for name in weights.keys() & constants.keys():
        if is_in_state_dict(graph, name) and not same_data(weights[name], constants[name]):
            raise UsageError(
                f"{name} is one tensor in {options.weights or 'the weights saved with the graph'} "
                f"and another in {options.constants}",
                fix="--constants takes what is not in the state_dict: "
                "leave out the others, or give them by --weights alone",
            )


def is_in_state_dict(graph: Graph, name: str) -> bool:
    """Return whether a tensor that the graph needs by name is in the ``state_dict`` of its model."""
    buffer = graph.buffers.get(name)
    is_left_out = buffer is not None and buffer.argument is not None and not buffer.argument.persistent
    return not is_left_out and name not in graph.constants


def _select_without_constants(
    graph: Graph, options: argparse.Namespace, constants: dict[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], str]:
    if options.random_weights is not None:
        return random_weights(graph, options.random_weights), f"random, seed {options.random_weights}"
    if options.weights is not None:
        return load_weights(options.weights, graph), str(options.weights)
    missing = _missing_weights(graph, constants)
    if not missing:
        return {}, "" if constants else "none needed"
    saved: Any = read_document(options.file)["weights"]
    if saved is None:
        raise UsageError(
            f"the graph needs {count_text(len(missing), 'weight')}, and was saved without them",
            fix="--weights FILE, or --random-weights SEED only to see it run",
        )
    return load_weights(options.file, graph), f"{Path(options.file).with_name(saved)}, saved with the graph"


def _missing_weights(graph: Graph, constants: dict[str, torch.Tensor]) -> list[str]:
    return [name for name, _ in needed_weights(graph) if name not in constants]


def _merge_constants(
    weights: dict[str, torch.Tensor],
    origin: str,
    constants: dict[str, torch.Tensor],
    options: argparse.Namespace,
) -> tuple[dict[str, torch.Tensor], str]:
    origins = [origin, f"constants of {options.constants}" if constants else ""]
    return weights | constants, "; ".join(filter(None, origins))
