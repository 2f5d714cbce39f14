"""Random graphs: convolutions, norms, arithmetic, views, casts, identities, and updates.

A graph grows step by step: each draws an op and operands from what the graph has. A call that PyTorch refuses
is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_ir.core.types import ScalarType, TensorType
from npu_ir.errors import GraphError
from npu_ir.graph.graph import Graph
from npu_ir.symbolic.constraints import Range
from npu_ir.testing.random_steps import F32, STEPS, Choose, GraphGrowth

_SHAPES = ((2, 4, 3, 3), (2, 3), (4,), (), (1, 4), (2, 1, 3), (0, 2))


def random_graph(seed: int, *, most_steps: int = 12) -> Graph:
    """Return a valid graph, the same one for a seed.

    Args:
        seed: The seed.
        most_steps: How many nodes, or pairs of nodes, it has at most.
    """
    # Choices only, no secrets: the generator of Python gives the same ones on every platform.
    choose = random.Random(seed).choice
    steps = [choose(STEPS) for _ in range(choose(range(1, most_steps + 1)))]
    return grow_graph(choose, steps)


def grow_graph(
    choose: Choose, steps: Sequence[Callable[[GraphGrowth], None]], *, is_open: bool = False
) -> Graph:
    """Return the graph that grows by these steps.

    Args:
        choose: Returns one of the items of a sequence: it makes every choice.
        steps: Some of `npu_ir.testing.random_steps.STEPS`.
        is_open: The first size of the first input is a symbol.
    """
    growth = GraphGrowth(choose)
    for index in range(choose(range(1, 4))):
        growth.values.append(_add_input(growth, index, is_open=is_open and not index))
    for step in steps:
        try:
            step(growth)
        except GraphError:
            continue
    _finish(growth)
    growth.graph.check()
    return growth.graph


def _add_input(growth: GraphGrowth, index: int, *, is_open: bool) -> Any:
    shape: tuple[Any, ...] = (2, 4) if is_open else growth.choose(_SHAPES)
    dtype = growth.choose((F32, F32, torch.float16, torch.int64))
    if is_open:
        shape = (growth.graph.add_symbol("s0", Range(2, 64)), *shape[1:])
    return growth.graph.add_input(f"x{index}", TensorType(shape, dtype))


def _finish(growth: GraphGrowth) -> None:
    """State the results of the graph, and perhaps an update."""
    graph = growth.graph
    numbers = [value for node in graph.nodes for value in node.outputs if isinstance(value.type, ScalarType)]
    leaves = [*growth.values, *growth.values[-4:], *numbers, *graph.parameters.values()]
    graph.set_outputs([growth.choose(leaves) for _ in range(growth.choose(range(1, 6)))])
    last = growth.values[-1].tensor_type
    if not last.symbols and growth.pick(True, False):
        graph.set_update(graph.add_buffer("state", last), growth.values[-1])
