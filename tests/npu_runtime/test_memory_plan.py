"""The memory of a call: how long values are kept, the peak, and what no program could go below."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from npu_ir import Graph, GraphError, TensorType, extract_ir
from npu_runtime import IRExecutor
from tests.npu_ir.corpus.case import Function

KIB = 1024  # of a tensor with 256 elements


def executor_of(function: Any, *args: Any) -> IRExecutor:
    return IRExecutor(extract_ir(Function(function), args), passes=None)


def test_the_peak_of_a_chain_is_known() -> None:
    # matmul is never done in place: input and output are there at once.
    plan = executor_of(lambda x: ((x @ x) @ x) @ x, randn(16, 16)).memory_plan()

    assert plan.live_bytes == (KIB, 2 * KIB, 2 * KIB)
    assert plan.peak_bytes == plan.lower_bound_bytes == 2 * KIB
    assert plan.peak_step == "matmul_1"
    assert [(item.value, item.first, item.last) for item in plan.lifetimes] == [
        ("matmul", 0, 1),
        ("matmul_1", 1, 2),
        ("matmul_2", 2, 3),
    ]


def test_what_is_overwritten_counts_once() -> None:
    plan = executor_of(lambda x: (x @ x).relu().exp().neg(), randn(16, 16)).memory_plan()

    (lifetime,) = plan.lifetimes
    assert lifetime.value == "matmul"
    assert lifetime.views == ("relu", "exp", "neg")
    assert plan.live_bytes == (KIB,) * 4


def test_views_count_once_and_keep_what_they_lie_in() -> None:
    plan = executor_of(lambda x: ((x @ x).t()[:4] @ x) @ x, randn(16, 16)).memory_plan()

    first, *_ = plan.lifetimes
    assert first.value == "matmul"
    assert first.bytes == KIB
    assert plan.steps[first.last] == "matmul_1"
    assert sum(item.bytes for item in plan.lifetimes) == KIB + 2 * KIB // 4


def test_what_is_returned_lives_to_the_end() -> None:
    plan = executor_of(lambda x: (x @ x, (x @ x) @ x), randn(16, 16)).memory_plan()

    assert plan.live_bytes == (KIB, 2 * KIB, 3 * KIB)
    by_name = {item.value: item.last for item in plan.lifetimes}
    assert by_name == {"matmul": 3, "matmul_1": 2, "matmul_2": 3}


def test_a_result_that_is_a_view_keeps_all_its_memory() -> None:
    plan = executor_of(lambda x: ((x @ x)[0], x.exp().sum()), randn(16, 16)).memory_plan()

    assert plan.lifetimes[0].bytes == KIB
    assert plan.lifetimes[0].last == len(plan.steps)


def test_inputs_weights_and_their_views_do_not_count() -> None:
    model = nn.Linear(16, 16)
    plan = IRExecutor(
        extract_ir(nn.Sequential(model, nn.Flatten(0)), (randn(16, 16),)), nn.Sequential(model).state_dict()
    ).memory_plan()

    assert plan.peak_bytes == KIB
    assert executor_of(lambda x: x.t()[1:], randn(16, 16)).memory_plan().peak_bytes == 0


def test_the_lower_bound_is_that_of_the_hungriest_step() -> None:
    plan = executor_of(
        lambda x: (torch.cat([x @ x, x @ x, x @ x]).sum(), x.exp()), randn(16, 16)
    ).memory_plan()

    assert plan.lower_bound_bytes == 6 * KIB
    assert plan.lower_bound_bytes <= plan.peak_bytes


def test_a_plan_is_shown_as_text_and_json() -> None:
    plan = executor_of(lambda x: ((x @ x).t() @ x).relu(), randn(512, 512)).memory_plan()

    data = json.loads(json.dumps(plan.to_dict(), allow_nan=False))

    assert data["peak_bytes"] == plan.peak_bytes == 2 * 2**20
    assert data["live_bytes"] == list(plan.live_bytes)
    assert data["lifetimes"][0]["value"] == "matmul"
    assert str(plan).splitlines()[0] == f"peak 2,097,152 bytes at {plan.peak_step}"
    assert "matmul " in str(plan)


def test_open_sizes_have_no_plan() -> None:
    graph = extract_ir(
        Function(lambda x: x.exp() + 1), (randn(4, 3),), dynamic_shapes=(({0: torch.export.Dim.AUTO},),)
    )

    with pytest.raises(GraphError, match="symbol"):
        IRExecutor(graph).memory_plan()


class Peak(TorchDispatchMode):
    """Follows how much memory is alive that was made inside: by storages, op by op."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import weakref

        result = function(*args, **(kwargs or {}))
        given = {
            item.untyped_storage()._cdata for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)
        }
        for item in tree_leaves(result):
            if isinstance(item, Tensor):
                storage = item.untyped_storage()
                key = storage._cdata
                if key not in self.alive and key not in given:
                    self.alive[key] = storage.nbytes()
                    weakref.finalize(storage, self.alive.pop, key, None)
        self.most = max(self.most, sum(self.alive.values()))
        return result


def peak_of(call: Any, x: Tensor) -> int:
    with torch.no_grad(), Peak() as peak:
        call(x)
    return peak.most


def wide_network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (8, 16, 16, 8):
        channels = layers[-3].out_channels if layers else 3
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


@pytest.mark.parametrize("passes", [None, "default"])
def test_the_peak_is_no_higher_than_that_of_eager(passes: Any) -> None:
    model, x = wide_network(), randn(1, 3, 16, 16)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes=passes)
    executor(x)

    eager, ours = peak_of(model, x), peak_of(executor, x)

    assert 0 < ours <= eager
    assert ours <= executor.memory_plan().peak_bytes <= eager


def test_a_graph_of_nothing_needs_nothing() -> None:
    graph = Graph()
    graph.set_outputs(graph.add_input("x", TensorType((2,), torch.float32)))

    plan = IRExecutor(graph).memory_plan()

    assert (plan.peak_bytes, plan.lower_bound_bytes, plan.peak_step) == (0, 0, "")
    assert "no step" in str(plan)
