"""Planned memory: a run allocates nothing, allocations do not overlap, and the plan lists them."""

import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from npu_ir import ExecutionError, execute_ir, parse_ir
from npu_runtime import compile_and_capture
from npu_runtime.planned import PlannedProgram, plan
from npu_runtime.planned.arena import Span, assign_offsets, lower_bound

STEP = """
graph step {
  input %x: f32[64, 8]
  input %y: f32[64, 8]
  param %w: f32[8, 8]
  param %b: f32[8]
  %t: f32[8, 8]@[1, 8] = aten.t.default(self=%w)
  %addmm: f32[64, 8] = aten.addmm.default(self=%b, mat1=%x, mat2=%t)
  %relu: f32[64, 8] = aten.relu.default(self=%addmm)
  %error: f32[64, 8] = aten.sub.Tensor(self=%relu, other=%y)
  %square: f32[64, 8] = aten.mul.Tensor(self=%error, other=%error)
  %loss: f32[] = aten.sum.dim_IntList(self=%square) {dim=[0, 1]}
  %grad: f32[64, 8] = aten.threshold_backward.default(grad_output=%error, self=%relu) {threshold=0}
  %grad_t: f32[8, 64]@[1, 8] = aten.t.default(self=%grad)
  %w_grad: f32[8, 8] = aten.mm.default(self=%grad_t, mat2=%x)
  %b_grad: f32[8] = aten.sum.dim_IntList(self=%grad) {dim=[0]}
  %new.0: f32[8, 8], %new.1: f32[8] = aten._foreach_add.List(self=[%w, %b], other=[%w_grad, %b_grad]) \
{alpha=-0.01}
  update %w = %new.0
  update %b = %new.1
  return (%loss,)
}
"""
SUM = """
graph sum_of_products {
  input %x: f32[64, 8]
  input %y: f32[64, 8]
  prologue {
    %one: f32[] = aten.full.default() {size=[], fill_value=1, dtype=f32}
    %ones: f32[64, 8]@[0, 0] = aten.expand.default(self=%one) {size=[64, 8]}
  }
  %product: f32[64, 8] = aten.mul.Tensor(self=%x, other=%y)
  %loss: f32[] = aten.sum.default(self=%product)
  %grad: f32[64, 8] = aten.mul.Tensor(self=%ones, other=%y)
  return (%loss, %grad)
}
"""


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"w": torch.randn(8, 8), "b": torch.randn(8)}


def test_runs_allocate_nothing() -> None:
    planned = plan(parse_ir(STEP))
    program = PlannedProgram(planned, weights())
    program(torch.randn(64, 8), torch.randn(64, 8))

    assert planned.made_bytes == 0
    assert allocated_by(program) == []


UNKNOWN = """
graph chances {
  input %x: f32[64, 8]
  input %y: f32[64, 8]
  %each: f32[64, 8] = aten.binary_cross_entropy.default(self=%x, target=%y) {reduction=0}
  return (%each,)
}
"""


def test_what_an_op_makes_of_which_nothing_is_known_counts_as_allocated() -> None:
    planned = plan(parse_ir(UNKNOWN))
    (each,) = (item for item in planned.buffers if item.value == "each")

    assert (each.kind, each.why) == ("made", "nothing is known of what the op does with memory")
    assert planned.made_bytes == planned.peak_bytes - planned.arena_bytes == 64 * 8 * 4


NORMS = """
graph norms {
  input %x: f32[64, 8]
  %one.0: f32[64, 8], %one.1: f32[64, 1], %one.2: f32[64, 1] = aten.native_layer_norm.default(input=%x) \
{normalized_shape=[8], eps=0.1}
  %sin: f32[64, 8] = aten.sin.default(self=%one.0)
  %two.0: f32[64, 8], %two.1: f32[64, 1], %two.2: f32[64, 1] = aten.native_layer_norm.default(input=%sin) \
{normalized_shape=[8], eps=0.1}
  %cos: f32[64, 8] = aten.cos.default(self=%two.0)
  return (%cos,)
}
"""


def test_what_is_allocated_in_turn_counts_once_for_the_peak() -> None:
    planned = plan(parse_ir(NORMS))

    assert planned.made_bytes == 2 * (64 * 8 + 2 * 64) * 4
    assert planned.peak_bytes == planned.arena_bytes + planned.made_bytes // 2


