"""The weights that a graph is run with: from files, or random."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from npu_ir.cli.quantities import counted
from npu_ir.errors import UsageError
from npu_ir.graph import Graph
from npu_ir.random_data import needed_weights, random_weights
from npu_ir.serial.load import read_document
from npu_ir.weights import load_weights


def choose_weights(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, torch.Tensor], str]:
    """Return the weights and constants that the command line asks for, and where they are from.

    Without ``--weights`` and ``--random-weights``, those that were saved with the graph.

    Raises:
        UsageError: The graph needs weights and there are none.
        WeightError: They cannot be read.
    """
    constants = given_constants(options)
    weights, origin = _without_constants(graph, options, constants)
    return _together(weights, origin, constants, options)


def weights_or_random(
    graph: Graph, options: argparse.Namespace, seed: int
) -> tuple[dict[str, torch.Tensor], str]:
    """Return weights as `choose_weights` does, but random ones where there are none."""
    is_given = options.weights is not None or options.random_weights is not None
    saved: Any = read_document(options.file)["weights"]
    constants = given_constants(options)
    if is_given or saved is not None or not _missing(graph, constants):
        return choose_weights(graph, options)
    return _together(random_weights(graph, seed), f"random, seed {seed}", constants, options)


def given_constants(options: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Return the tensors of ``--constants``; none without it.

    Raises:
        WeightError: They cannot be read.
    """
    return {} if options.constants is None else load_weights(options.constants)


def _without_constants(
    graph: Graph, options: argparse.Namespace, constants: dict[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], str]:
    if options.random_weights is not None:
        return random_weights(graph, options.random_weights), f"random, seed {options.random_weights}"
    if options.weights is not None:
        return load_weights(options.weights, graph), str(options.weights)
    missing = _missing(graph, constants)
    if not missing:
        return {}, "" if constants else "none needed"
    saved: Any = read_document(options.file)["weights"]
    if saved is None:
        raise UsageError(
            f"the graph needs {counted(len(missing), 'weight')}, and was saved without them",
            fix="--weights FILE, or --random-weights SEED only to see it run",
        )
    return load_weights(options.file, graph), f"{Path(options.file).with_name(saved)}, saved with the graph"


def _missing(graph: Graph, constants: dict[str, torch.Tensor]) -> list[str]:
    return [name for name, _ in needed_weights(graph) if name not in constants]


def _together(
    weights: dict[str, torch.Tensor],
    origin: str,
    constants: dict[str, torch.Tensor],
    options: argparse.Namespace,
) -> tuple[dict[str, torch.Tensor], str]:
    origins = [origin, f"constants of {options.constants}" if constants else ""]
    return weights | constants, "; ".join(filter(None, origins))
