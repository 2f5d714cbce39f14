"""What ``npu opt`` runs a graph on to see whether a pass changed it."""

from __future__ import annotations

import argparse
from typing import Any

import torch

from npu_ir import Graph
from npu_ir.cli.graph_call import graph_arguments
from npu_ir.cli.input_text import parse_inputs
from npu_ir.cli.options import INT_HIGH
from npu_ir.cli.size_text import parse_sizes
from npu_ir.cli.weight_choice import choose_weights
from npu_ir.random_data import needed_weights, random_tensor, random_weights
from npu_ir.serial.load import read_document
from npu_passes.checking import Checked


def chosen_data(graph: Graph, options: argparse.Namespace) -> tuple[Checked | None, str]:
    """Return the data that the command line asks for, if it asks for checks, and where its weights are from.

    Raises:
        UsageError: The graph has no such input or size, or no data of one of its types can be made.
        WeightError: The weights cannot be read.
    """
    if not (options.check or options.bisect):
        return None, ""
    inputs, sizes = parse_inputs(options.input), parse_sizes(options.size)
    seed, int_high = options.seed or 0, options.int_high or INT_HIGH
    generator = torch.Generator().manual_seed(seed)
    call = graph_arguments(graph, inputs, lambda type: random_tensor(type, generator, int_high), sizes)
    weights, origin = _chosen_weights(graph, options, seed)
    return Checked(weights=weights, calls=[(call.args, call.kwargs)], seed=seed), origin


def _chosen_weights(
    graph: Graph, options: argparse.Namespace, seed: int
) -> tuple[dict[str, torch.Tensor], str]:
    """Return weights as `npu run` chooses them, but random ones where there are none."""
    is_given = options.weights is not None or options.random_weights is not None
    saved: Any = read_document(options.file)["weights"]
    if not is_given and saved is None and any(needed_weights(graph)):
        return random_weights(graph, seed), f"random, seed {seed}"
    return choose_weights(graph, options)
