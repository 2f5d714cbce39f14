"""The memory of a call: how long values are kept, the peak, and what no program could go below."""

from __future__ import annotations

import json
import weakref
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from torch import Tensor, nn, randn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from npu_ir import Graph, GraphError, extract_ir, parse_ir
from npu_ir.interpreter.random_data import random_call, random_weights
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function
from tests.support.memory_puzzles import interpreted, memory_puzzles
from tests.support.tiers import examples

KIB = 1024  # of a tensor with 256 elements


def executor_of(function: Any, *args: Any) -> IRExecutor:
    return IRExecutor(extract_ir(Function(function), args), passes=None)


# For each function of x, 1 KiB: the live bytes during each instruction in KiB, and the live range of each
# allocation: its name, the numbers of its first and last instruction, and its aliases.
RANGES: dict[str, tuple[Any, tuple[float, ...], list[tuple[Any, ...]]]] = {
    "matmul is never done in place: input and output are there at once": (lambda x: ((x @ x) @ x) @ x,
        (1, 2, 2), [("matmul", 0, 1), ("matmul_1", 1, 2), ("matmul_2", 2, 3)]),
    "what is overwritten counts once": (lambda x: (x @ x).relu().exp().neg(), (1, 1, 1, 1),
        [("matmul", 0, 4, "relu", "exp", "neg")]),
    "views count once, and keep what they lie in": (lambda x: ((x @ x).t()[:4] @ x) @ x, (1, 1, 1.25, 0.5),
        [("matmul", 0, 2, "slice_1"), ("matmul_1", 2, 3), ("matmul_2", 3, 4)]),
    "what is returned lives to the end": (lambda x: (x @ x, (x @ x) @ x), (1, 2, 3),
        [("matmul", 0, 3), ("matmul_1", 1, 2), ("matmul_2", 2, 3)]),
    "a result that is a view keeps all its memory": (lambda x: ((x @ x)[0], x.exp()), (1, 1, 2),
        [("matmul", 0, 3, "select"), ("exp", 2, 3)]),
}  # fmt: skip


def test_live_ranges_are_known() -> None:
    for what, (function, live, ranges) in RANGES.items():
        plan = executor_of(function, randn(16, 16)).memory_plan()

        found = [(item.value, item.first, item.last, *item.views) for item in plan.live_ranges]
        assert found == ranges, what
        assert plan.live_bytes == tuple(int(KIB * count) for count in live), what
        assert plan.peak_bytes == max(plan.live_bytes)
        assert plan.live_bytes[plan.instructions.index(plan.peak_instruction)] == plan.peak_bytes


PARTS_WRITTEN: dict[str, Any] = {
    "copy": lambda view: torch.ops.aten.copy(view, view.exp()),
    "slice": lambda view: torch.slice_scatter(view, view[:, :1].exp(), 1, 0, 1),
    "select": lambda view: torch.select_scatter(view, view[:, 0].exp(), 1, 0),
    "diagonal": lambda view: torch.diagonal_scatter(view, view.diagonal().exp()),
    "as_strided": lambda view: torch.as_strided_scatter(view, view[0].exp(), (16,), (1,)),
}


@pytest.mark.parametrize("write", PARTS_WRITTEN.values(), ids=PARTS_WRITTEN)
@pytest.mark.parametrize("source", [lambda x: x, lambda x: x @ x], ids=["argument", "result"])
def test_what_copies_all_that_a_view_lies_in_counts_with_that(write: Any, source: Any) -> None:
    plan = executor_of(lambda x: write(source(x)[:2]), randn(16, 16)).memory_plan()

    written = [item for item in plan.live_ranges if item.first == len(plan.instructions) - 1]
    assert [item.bytes for item in written] == [KIB]
    assert write(randn(16, 16)[:2]).untyped_storage().nbytes() == KIB


def test_inputs_weights_and_their_views_do_not_count() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Flatten(0))

    plan = IRExecutor(extract_ir(model, (randn(16, 16),)), model.state_dict(), passes="default").memory_plan()

    assert plan.peak_bytes == KIB
    assert executor_of(lambda x: x.t()[1:], randn(16, 16)).memory_plan().peak_bytes == 0
    assert executor_of(lambda x: x, randn(2)).memory_plan().peak_instruction == ""


def test_the_lower_bound_is_that_of_the_hungriest_instruction() -> None:
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
    assert data["live_ranges"][0]["value"] == "matmul"
    assert str(plan).splitlines()[0] == f"peak 2,097,152 bytes at {plan.peak_instruction}"
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
        result = function(*args, **(kwargs or {}))
        given = {
            item.untyped_storage()._cdata for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)
        }
        self.follow(result, given)
        return result

    def follow(self, result: Any, given: set[int]) -> None:
        """Take note of memory that a call has made; ``given`` was there before."""
        for item in tree_leaves(result):
            if isinstance(item, Tensor):
                storage = item.untyped_storage()
                key = storage._cdata
                if key not in self.alive and key not in given:
                    self.alive[key] = storage.nbytes()
                    weakref.finalize(storage, self.alive.pop, key, None)
        self.most = max(self.most, sum(self.alive.values()))


