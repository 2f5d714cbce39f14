"""Seeing which graphs ``torch.compile(..., backend="npu")`` runs through the executor, and their results."""

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree

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


def assert_same_calls(
    function: Callable[..., Any],
    *calls: tuple[Any, ...],
    under: Callable[[], contextlib.AbstractContextManager[Any]] = torch.no_grad,
    **settings: Any,
) -> None:
    """Fail unless the compiled function returns, changes and draws what the function itself does."""
    ours = compiled(copy.deepcopy(function), **settings)
    eager = copy.deepcopy(function)
    for call in calls:
        left, right = copy.deepcopy(call), copy.deepcopy(call)
        with under():
            torch.manual_seed(3)
            wanted = eager(*left)
            after = torch.get_rng_state()
            torch.manual_seed(3)
            actual = ours(*right)
        assert torch.equal(torch.get_rng_state(), after), "another number of random numbers was drawn"
        pairs = zip(*(_pytree.tree_leaves(tree) for tree in ((actual, right), (wanted, left))), strict=True)
        for found, expected in pairs:
            if not isinstance(expected, torch.Tensor):
                assert (type(found), found) == (type(expected), expected)
                continue
            assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
            assert found.requires_grad == expected.requires_grad
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
