"""Data for the checks of ``npu opt``, from its command line."""

from __future__ import annotations

import argparse

import torch

from npu_ir import Graph
from npu_ir.cli.call_arguments import graph_arguments
from npu_ir.cli.input_text import parse_inputs, parse_sizes
from npu_ir.cli.options import INT_HIGH
from npu_ir.cli.weight_selection import select_weights
from npu_ir.interpreter.random_data import random_tensor
from npu_passes.manager.checked_mode import Checked


def select_data(graph: Graph, options: argparse.Namespace) -> tuple[Checked | None, str]:
    """Return the data for ``--check`` and ``--bisect``, if either is given, and the source of its weights.

    Raises:
        UsageError: The graph has no such input or size, or a type that no data can be generated for.
        WeightError: The weights cannot be read.
    """
    if not (options.check or options.bisect):
        return None, ""
    inputs, sizes = parse_inputs(options.input), parse_sizes(options.size)
    seed, int_high = options.seed or 0, options.int_high or INT_HIGH
    generator = torch.Generator().manual_seed(seed)
    call = graph_arguments(graph, inputs, lambda type: random_tensor(type, generator, int_high), sizes)
    weights, origin = select_weights(graph, options, seed)
    return Checked(weights=weights, calls=[(call.args, call.kwargs)], seed=seed), origin
