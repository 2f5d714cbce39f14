"""Optimizer state: tensors that come with the weights, that a step updates, and that are not the model's."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import ones, tensor

from npu_ir import (
    Graph,
    Interpreter,
    ParseError,
    TensorType,
    WeightError,
    load_ir,
    load_weights,
    parse_ir,
    save_ir,
    to_dot,
    to_mermaid,
    to_svg,
)
from npu_ir.cli.facts import graph_facts, graph_lines
from npu_ir.interpreter.random_data import needed_weights, random_weights
from tests.support.rows import each_row

STEP = """
graph Step {
  symbol n in [1, 64]
  input %x: f32[n, 2]
  input %group0.lr: float
  param %w: f32[2]
  buffer %seen: i64[]
  state %w.step: f32[]
  state %moment: f32[2] target "w.momentum_buffer"
  const %half: f32[] = [0.5]
  call (%x, hyperparameters={"group0.lr": %group0.lr})

  %count: i64[] = aten.add.Tensor(self=%seen) {other=1}
  %gradient: f32[2] = aten.sum.dim_IntList(self=%x) {dim=[0]}
  %steps: f32[] = aten.add.Tensor(self=%w.step) {other=1}
  %kept: f32[2] = aten.mul.Tensor(self=%moment, other=%half)
  %moved: f32[2] = aten.add.Tensor(self=%kept, other=%gradient)
  %twice: float = operator.mul(a=%group0.lr) {b=2.0}
  %change: f32[2] = aten.mul.Scalar(self=%moved, other=%twice)
  %new: f32[2] = aten.sub.Tensor(self=%w, other=%change)

  update %seen = %count
  update %w.step = %steps
  update %moment = %moved
  update %w = %new
  return %change
}
"""
VECTOR = TensorType((2,), torch.float32)


def weights() -> dict[str, torch.Tensor]:
    return {"w": ones(2), "seen": tensor(3), "w.step": tensor(0.0), "w.momentum_buffer": tensor([4.0, 8.0])}


def test_the_text_form_has_state() -> None:
    graph = parse_ir(STEP)

    assert str(graph).strip() == STEP.strip()
    assert parse_ir(str(graph)) == graph


def test_state_and_a_buffer_of_one_name_make_two_graphs_that_differ() -> None:
    graphs = [Graph(), Graph()]
    graphs[0].add_state("w.exp_avg", VECTOR)
    graphs[1].add_buffer("w.exp_avg", VECTOR)

    assert graphs[0] != graphs[1]
    assert str(graphs[0]) != str(graphs[1])


def test_a_step_gives_the_new_content_of_state() -> None:
    step = Interpreter(parse_ir(STEP), weights())

    (change,), updates = step.run_flat((ones(3, 2),), {"hyperparameters": {"group0.lr": 0.25}})

    assert torch.equal(change, tensor([2.5, 3.5]))
    assert updates.keys() == {"seen", "w.step", "w.momentum_buffer", "w"}
    assert torch.equal(updates["w.momentum_buffer"], tensor([5.0, 7.0]))
    assert torch.equal(updates["w"], tensor([-1.5, -2.5]))
    assert torch.equal(updates["w.step"], tensor(1.0))
    assert torch.equal(updates["seen"], tensor(4))


def test_a_saved_step_comes_back_with_its_state(tmp_path: Path) -> None:
    graph, path = parse_ir(STEP), tmp_path / "step.json"

    save_ir(graph, path, weights={**weights(), "w.momentum_buffer": tensor([1.5, -0.0])})

    assert load_ir(path) == graph
    found = load_weights(path, graph)
    assert found.keys() == weights().keys()
    assert found["w.momentum_buffer"].tolist() == [1.5, -0.0]
    rows = json.loads(path.read_text())["arguments"]
    assert [row["target"] for row in rows if row["kind"] == "state"] == ["w.step", "w.momentum_buffer"]


def test_state_that_is_missing_is_named_with_where_it_goes() -> None:
    given = {name: tensor for name, tensor in weights().items() if name != "w.momentum_buffer"}

    with pytest.raises(
        WeightError,
        match=r"missing: w.momentum_buffer, f32\[2\] \(optimizer state: not in model.state_dict\(\), "
        r"pass it with the weights\)",
    ):
        Interpreter(parse_ir(STEP), given)


def test_state_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(ParseError, match=r"%w.step is a state: its type is a tensor type, not float"):
        parse_ir(STEP.replace("state %w.step: f32[]", "state %w.step: float"))


def test_random_state_is_never_negative() -> None:
    graph = Graph()
    matrix = TensorType((16, 16), torch.float32)
    graph.add_parameter("w", matrix)
    graph.add_state("w.exp_avg_sq", matrix)

    made = random_weights(graph, seed=0)

    assert [name for name, _ in needed_weights(graph)] == ["w", "w.exp_avg_sq"]
    assert made["w"].min() < 0
    assert 0 <= made["w.exp_avg_sq"].min() < made["w.exp_avg_sq"].max() <= 1
    assert torch.equal(made["w.exp_avg_sq"], random_weights(graph, seed=0)["w.exp_avg_sq"])


@each_row("form", [to_mermaid, to_dot, to_svg])
def test_state_is_drawn_where_weights_are(form: Callable[..., str]) -> None:
    graph = parse_ir(STEP)

    assert "w.momentum_buffer" in form(graph, weights=True)


def test_of_many_updates_the_first_are_named() -> None:
    facts = {**graph_facts(parse_ir(STEP)), "updates": [f"w{index}" for index in range(1014)]}

    assert graph_lines(facts)["updates"].startswith("w0, w1, w2, ")
    assert graph_lines(facts)["updates"].endswith(", w11, ... and 1,002 more")
    assert graph_lines({**facts, "updates": ["w0", "w1"]})["updates"] == "w0, w1"


def test_state_is_counted_apart() -> None:
    facts = graph_facts(parse_ir(STEP))

    assert facts["optimizer_state"] == {"count": 2, "elements": 3, "bytes": 12, "bytes_by_dtype": {"f32": 12}}
    assert graph_lines(facts)["optimizer state"] == "2 tensors, 3 elements, 12 B f32"
