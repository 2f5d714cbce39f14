"""The pipelines for training steps: fewer ops, the same training."""

from typing import Any

import torch

from npu_ir import Graph
from npu_passes import PassManager, all_pipelines, parse_passes
from npu_passes.library import PASSES
from npu_passes.manager.checked_mode import relative_error
from npu_passes.ops.training import ADAM_STEP, ADAM_STEP_TENSOR_LR
from npu_passes.testing import check_pass
from tests.support.passes.training_graphs import data_of, ops, step_graph, trained
from tests.support.rows import each_row

# By pipeline: the last op of a step.
PIPELINES = {
    "train": ADAM_STEP,
    "train-fuse": ADAM_STEP,
    "train-device": ADAM_STEP_TENSOR_LR,
    "train-tensors": "aten._foreach_addcdiv.Scalar",
}


def after(name: str, graph: Graph) -> Graph:
    return PassManager(parse_passes(all_pipelines()[name].passes)).run(graph).graph


@each_row("name, last", PIPELINES.items())
def test_steps_train_as_before(name: str, last: Any) -> None:
    graph = step_graph("adamw, all", passes="", dtype=torch.float64)

    found = after(name, graph)

    now, before = trained(found), trained(graph)
    assert max(relative_error(now[key], before[key]) for key in before) < 1e-7
    assert ops(found)[-1] == last


@each_row("name", list(PIPELINES))
def test_a_pipeline_leaves_nothing_to_do(name: Any) -> None:
    found = after(name, step_graph("sgd, all", passes=""))

    assert after(name, found) == found


@each_row("item", PASSES)
def test_every_pass_keeps_its_promises_on_a_step(item: Any) -> None:
    graph = step_graph("adamw, all", passes="")

    check_pass(item, graph, data=data_of(graph))
