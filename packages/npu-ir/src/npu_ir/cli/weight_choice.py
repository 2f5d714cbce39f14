"""The weights that a graph is run with: from a file, or random."""

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
    """Return the weights that the command line asks for, and where they are from.

    Without ``--weights`` and ``--random-weights``, those that were saved with the graph.

    Raises:
        UsageError: The graph needs weights and there are none.
        WeightError: They cannot be read.
    """
    if options.random_weights is not None:
        return random_weights(graph, options.random_weights), f"random, seed {options.random_weights}"
    if options.weights is not None:
        return load_weights(options.weights, graph), str(options.weights)
    needed = list(needed_weights(graph))
    if not needed:
        return {}, "none needed"
    saved: Any = read_document(options.file)["weights"]
    if saved is None:
        raise UsageError(
            f"the graph needs {counted(len(needed), 'weight')}, and was saved without them",
            fix="--weights FILE, or --random-weights SEED only to see it run",
        )
    return load_weights(options.file, graph), f"{Path(options.file).with_name(saved)}, saved with the graph"