def peak_of(call: Any, x: Tensor) -> int:
    with torch.no_grad(), Peak() as peak:
        call(x)
    return peak.most


def cached(x: Tensor, weight: Tensor, cache: Tensor, position: Tensor) -> Tensor:
    """Write one row of a cache that is given: the row is a slice, in strides that no type states."""
    row = nn.functional.linear(x, weight)[..., :64]
    cache.index_copy_(1, position, row)
    return row + cache.sum(1)


def test_what_may_be_a_copy_counts_and_says_so() -> None:
    args = randn(1, 1, 64), randn(192, 64), torch.zeros(1, 512, 64), torch.tensor([3])
    executor = IRExecutor(extract_ir(Function(cached), args), updates="ignore", passes="default")

    plan = executor.memory_plan()

    (copy,) = [item for item in plan.live_ranges if item.value == "index_copy"]
    assert copy.bytes == 512 * 64 * 4
    assert copy.may_share == ("args_2", "args_3", "slice_1")
    assert "strides" in copy.reason
    assert not plan.is_exact
    assert plan.peak_bytes >= copy.bytes > plan.lower_bound_bytes
    assert str(plan).startswith("peak at most ")
    assert "may share the memory of args_2, args_3, slice_1: it depends on" in str(plan)
    assert json.loads(json.dumps(plan.to_dict()))["is_exact"] is False
    with torch.no_grad(), Peak() as peak:
        executor(*args)
    assert copy.bytes < peak.most <= plan.peak_bytes


def test_what_may_be_lain_in_is_kept_as_long_as_what_may_lie_in_it() -> None:
    @torch.library.custom_op("npu_runtime_tests::opaque", mutates_args=())
    def opaque(x: Tensor) -> Tensor:
        return x + 1

    opaque.register_fake(torch.empty_like)
    plan = executor_of(lambda x: (opaque(x @ x) @ x).sum(), randn(16, 16)).memory_plan()

    product, unknown = plan.live_ranges[:2]
    assert (product.value, unknown.may_share) == ("matmul", ("matmul",))
    assert product.last == unknown.last
    assert "cannot be tried beforehand" in unknown.reason


def test_what_backends_and_branches_need_inside_is_named() -> None:
    def function(x: Tensor) -> Any:
        y = torch.relu(x @ x)
        return torch.cond(y.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,))

    plan = IRExecutor(extract_ir(Function(function), (randn(16, 16),)), backend="host").memory_plan()

    assert plan.uncounted == ("host.run (matmul to gt)", "cond")
    assert f"not counted: what is needed inside of {', '.join(plan.uncounted)}" in str(plan)


def test_a_backend_that_may_return_a_view_is_counted_as_if_it_did_not() -> None:
    graph = extract_ir(Function(lambda x: x.t().contiguous()), (randn(16, 16),))

    (copy,) = IRExecutor(graph, backend="host", passes=None).memory_plan().live_ranges

    assert (copy.bytes, copy.may_share) == (KIB, ("args_0",))
    assert copy.reason == "the backend 'host' may return views"


def test_copies_behind_the_last_instruction_count() -> None:
    """What a buffer keeps for the next call is a copy of the result."""
    model, x = Function(lambda x: model.state.add_(x).t()), randn(16, 16)
    model.register_buffer("state", torch.zeros(16, 16))
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    plan = executor.memory_plan()

    assert plan.instructions[-1] == plan.peak_instruction == "return"
    assert plan.live_ranges[-1].bytes == KIB
    assert peak_of(executor, x) == plan.peak_bytes == 2 * KIB


def peak_between_instructions(executor: IRExecutor, args: Any, kwargs: Any) -> int:
    """Return the most that is alive behind an instruction: what a kernel needs inside does not count."""
    given = [*tree_leaves((args, kwargs)), *executor.weights().values()]
    outside = {item.untyped_storage()._cdata for item in given if isinstance(item, Tensor)}
    peak = Peak()

    def wrap(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            read = {
                item.untyped_storage()._cdata
                for item in tree_leaves((args, kwargs))
                if isinstance(item, Tensor)
            }
            result = function(*args, **kwargs)
            peak.follow(result, outside | read)
            return result

        return call

    executor.instrumented(wrap)(*args, **kwargs)
    return peak.most


def test_resolving_a_lazily_negated_view_counts_as_memory_of_its_own() -> None:
    graph = parse_ir(
        "graph net {\n  input %x: f32[3]\n  %a: f32[3] = aten._neg_view.default(self=%x)\n"
        "  %b: f32[3] = aten.resolve_neg.default(self=%a)\n  return %b\n}\n"
    )

    assert IRExecutor(graph, passes=None).memory_plan().peak_bytes == 12


@examples(40, suppress_health_check=list(HealthCheck))
@given(memory_puzzles())
def test_no_call_needs_more_than_its_plan_says(graph: Graph) -> None:
    weights = random_weights(graph, seed=1)
    args, kwargs = random_call(graph, seed=2)
    interpreted(graph, weights, args, kwargs)
    executor = IRExecutor(graph, weights, passes=None)

    measured = peak_between_instructions(executor, args, kwargs)

    assert measured <= executor.memory_plan().peak_bytes
