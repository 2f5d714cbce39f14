"""On any graph and backend, an executor and a planned program return what the interpreter does."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given

from npu_cuda import _C
from npu_cuda.backend import HostBackend
from npu_cuda.backend.selection import select_ops
from npu_ir import Graph, OpNode
from npu_ir.core.storage import copy_with_strides, has_overlapping_elements
from npu_ir.interpreter.random_data import random_call, random_weights
from npu_runtime import Backend
from npu_runtime.planned import PlannedProgram, plan
from npu_runtime.probing.storage import with_stated_strides
from tests.support.backends.choosing_backend import Some
from tests.support.corpus.comparison import assert_same
from tests.support.memory_puzzles import check, interpreted, memory_puzzles
from tests.support.random_models import models
from tests.support.tiers import examples

# Complex numbers are multiplied by other instructions where a result lies elsewhere in memory (torch 2.13).
CLOSE = 1e-4
few = examples(10, suppress_health_check=list(HealthCheck))


SUMS = {4, *range(13, 17), *range(200, 280), *range(370, 390), 432}  # also of products
ROUNDED = {"Exp", "Gemm", "Pow", "Sigmoid", "Sin"}


class ExactHost(HostBackend):
    """The native ops on the CPU whose results have the very bits that PyTorch's have."""

    def supports(self, node: OpNode) -> str | None:
        ops = select_ops(node, self.name)
        if isinstance(ops, str):
            return ops
        if any(op.kind in ROUNDED or int(_C.kinds().get(op.kind, 0)) in SUMS for op in ops):
            return "sums are in another order, and functions are approximated by others"
        dtypes = {value.tensor_type.dtype for value in (*node.inputs, *node.outputs)}
        return "a cast makes another kind of NaN" if len(dtypes) > 1 else None


BACKENDS = [
    pytest.param([ExactHost()], id="host"),
    pytest.param([Some("first", 1), Some("second", 2)], id="two that share the nodes"),
]


def is_native(backends: list[Backend]) -> bool:
    return any(isinstance(item, HostBackend) for item in backends)


on_backends = pytest.mark.parametrize("backends", BACKENDS)


@on_backends
@given(graph=models())
@few
def test_a_random_graph_gives_the_same_on_backends(graph: Graph, backends: list[Backend]) -> None:
    check(graph, backend=backends, any_nan=is_native(backends))


@on_backends
@given(graph=memory_puzzles())
@few
def test_views_and_copies_give_the_same_on_backends(graph: Graph, backends: list[Backend]) -> None:
    check(graph, backend=backends, tolerance=CLOSE)


def check_planned(graph: Graph, backends: list[Backend], tolerance: float = 0.0) -> None:
    """Compare a run over planned memory with the interpreter."""
    assume(
        not any(has_overlapping_elements(target.type) for target in graph.updates)
    )  # nothing can be written there
    given = random_weights(graph, seed=1)
    args, kwargs = random_call(graph, seed=2)
    expected, updates = interpreted(graph, given, args, kwargs)
    types = {**graph.parameters, **graph.buffers}
    held: dict[str, Any] = {
        key: copy_with_strides(with_stated_strides(item, types[key].type)) for key, item in given.items()
    }
    program = PlannedProgram(plan(graph, backend=backends), held)
    torch.manual_seed(3)

    found = program.run(*program.load(tuple(args), kwargs))

    any_nan = is_native(backends)
    assert_same(list(found), expected, "the result", tolerance, any_nan=any_nan)
    state = {name: program.state[name] for name in updates}
    assert_same(state, updates, "what the run updates", tolerance, any_nan=any_nan)


@on_backends
@given(graph=models())
@few
def test_a_random_graph_over_planned_memory_gives_the_same(graph: Graph, backends: list[Backend]) -> None:
    check_planned(graph, backends)


@on_backends
@given(graph=memory_puzzles())
@few
def test_views_and_copies_over_planned_memory_give_the_same(graph: Graph, backends: list[Backend]) -> None:
    check_planned(graph, backends, CLOSE)
