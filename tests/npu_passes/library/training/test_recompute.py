"""Values are recomputed, bit by bit, until memory is within a budget; what is not possible is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from npu_ir import Graph, OpNode, TensorType, Value, execute_ir, parse_ir
from npu_ir.core.structure import flatten
from npu_passes import PassError, PassManager, parse_passes
from npu_passes.library import Recompute
from npu_passes.library.training.recompute.liveness import Program, Simulation
from npu_passes.manager.checked_mode import Checked
from npu_passes.testing import check_pass
from tests.support.passes.step_cases import Step, assert_equal, count
from tests.support.tiers import examples

TANH, LINEAR = "aten.tanh.default", "aten.addmm.default"
ROWS = 512  # activations are much larger than weights

# Everything that is read late is read through a view; `third` needs values that are gone by then.
VIEWS = """
graph views {
  input %x: f32[64, 32]
  %first: f32[64, 32] = aten.sin.default(self=%x)
  %turned: f32[32, 64]@[1, 32] = aten.t.default(self=%first)
  %second: f32[64, 32] = aten.cos.default(self=%first)
  %gone: f32[64, 32] = aten.exp.default(self=%second)
  %third: f32[64, 32] = aten.tanh.default(self=%gone)
  %flat: f32[2048] = aten.view.default(self=%third) {size=[2048]}
  %square: f32[64, 64] = aten.mm.default(self=%third, mat2=%turned)
  %fourth: f32[64, 64] = aten.sin.default(self=%square)
  %fifth: f32[64, 64] = aten.cos.default(self=%fourth)
  %sum: f32[] = aten.sum.default(self=%fifth)
  %whole: f32[32, 64]@[1, 32] = aten.mul.Tensor(self=%turned, other=%sum)
  %scaled: f32[2048] = aten.mul.Tensor(self=%flat, other=%sum)
  %last: f32[] = aten.sum.default(self=%scaled)
  %result: f32[] = aten.sum.default(self=%whole)
  return (%result, %last)
}
"""
CHANCES = """
graph chances {
  input %x: f32[64, 64]
  %noise: f32[64, 64] = aten.rand_like.default(self=%x)
  %returned: f32[64, 64] = aten.exp.default(self=%x)
  %kept: f32[64, 64] = aten.sin.default(self=%x)
  %early: f32[64, 64] = aten.mul.Tensor(self=%kept, other=%noise)
  %product: f32[64, 64] = aten.mm.default(self=%early, mat2=%returned)
  %middle: f32[64, 64] = aten.tanh.default(self=%product)
  %sum: f32[] = aten.sum.default(self=%middle)
  %later: f32[64, 64] = aten.mul.Tensor(self=%kept, other=%sum)
  %latest: f32[64, 64] = aten.mul.Tensor(self=%later, other=%noise)
  return (%returned, %latest)
}
"""


def perceptron(layers: int = 8) -> Step:
    parts = [part for _ in range(layers) for part in (nn.Linear(32, 32), nn.Tanh())]
    return Step(nn.Sequential(*parts), F.mse_loss, torch.randn(ROWS, 32), torch.randn(ROWS, 32))


def peak_of(graph: Graph) -> int:
    return Simulation(Program(graph), {}).peak


def within(graph: Graph, share: float) -> tuple[Graph, int]:
    """Return the graph with values recomputed within a share of its peak, and that budget."""
    budget = int(peak_of(graph) * share)
    return PassManager(Recompute(budget_bytes=budget)).run(graph).graph, budget


def held_to_its_promises(graph: Graph, args: Any, share: float) -> int:
    budget = int(peak_of(graph) * share)
    return check_pass(Recompute(budget_bytes=budget), graph, data=Checked(calls=[(args, {})]))


@pytest.mark.smoke
def test_values_of_the_forward_pass_are_computed_again_until_memory_fits() -> None:
    item = perceptron()

    graph, budget = within(item.graph, 0.7)

    assert peak_of(item.graph) > budget >= peak_of(graph)
    assert count(graph, TANH) > count(item.graph, TANH)
    assert_equal(execute_ir(graph, item.args), item.eager(*item.args))
    assert held_to_its_promises(item.graph, item.args, 0.7) == 1


def test_whole_segments_are_recomputed_for_small_budgets() -> None:
    item = perceptron(16)

    graph, budget = within(item.graph, 0.6)

    assert peak_of(graph) <= budget
    assert count(graph, LINEAR) > count(item.graph, LINEAR)
    assert_equal(execute_ir(graph, item.args), item.eager(*item.args))


def test_a_node_is_computed_again_once_at_most() -> None:
    item = perceptron(16)

    graph, _ = within(item.graph, 0.6)

    assert count(graph, LINEAR) <= 2 * count(item.graph, LINEAR)
    assert count(graph, TANH) <= 2 * count(item.graph, TANH)


def test_what_fits_stays_as_it_is() -> None:
    item = perceptron()

    assert held_to_its_promises(item.graph, item.args, 1.0) == 0
    assert check_pass(Recompute, item.graph, data=Checked(calls=[(item.args, {})])) == 0


def test_views_are_made_again_with_what_they_are_views_of() -> None:
    graph, x = parse_ir(VIEWS), torch.randn(64, 32)
    lowest = Recompute(budget_bytes=1).fit(graph.clone()).peak_after

    result = PassManager(Recompute(budget_bytes=lowest)).run(graph).graph

    assert count(result, "aten.sin.default") == count(graph, "aten.sin.default") + 1
    assert count(result, "aten.t.default") == 2
    assert_equal(execute_ir(result, (x,)), execute_ir(graph, (x,)))
    assert check_pass(Recompute(budget_bytes=lowest), graph, data=Checked(calls=[((x,), {})])) == 1


def test_what_nothing_has_read_before_only_runs_later() -> None:
    graph = parse_ir(VIEWS)
    flat = next(graph.nodes_of("aten.view.default"))

    result, _ = within(graph, 0.8)

    assert count(result, "aten.view.default") == 1
    assert [item.op_type for item in result.nodes].index("aten.view.default") >= graph.nodes.index(flat)


def test_random_values_and_results_are_kept() -> None:
    graph, x = parse_ir(CHANCES), torch.randn(64, 64)
    table = Recompute(budget_bytes=1).fit(edited := graph.clone())

    assert table.peak_after < table.peak_before
    assert count(edited, "aten.rand_like.default") == count(edited, "aten.exp.default") == 1
    why = {row.node: row.why for row in table.rows}
    assert why["noise"] == "it is random"
    assert why["returned"] == "it is a result"
    results = []
    for found in (graph, edited):
        torch.manual_seed(5)
        results.append(execute_ir(found, (x,)))
    assert_equal(*results)


def test_the_table_has_what_is_alive_at_the_peak_and_why_it_is_kept_or_recomputed() -> None:
    item = perceptron()
    budget = int(peak_of(item.graph) * 0.7)

    journal = PassManager(Recompute(budget_bytes=budget)).run(item.graph).journal
    table = Recompute(budget_bytes=budget).fit(item.graph)

    kept = {(row.node, row.why) for row in table.rows if not row.is_recomputed}
    assert {(entry.node, entry.reason) for entry in journal.refusals} == kept
    assert {entry.rule for entry in journal.rewrites} == {"second run"}
    assert (table.budget_bytes, table.peak_after) == (budget, peak_of(item.graph))
    assert sum(row.bytes for row in table.rows) == table.peak_before > budget
    assert [row.bytes for row in table.rows] == sorted((row.bytes for row in table.rows), reverse=True)
    recomputed = [row for row in table.rows if row.is_recomputed]
    assert 0 < len(recomputed) <= table.nodes < len(table.rows)
    assert all("ms per MiB" in row.why for row in recomputed)
    assert any(row.why.startswith("it fits, and recomputing it takes") for row in table.rows)
    text = str(table)
    assert (
        f"memory budget {budget:,} bytes: peak {table.peak_before:,} before, {table.peak_after:,} after"
        in text
    )
    assert f"{table.nodes} nodes run twice" in text
    assert all(row.node in text for row in table.rows)
    assert f"recomputed  {sum(row.bytes for row in recomputed):>14,}" in "\n".join(table.summary())


def test_operations_of_second_runs_are_counted() -> None:
    item = perceptron(16)

    table = Recompute(budget_bytes=int(peak_of(item.graph) * 0.6)).fit(item.graph)

    added = count(item.graph, LINEAR) - 16
    assert table.flops == added * 2 * ROWS * 32 * 32 > 0
    assert 0 < table.seconds < 1


def test_a_budget_that_cannot_be_reached_is_refused_with_one_that_can() -> None:
    item = perceptron()

    with pytest.raises(
        PassError, match="no recomputation brings the intermediate values down to 1,000 bytes"
    ) as caught:
        PassManager(Recompute(budget_bytes=1000)).run(item.graph)

    lowest = Recompute(budget_bytes=1000).fit(item.graph.clone()).peak_after
    assert f"raise the budget to {lowest:,} bytes" in str(caught.value)
    assert peak_of(within(item.graph, lowest / peak_of(item.graph))[0]) <= lowest


def test_budgets_are_not_negative() -> None:
    with pytest.raises(PassError, match="a budget of memory is not negative: -1"):
        Recompute(budget_bytes=-1)


def test_sizes_have_to_be_fixed() -> None:
    graph = parse_ir("""
    graph open {
      symbol s0 in [2, 9]
      input %x: f32[s0]
      %y: f32[s0] = aten.sin.default(self=%x)
      return (%y,)
    }
    """)

    with pytest.raises(PassError, match=r"requires a condition that does not hold: %x is f32\[s0\]"):
        PassManager(Recompute(budget_bytes=1000)).run(graph)
    assert str(PassManager(Recompute).run(graph).graph) == str(graph)


def test_a_graph_of_views_alone_takes_no_memory() -> None:
    graph = parse_ir("""
    graph view {
      input %x: f32[4, 4]
      %y: f32[4, 4]@[1, 4] = aten.t.default(self=%x)
      return (%y,)
    }
    """)

    table = Recompute(budget_bytes=1).fit(graph)

    assert (table.peak_before, table.peak_after, table.nodes) == (0, 0, 0)


def test_budgets_have_a_text_form() -> None:
    assert parse_passes("recompute{budget_bytes=1000}") == [Recompute(budget_bytes=1000)]


UNARY = ("aten.sin.default", "aten.tanh.default", "aten.t.default", "aten.clone.default")
BINARY = ("aten.add.Tensor", "aten.mul.Tensor", "aten.mm.default")


@st.composite
def tangles(draw: st.DrawFn) -> Graph:
    """Return a graph of square matrices in which later nodes read any earlier ones, views among them."""
    graph = Graph("tangle")
    square = TensorType((16, 16), torch.float32)
    values = [graph.add_input("x", square), graph.add_input("y", square)]

    def add(op_type: str, *inputs: Value) -> None:
        names = ("self", "mat2" if "mm" in op_type else "other")[: len(inputs)]
        source = inputs[0].tensor_type
        type = (
            replace(source, strides=(1, 16)) if op_type == "aten.t.default" and not source.strides else square
        )
        node: OpNode = graph.insert(op_type, inputs, operands=names, types=type)
        values.append(node.outputs[0])

    for _ in range(draw(st.integers(3, 25))):
        op_type = draw(st.sampled_from(UNARY + BINARY))
        chosen = draw(
            st.lists(
                st.sampled_from(values), min_size=1 + (op_type in BINARY), max_size=1 + (op_type in BINARY)
            )
        )
        if not (
            op_type in ("aten.sin.default", "aten.tanh.default", "aten.clone.default")
            and chosen[0].tensor_type.strides
        ):
            add(op_type, *chosen)
    results = draw(st.lists(st.sampled_from(values[2:] or values), min_size=1, max_size=3, unique=True))
    graph.set_results(*flatten(tuple(results))[::-1])
    return graph


@given(graph=tangles(), share=st.floats(0.2, 1.0))
@examples(60, suppress_health_check=list(HealthCheck), deadline=None)
def test_any_graph_computes_the_same_and_takes_no_more_than_the_table_says(
    graph: Graph, share: float
) -> None:
    args = (torch.randn(16, 16), torch.randn(16, 16))
    edited = graph.clone()

    table = Recompute(budget_bytes=max(int(peak_of(graph) * share), 1)).fit(edited)

    edited.check()
    assert peak_of(edited) <= table.peak_after <= table.peak_before == peak_of(graph)
    for found, expected in zip(execute_ir(edited, args), execute_ir(graph, args), strict=True):
        assert torch.equal(found, expected)