def allocated_by(program: PlannedProgram, *numbers: float) -> list[str]:
    """Return the names of what allocates in a few runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        for _ in range(20):
            program.run(*numbers)
    return [event.name for event in seen.events() if event.cpu_memory_usage > 0]


def test_a_sum_of_everything_and_a_gradient_that_is_expanded_allocate_nothing() -> None:
    graph, inputs = parse_ir(SUM), (torch.randn(64, 8), torch.randn(64, 8))
    planned = plan(graph)
    program = PlannedProgram(planned)
    results = program(*inputs)

    assert all(map(torch.equal, results, execute_ir(graph, inputs)))
    assert {item.kind for item in planned.buffers} == {"input", "constant", "arena"}
    assert allocated_by(program) == []


def test_a_step_with_a_loss_of_one_number_allocates_nothing() -> None:
    for optimizer, loss in (
        (torch.optim.Adam, lambda p, y: (p * y).sum()),
        (torch.optim.SGD, lambda p, y: F.cross_entropy(p, y.argmax(-1))),
        (torch.optim.AdamW, lambda p, y: F.cross_entropy(p, y.argmax(-1))),
    ):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        batch = torch.randn(32, 8), torch.randn(32, 4)
        artifact = compile_and_capture(
            model, optimizer(model.parameters(), lr=0.1), loss, batch, capture="require"
        )
        assert artifact.program is not None
        assert artifact.plan is not None

        assert artifact.plan.made_bytes == 0, optimizer
        assert allocated_by(artifact.program, *artifact.example_numbers) == [], optimizer


def test_the_plan_says_where_each_value_is() -> None:
    planned = plan(parse_ir(STEP))
    kinds = {item.value: (item.kind, item.shares) for item in planned.buffers}

    assert kinds["x"] == ("input", "")
    assert kinds["w"] == ("state", "")
    assert kinds["t"] == ("view", "w")
    assert kinds["relu"] == ("arena", "addmm")
    assert kinds["new.0"] == ("state", "w")
    assert planned.arena_bytes <= 1.1 * planned.lower_bound_bytes
    assert json.loads(json.dumps(planned.to_dict()))["arena_bytes"] == planned.arena_bytes
    assert "relu" in str(planned)
    assert "in addmm" in str(planned)


def test_values_that_are_needed_at_once_do_not_overlap() -> None:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, 40, (60, 3), generator=generator).tolist()
    spans = [Span(size * 33, first, first + length % 9) for size, first, length in numbers]

    offsets, size = assign_offsets(spans)

    for index, (span, start) in enumerate(zip(spans, offsets, strict=True)):
        assert start % 64 == 0
        assert start + span.bytes <= size
        for other, begin in zip(spans[:index], offsets[:index], strict=True):
            meet = span.first <= other.last and other.first <= span.last
            assert not meet or start + span.bytes <= begin or begin + other.bytes <= start
    assert lower_bound(spans) <= size <= 1.1 * lower_bound(spans)


def test_arguments_that_do_not_fit_are_refused_and_nothing_is_copied() -> None:
    program, x = PlannedProgram(plan(parse_ir(STEP)), weights()), torch.ones(64, 8)

    (loss,) = program(x, x)  # one tensor may be passed twice
    with pytest.raises(ExecutionError, match=r"input %y is f32\[64, 7\], the graph needs f32\[64, 8\]"):
        program.load((torch.zeros(64, 8), torch.zeros(64, 7)))

    assert torch.equal(loss, execute_ir(parse_ir(STEP), (x, x), weights=weights())[0])
    assert program.inputs[0] is not None
    assert torch.equal(program.inputs[0], x)


def test_a_form_that_would_resize_what_it_is_given_is_not_taken(recwarn: pytest.WarningsRecorder) -> None:
    graph = parse_ir("""
graph product {
  input %x: f32[2]
  input %y: f32[2, 3]
  %product: f32[3] = aten.matmul.default(self=%x, other=%y)
  return (%product,)
}
""")
    x, y = torch.randn(2), torch.randn(2, 3)

    (found,) = PlannedProgram(plan(graph))(x, y)

    torch.testing.assert_close(found, x @ y)
    assert not recwarn.list


NEGATED = """
graph negated {
  input %x: f32[64]
  %sin: f32[64] = aten.sin.default(self=%x)
  %view: f32[64] = aten._neg_view.default(self=%sin)
  %relu: f32[64] = aten.relu.default(self=%view)
  %cos: f32[64] = aten.cos.default(self=%relu)
  return (%cos,)
}
"""


def test_a_view_that_negates_is_not_overwritten() -> None:
    x, graph = torch.randn(64), parse_ir(NEGATED)
    for backend in ("aten", "host"):
        program = PlannedProgram(plan(graph, backend=backend))

        for factor in (1.0, -2.0):
            torch.testing.assert_close(program(factor * x), execute_ir(graph, (factor * x,)))
