"""A profile tells where the time of a call goes."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from npu_ir import ExecutionError, OpNode, extract_ir
from npu_ir.errors import UsageError
from npu_runtime import IRExecutor
from npu_runtime.diagnostics.explain import explain
from npu_runtime.diagnostics.profile import Profile, profile, take_turns
from npu_runtime.diagnostics.profile.chrome_trace import module_paths
from npu_runtime.executor.aten_backend import AtenBackend
from tests.support.corpus.case import Holding

SECONDS = 0.003
X = torch.randn(5, 3)


@pytest.fixture(scope="module", autouse=True)
def _slow_op() -> Iterator[None]:
    """An op that takes `SECONDS`."""

    @torch.library.custom_op("profiled::slow", mutates_args=())
    def slow(x: torch.Tensor) -> torch.Tensor:
        time.sleep(SECONDS)
        return x.clone()

    slow.register_fake(torch.empty_like)
    yield
    slow._lib._destroy()


def network() -> nn.Module:
    block = Holding(lambda self, x: torch.relu(self.dense(x).view(3, 5) + 1), dense=nn.Linear(3, 3))
    return Holding(lambda self, x: torch.ops.profiled.slow(self.block(x)), block=block)


def executor_of(model: nn.Module, *args: torch.Tensor, **options: Any) -> IRExecutor:
    return IRExecutor(extract_ir(model, args), model.state_dict(), **{"passes": "default", **options})


@pytest.fixture(scope="module")
def net(_slow_op: None) -> Profile:
    return profile(executor_of(network(), X), [X], repeat=5, warmup=1)


def test_each_step_of_the_program_is_there_with_its_origin() -> None:
    executor = executor_of(network(), X)

    found = profile(executor, [X], repeat=2)

    assert [step.name for step in found.steps] == [
        instruction.node.name for instruction in executor.instructions
    ]
    assert [step.nodes for step in found.steps] == [
        tuple(node.name for node in instruction.nodes) for instruction in executor.instructions
    ]
    assert [step.module for step in found.steps] == ["block.dense", "block", "block", "block", ""]
    assert found.steps[0].op_type == "aten.linear.default"
    assert found.steps[0].kernel == "torch._C._nn.linear"
    assert "case.py:" in found.steps[1].source
    assert (found.repeat, found.device, found.threads) == (2, "cpu", torch.get_num_threads())


def test_the_time_is_where_it_is_spent(net: Profile) -> None:
    slow = net.steps[-1]

    assert slow.op_type == "profiled.slow.default"
    assert SECONDS <= slow.fastest_seconds <= slow.seconds
    assert slow.share > 0.5
    assert all(step.seconds < SECONDS for step in net.steps[:-1])
    assert sum(step.share for step in net.steps) == pytest.approx(1)
    assert net.steps_seconds == pytest.approx(sum(step.seconds for step in net.steps))
    assert net.call_seconds > SECONDS
    assert net.timed_call_seconds > net.steps_seconds * 0.9
    assert net.between_seconds < net.timed_call_seconds


def test_operations_are_counted_as_pytorch_counts_them() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 7)).eval()
    image = torch.randn(2, 3, 8, 8)
    with FlopCounterMode(display=False) as counter:
        model(image)

    steps = profile(executor_of(model, image), [image], repeat=1).steps

    assert sum(step.flops for step in steps) == counter.get_total_flops()
    assert [step.op_type for step in steps if step.flops] == ["aten.conv2d.default", "aten.linear.default"]
    assert all((step.gflops is not None) == (step.flops > 0) for step in steps)
    assert steps[0].gflops == steps[0].flops / steps[0].seconds / 1e9


def test_bytes_are_those_of_the_tensors_and_none_of_views(net: Profile) -> None:
    linear, view, add, relu, slow = net.steps

    assert (linear.bytes_read, linear.bytes_written) == (4 * (15 + 9 + 3), 4 * 15)
    assert (view.bytes_read, view.bytes_written) == (0, 0)
    assert (add.bytes_read, add.bytes_written) == (4 * 15, 4 * 15)
    assert relu.kernel.endswith("relu_"), "it overwrites its input"
    assert (relu.bytes_read, relu.bytes_written) == (4 * 15, 4 * 15)
    assert (slow.bytes_read, slow.bytes_written) == (4 * 15, 4 * 15)


def test_open_sizes_leave_operations_unknown_and_bytes_known() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    model = nn.Linear(3, 4)
    graph = extract_ir(model, (X,), dynamic_shapes=({0: rows},))

    found = profile(IRExecutor(graph, model.state_dict(), passes="default"), [torch.randn(7, 3)], repeat=1)

    assert found.steps[0].flops is None
    assert found.steps[0].gflops is None
    assert found.steps[0].bytes_written == 4 * 7 * 4
    assert "  ?  " in str(found)
    assert found.by_op()[0].flops == 0


def test_what_another_backend_runs_at_once_is_one_step() -> None:
    class Twin(AtenBackend):
        name = "twin"

        def supports(self, node: OpNode) -> str | None:
            return None if node.provenance.module.startswith("block") else "only the block"

    found = profile(executor_of(network(), X, backend=Twin()), [X], repeat=1)

    assert [(step.backend, len(step.nodes)) for step in found.steps] == [("twin", 4), ("aten", 1)]
    assert found.steps[0].flops == 2 * 5 * 3 * 3
    assert "(+3)" in str(found)
    assert "twin: " in str(found)


def test_buffers_and_arguments_stay_as_they_are() -> None:
    def count(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls

    executor, given = executor_of(Holding(count, calls=torch.zeros(())), X), X.clone()
    executor(given)

    profile(executor, [given], repeat=3)
    explain(executor, (given,))

    assert executor.state_dict()["calls"] == 1
    assert torch.equal(given, X)
    assert torch.equal(executor(given), 2 * X)


@pytest.mark.smoke
def test_keyword_arguments_are_passed_on() -> None:
    graph = extract_ir(nn.ReLU(), (), {"input": X})

    assert len(profile(IRExecutor(graph), [], {"input": X}, repeat=1).steps) == 1


def test_wrong_arguments_are_refused() -> None:
    executor = executor_of(nn.ReLU(), X)
    for repeat, warmup in ((0, 3), (3, -1)):
        with pytest.raises(
            UsageError, match=f"repeat={repeat}, warmup={warmup}: a program is run at least once"
        ):
            profile(executor, [X], repeat=repeat, warmup=warmup)

    with pytest.raises(ExecutionError, match=r"%input"):
        profile(executor, [X.double()])


def test_what_computes_nothing_is_not_timed() -> None:
    model = network()
    empty = {name: item.to("meta") for name, item in model.state_dict().items()}
    executor = IRExecutor(extract_ir(model, (X,)), empty, backend="aten", device="meta", passes=None)

    with pytest.raises(UsageError, match="the executor runs on meta, where nothing is computed"):
        profile(executor, (X.to("meta"),))


def test_totals_of_ops_and_modules_add_up(net: Profile) -> None:
    ops, modules = net.by_op(), {total.name: total for total in net.by_module()}

    assert ops[0].name == "profiled.slow.default"
    assert sum(total.count for total in ops) == len(net.steps)
    assert sum(total.seconds for total in ops) == pytest.approx(net.steps_seconds)
    assert sum(total.bytes_read for total in ops) == sum(step.bytes_read for step in net.steps)
    assert {name: total.count for name, total in modules.items()} == {"": 5, "block": 4, "block.dense": 1}
    assert modules[""].seconds == pytest.approx(net.steps_seconds)
    assert modules["block"].seconds == pytest.approx(sum(step.seconds for step in net.steps[:4]))
    assert modules["block.dense"].flops == 2 * 5 * 3 * 3
    assert module_paths("a.0.b") == ["", "a", "a.0", "a.0.b"]


def test_a_table_begins_with_what_takes_longest(net: Profile) -> None:
    head, first, *_ = str(net).splitlines()

    columns = "node time share FLOPs GFLOP/s read written GB/s kernel module source"
    assert head.split() == columns.split()
    assert first.startswith("slow ")
    assert net.table("op").splitlines()[1].startswith("profiled.slow.default  1 ")
    assert net.table("module").splitlines()[1].startswith("(all) ")
    assert net.table("phase").splitlines()[1].startswith("(none) ")
    assert "steps " in str(net)
    assert "between them" in str(net)


def test_a_table_says_how_many_rows_it_leaves_out(net: Profile) -> None:
    assert "... 3 rows more" in net.table(limit=2)
    assert "more" not in net.table(limit=None)
    for limit in (0, -3):
        with pytest.raises(
            UsageError, match=f"at least one row, not limit={limit}\n  fix: limit=None for all"
        ):
            net.table(limit=limit)
    with pytest.raises(
        UsageError, match="no table by 'line'\n  fix: there are tables by node, op, module, phase"
    ):
        net.table("line")


def test_all_of_it_is_plain_data(net: Profile) -> None:
    data = json.loads(json.dumps(net.to_dict(), allow_nan=False))

    assert data["steps"][-1]["op_type"] == "profiled.slow.default"
    assert data["steps"][0]["flops"] == 90
    assert data["call_seconds"] == net.call_seconds
    assert [total["name"] for total in data["modules"]] == [total.name for total in net.by_module()]
    assert len(data["ops"]) == len(net.by_op())


def test_a_trace_has_the_steps_inside_of_their_modules(net: Profile) -> None:
    trace = json.loads(json.dumps(net.to_chrome_trace(), allow_nan=False))

    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in spans if event["cat"] == "step"]
    modules = {event["name"]: event for event in spans if event["cat"] == "module"}
    assert [event["name"] for event in steps] == [step.name for step in net.steps]
    assert list(modules) == ["block", "block.dense"]
    assert inside(modules["block.dense"], modules["block"])
    assert inside(steps[0], modules["block.dense"])
    assert all(inside(event, modules["block"]) for event in steps[:4])
    assert not inside(steps[4], modules["block"])
    assert all(left["ts"] + left["dur"] <= right["ts"] for left, right in itertools.pairwise(steps))
    assert steps[-1]["dur"] >= SECONDS * 1e6
    assert steps[0]["ts"] == 0
    assert steps[0]["args"]["flops"] == 90


def inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    """Whether one event nests in another, as those who draw traces see it."""
    return bool(
        outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-6
    )


def test_a_module_that_is_entered_twice_has_two_events() -> None:
    twice = Holding(lambda self, x: self.act(self.act(x) + 1), act=nn.ReLU())

    trace = profile(executor_of(twice, X), [X], repeat=1).to_chrome_trace()

    names = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "module"]
    assert names == ["act", "act"]


def test_a_graph_without_steps_has_a_profile() -> None:
    found = profile(executor_of(nn.Identity(), X), [X], repeat=1)

    assert found.steps == ()
    assert "0 steps" in str(found)
    assert len(found.to_chrome_trace()["traceEvents"]) == 2


def test_functions_take_turns_and_the_slow_one_takes_longer() -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("slow")
        time.sleep(SECONDS)

    timings = take_turns(
        {"slow": slow, "quick": lambda: order.append("quick")}, repeat=3, warmup=2, burst_seconds=0.0
    )

    assert order == ["slow", "slow", "quick", "quick", *["slow", "quick"] * 3]
    assert SECONDS <= timings["slow"].fastest <= timings["slow"].median
    assert timings["quick"].fastest < SECONDS
    assert timings["slow"].turns == 3


def test_a_turn_is_as_many_calls_as_fit() -> None:
    calls: Sequence[None] = []

    take_turns({"quick": lambda: calls.append(None)}, repeat=2, burst_seconds=0.02)  # type: ignore[attr-defined]

    assert len(calls) > 100
