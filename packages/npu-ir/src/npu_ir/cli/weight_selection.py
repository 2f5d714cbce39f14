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


def select_weights(
    graph: Graph, options: argparse.Namespace, default_seed: int | None = None
) -> tuple[dict[str, torch.Tensor], str]:
    """Return the weights and constants that the command line selects, and their origin.

    Without ``--weights`` and ``--random-weights``, those that were saved with the graph; or else random ones
    of ``default_seed``, if that is given.

    Raises:
        UsageError: The graph needs weights and there are none, or constants contradict the weights.
        WeightError: They cannot be read.
    """
    constants = load_constants(options)
    missing = [name for name, _ in needed_weights(graph) if name not in constants]
    seed, path = options.random_weights, options.weights
    if seed is None and path is None and missing:
        saved: Any = read_document(options.file)["weights"]
        path, seed = (None, default_seed) if saved is None else (options.file, None)
        if path is None and seed is None:
            raise UsageError(
                f"the graph needs {count_text(len(missing), 'weight')}, and was saved without them",
                fix="--weights FILE, or --random-weights SEED only to see it run",
            )
    if seed is not None:
        weights, origin = random_weights(graph, seed), f"random, seed {seed}"
    elif path is None:
        weights, origin = {}, "" if constants else "none needed"
    else:
        weights, origin = load_weights(path, graph), str(path)
        if options.weights is None:
            origin = f"{Path(path).with_name(saved)}, saved with the graph"
    if seed is None:
        require_no_conflict(graph, weights, constants, options)
    origins = [origin, f"constants of {options.constants}" if constants else ""]
    return weights | constants, "; ".join(filter(None, origins))


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
