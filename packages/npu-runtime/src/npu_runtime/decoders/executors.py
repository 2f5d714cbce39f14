"""The executors of a decoder: for each number of tokens one, which share the cache; one of the encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from npu_ir import Graph
from npu_ir.core.node import external_names
from npu_ir.plugins.backend import Backend
from npu_runtime.decoders.extract import DecoderGraphs
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.executor.options import Passes


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """The options of all executors of a decoder; see `IRExecutor`."""

    backend: str | Backend | Sequence[str | Backend] | None
    passes: Passes
    device: torch.device | str | None
    threads: int | None


def make_executors(
    graphs: DecoderGraphs, weights: Mapping[str, Tensor], options: ExecutorOptions
) -> dict[int, IRExecutor]:
    """Return the executor for calls of each number of tokens, that for 1 first.

    Args:
        graphs: The graphs of the model.
        weights: The weights by name.
        options: The options of all of them.
    """
    made: dict[int, IRExecutor] = {}
    for count, graph in sorted(graphs.by_count.items()):
        made[count] = _make(graph, weights, graphs.constants, options, share=made.get(1))
    return made


def make_encoder(
    graphs: DecoderGraphs, weights: Mapping[str, Tensor], options: ExecutorOptions
) -> IRExecutor | None:
    """Return the executor of the encoder; None if the model has none. Arguments as for `make_executors`."""
    if graphs.encoder is None:
        return None
    known = {name for value in graphs.encoder.arguments for name in external_names(value)}
    constants = {name: item for name, item in graphs.constants.items() if name in known}
    # Prompts come in any length, once each.
    return _make(graphs.encoder, weights, constants, options, max_fixed_sizes=0)


def _make(
    graph: Graph,
    weights: Mapping[str, Tensor],
    constants: Mapping[str, Tensor],
    options: ExecutorOptions,
    **others: Any,
) -> IRExecutor:
    return IRExecutor(
        graph,
        weights,
        constants=constants,
        backend=options.backend,
        passes=options.passes,
        device=options.device,
        threads=options.threads,
        **others,
    )
