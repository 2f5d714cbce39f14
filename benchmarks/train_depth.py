"""Growth of tracing and planning of a training step with the depth of the network."""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import torch
from train_models import OPTIMIZERS, transformer

DEPTHS = [6, 12, 24, 48]
ROUNDS = 3


def run(depths: list[int]) -> list[dict[str, Any]]:
    """Return per depth the tracing seconds and graph nodes; medians of rounds, the depths in turns."""
    torch.set_num_threads(1)
    trace(1)  # loads what is loaded once
    times: dict[int, list[float]] = {depth: [] for depth in depths}
    nodes: dict[int, int] = {}
    for _ in range(ROUNDS):
        for depth in depths:
            nodes[depth], seconds = trace(depth)
            times[depth].append(seconds)
    return [
        {"layers": depth, "nodes": nodes[depth], "seconds": statistics.median(times[depth])}
        for depth in depths
    ]


def trace(depth: int) -> tuple[int, float]:
    """Return the number of nodes of a transformer's step at this depth, and its tracing seconds."""
    from npu_runtime.training import compile_ir

    model, loss_fn, batch = transformer(depth, width=32, length=16, batch=2)
    optimizer = OPTIMIZERS["adam"][1](model.parameters())
    gc.collect()
    start = time.perf_counter()
    graph = compile_ir(model, optimizer, loss_fn, batch)
    return len(graph), time.perf_counter() - start


def growth(depths: list[dict[str, Any]]) -> float | None:
    """Return by how much a layer costs more at the end than at the beginning: 1 where tracing is linear.

    The seconds per layer between the two deepest networks, relative to those between the two shallowest: what
    tracing costs whatever the depth is in neither.
    """
    if len(depths) < 3:
        return None
    first, last = (_per_layer(*pair) for pair in (depths[:2], depths[-2:]))
    return last / first


def _per_layer(shallow: dict[str, Any], deep: dict[str, Any]) -> float:
    return (deep["seconds"] - shallow["seconds"]) / (deep["layers"] - shallow["layers"])
