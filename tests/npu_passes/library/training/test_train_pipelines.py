"""The pipelines for training steps: fewer ops, the same training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from npu_ir import Graph, ScalarType
from npu_passes import PassManager, all_pipelines, parse_passes
from npu_passes.library import PASSES
from npu_passes.library.training.scalars_to_tensors import tensor_inputs
from npu_passes.manager.checked_mode import relative_error
from npu_passes.ops.training import ADAM_STEP, ADAM_STEP_TENSOR_LR
from npu_passes.testing import check_pass
from npu_runtime.training import compile_ir
from tests.support.passes.training_graphs import data_of, maker, ops, step_graph, trained

# By pipeline: the last op of a step.
PIPELINES = {
    "train": ADAM_STEP,
    "train-fuse": ADAM_STEP,
    "train-device": ADAM_STEP_TENSOR_LR,
    "train-tensors": "aten._foreach_addcdiv.Scalar",
}


def after(name: str, graph: Graph) -> Graph:
    return PassManager(parse_passes(all_pipelines()[name].passes)).run(graph).graph


def test_steps_train_as_before(subtests: pytest.Subtests) -> None:
    for name, last in PIPELINES.items():
        with subtests.test(name=name):
            graph = step_graph("adamw, all", passes="", dtype=torch.float64)

            found = after(name, graph)

            now, before = trained(found), trained(graph)
            assert max(relative_error(now[key], before[key]) for key in before) < 1e-7
            assert ops(found)[-1] == last


def test_a_pipeline_leaves_nothing_to_do(subtests: pytest.Subtests) -> None:
    for name in PIPELINES:
        with subtests.test(name=name):
            found = after(name, step_graph("sgd, all", passes=""))

            assert after(name, found) == found


def test_every_number_of_a_step_becomes_a_tensor() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(2, 3))
    batch = (torch.randn(6, 1, 2, 2), torch.randn(6, 3))
    graph = compile_ir(net, maker("adamw, all")(list(net.parameters())), nn.functional.mse_loss, batch)

    found = tensor_inputs(after("train-tensors", graph))

    found.check()
    assert [str(value.type) for value in found.inputs if value.name.startswith("group")] == ["f64[]"] * 5
    assert [
        value.name for node in found.nodes for value in node.inputs if isinstance(value.type, ScalarType)
    ] == []


def test_every_pass_keeps_its_promises_on_a_step(subtests: pytest.Subtests) -> None:
    for item in PASSES:
        with subtests.test(item=item):
            graph = step_graph("adamw, all", passes="")

            check_pass(item, graph, data=data_of(graph))
