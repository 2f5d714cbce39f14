"""Seeing which graphs ``torch.compile(..., backend="npu")`` runs through the executor."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import npu_runtime.interop.dynamo
from npu_ir import Graph
from npu_runtime import IRExecutor


class CompiledGraphs:
    """The graphs that were compiled, in order, and the executors that run them."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.executors: list[IRExecutor] = []

    @property
    def names(self) -> list[str]:
        return [graph.name for graph in self.graphs]

    def ops(self, index: int = 0) -> list[str]:
        return [node.op_type for node in self.graphs[index].nodes]


@pytest.fixture
def compiled_graphs(monkeypatch: pytest.MonkeyPatch) -> CompiledGraphs:
    """Return the graphs that are compiled from now on; TorchDynamo has forgotten what it compiled before."""
    torch._dynamo.reset()
    seen = CompiledGraphs()
    executor = npu_runtime.interop.dynamo.IRExecutor

    def watched(graph: Graph, *args: Any, **kwargs: Any) -> Any:
        made = executor(graph, *args, **kwargs)
        seen.graphs.append(graph)
        seen.executors.append(made)
        return made

    monkeypatch.setattr(npu_runtime.interop.dynamo, "IRExecutor", watched)
    return seen


def compiled(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """Return ``function`` compiled without a way out: what has no place in a graph is an error."""
    options = {"fallback": False, **settings.pop("options", {})}
    return torch.compile(function, backend="npu", options=options, **settings)
