"""Refusals of an executor, at construction and at calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from npu_ir import ExecutionError, Graph, NpuError, TensorType, WeightError, extract_ir
from npu_passes import PassError
from npu_runtime import BackendError, IRExecutor
from tests.support.corpus.case import Function


def linear_graph() -> tuple[Graph, dict[str, torch.Tensor]]:
    model = nn.Linear(3, 2)
    return extract_ir(model, (torch.zeros(1, 3),)), model.state_dict()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param(
            {"device": "nope"}, ExecutionError, r"cannot use the device 'nope' here: ", id="no-device"
        ),
        pytest.param(
            {"weights": 5}, WeightError, r"a state_dict or the path of a file, not int", id="weights"
        ),
        pytest.param({"passes": 5}, PassError, r"5 names no passes", id="passes"),
        pytest.param({"passes": "nope"}, PassError, r"nope", id="pass-name"),
        pytest.param({"backend": 5}, BackendError, r"5 is not a backend", id="backend"),
        pytest.param({"backend": [5]}, BackendError, r"5 is not a backend", id="backends"),
        pytest.param({"backend": "nope"}, BackendError, r"there is no backend 'nope'", id="backend-name"),
        pytest.param({"threads": 0}, ExecutionError, r"at least one thread, not 0", id="threads"),
        pytest.param({"threads": "2"}, ExecutionError, r"at least one thread, not '2'", id="threads-text"),
    ],
)
def test_an_executor_is_not_made_of_this(
    options: dict[str, Any], error: type[NpuError], message: str
) -> None:
    graph, weights = linear_graph()

    with pytest.raises(error, match=message):
        IRExecutor(graph, **{"weights": weights, **options})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_a_device_that_is_not_here_is_refused() -> None:
    graph, weights = linear_graph()

    with pytest.raises(ExecutionError, match="cannot use the device 'cuda' here"):
        IRExecutor(graph, weights, device="cuda")


def test_the_pipeline_for_cpus_runs_on_cpus_only() -> None:
    graph, weights = linear_graph()
    empty = {key: tensor.to("meta") for key, tensor in weights.items()}

    with pytest.raises(
        ExecutionError, match=r"(?s)'cpu' is for CPUs, and the executor runs on meta.*passes=\"default\""
    ):
        IRExecutor(graph, weights, passes="cpu", device="meta")
    with pytest.raises(ExecutionError, match="'train-cpu' is for CPUs, and the executor runs on meta"):
        IRExecutor(graph, empty, passes="train-cpu")


def test_an_op_that_only_cpus_have_is_refused_elsewhere() -> None:
    graph, row = Graph(), TensorType((2, 2), torch.float32)
    x = graph.add_input("x", row)
    graph.set_outputs(graph.insert("aten.mkldnn_linear.default", [x, x], types=row).outputs[0])

    with pytest.raises(
        ExecutionError,
        match=r"only CPUs have aten\.mkldnn_linear\.default, and the executor runs on meta\n  at: node",
    ):
        IRExecutor(graph, device="meta", passes=None)


def test_weights_that_are_fake_are_refused() -> None:
    graph, weights = linear_graph()
    mode = FakeTensorMode()

    with pytest.raises(WeightError, match=r"the weight 'weight' is a FakeTensor: it has no data\n"):
        IRExecutor(graph, {key: mode.from_tensor(tensor) for key, tensor in weights.items()})


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_whoever_observes_a_run_cannot_advance_its_buffers() -> None:
    model, x = Counter(), torch.ones(2)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    with pytest.raises(ExecutionError, match="called from within one of its own calls"):
        executor.run((x,), on_node=lambda node, outputs: executor(x))

    assert torch.equal(executor(x), torch.ones(2))


def test_whoever_observes_a_run_without_buffers_may_call_the_executor() -> None:
    x = torch.ones(2)
    executor = IRExecutor(extract_ir(Function(torch.exp), (x,)), {})
    seen: list[torch.Tensor] = []

    executor.run((x,), on_node=lambda node, outputs: seen.append(executor(x)))

    assert torch.equal(seen[0], torch.exp(x))
