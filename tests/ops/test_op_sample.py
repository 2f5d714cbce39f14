"""A fixed sample of the operator run, and what the run itself promises."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import npu_ir
from npu_ir import ConversionError, Graph
from tests.ops import pipe
from tests.ops.cases import (
    FUNCTION,
    IN_PLACE,
    IN_PLACE_INSIDE,
    OUT,
    Budget,
    Call,
    calls_of,
    operators,
)
from tests.ops.judge import judge_operator
from tests.ops.pipe import Verdict, execute, judge
from tests.ops.report import format_report
from tests.ops.run_all import RUN
from tests.support.comparison import first_difference
from tests.support.coverage_runs.outcomes import Outcome
from tests.support.coverage_runs.store import Store
from tests.support.coverage_runs.workers import MOST_CRASHES, OpResult, Pool
from tests.support.tiers import thin

SAMPLE = Budget(main={FUNCTION: 2, IN_PLACE: 1, IN_PLACE_INSIDE: 1, OUT: 1}, other={}, dtypes=1)

OPERATORS = """
    abs add addmm amax any arange argmax as_strided baddbmm bernoulli bmm broadcast_shapes cat chunk clamp
    complex cumsum diag_embed diff einsum empty_like fft.rfft2 flip full_like gather index_put index_select
    isin kthvalue linalg.inv linalg.lu_factor linalg.matrix_rank linalg.svd logsumexp masked_fill matmul
    max.reduction_with_dim meshgrid.list_of_tensors mode multinomial native_batch_norm native_layer_norm
    nn.functional.adaptive_avg_pool2d nn.functional.batch_norm nn.functional.conv2d
    nn.functional.cross_entropy nn.functional.dropout nn.functional.embedding_bag nn.functional.gelu
    nn.functional.grid_sample nn.functional.group_norm nn.functional.instance_norm
    nn.functional.interpolate.bilinear nn.functional.multi_head_attention_forward nn.functional.pad.reflect
    nn.functional.rrelu nn.functional.scaled_dot_product_attention nonzero_static norm.nuc pca_lowrank
    permute polygamma.polygamma_n_1 quantile randint_like repeat_interleave roll scatter_add sort
    split_with_sizes squeeze_copy stft sum tensor_split topk triu unbind unfold uniform view where
""".split()  # noqa: SIM905 - seventy strings, one to a line, would read no better
# The operators above for some of whose calls torch.export has no program.
LIMITED = {
    "as_strided": Outcome.EXPORT_REFUSES,
    "tensor_split": Outcome.EXPORT_REFUSES,
}


@pytest.mark.parametrize("name", thin(OPERATORS, 24))
def test_an_operator_comes_through_the_pipe_to_the_bit(name: str) -> None:
    verdicts = [judge(call) for call in calls_of(operators()[name], SAMPLE)]

    unexpected = [
        verdict
        for verdict in verdicts
        if verdict.outcome not in (Outcome.PASS, Outcome.EAGER_REFUSES, LIMITED.get(name))
    ]
    assert unexpected == []
    assert Outcome.PASS in [verdict.outcome for verdict in verdicts]


def call_of(name: str, variant: str = FUNCTION) -> Call:
    return next(call for call in calls_of(operators()[name], SAMPLE) if call.variant == variant)


# What is run


def test_calls_are_the_same_every_time() -> None:
    first, second = (list(calls_of(operators()["nn.functional.linear"], SAMPLE)) for _ in range(2))

    assert [(call.variant, call.sample) for call in first] == [(call.variant, call.sample) for call in second]
    assert all(map(torch.equal, first[0].tensors, second[0].tensors))


def test_the_samples_taken_differ_in_kind() -> None:
    sums = list(calls_of(operators()["sum"], Budget(main={FUNCTION: 4}, other={}, dtypes=1)))

    assert len({tuple(call.tensors[0].shape) for call in sums}) > 1
    assert sums[-1].sample.endswith("non-contiguous")
    assert not sums[-1].tensors[0].is_contiguous()


def made_up(function: Callable[..., Any], *tensors: torch.Tensor) -> Call:
    return Call("made up", FUNCTION, torch.float32, "#0", function, tensors, lambda given: (tuple(given), {}))


def test_fresh_tensors_keep_strides_and_shared_memory() -> None:
    base = torch.arange(12.0).reshape(3, 4)

    turned, row = made_up(torch.add, base.t(), base[1]).fresh_tensors()
    row.zero_()

    assert turned.stride() == (1, 4)
    assert turned[:, 1].tolist() == [0.0] * 4
    assert base[1].tolist() == [4.0, 5.0, 6.0, 7.0]


# What is told apart


def changed(results: Any) -> Any:
    return torch.nextafter(results, torch.tensor(9e9))


def test_a_wrong_result_is_a_failure() -> None:
    for wrong, reason in (
        (lambda results, mutations: (changed(results), mutations), "values:"),
        (lambda results, mutations: (results.double(), mutations), "dtype:"),
        (lambda results, mutations: (results[:1], mutations), "shape:"),
        (lambda results, mutations: ((results,), mutations), "structure:"),
        (lambda results, mutations: (results, {}), "values:"),
    ):
        verdict = judge(call_of("add", IN_PLACE), lambda *call, wrong=wrong: wrong(*execute(*call)))

        assert verdict.outcome is Outcome.FAIL
        assert reason in verdict.reason


def test_an_error_while_the_graph_runs_is_a_failure() -> None:
    def refuse(graph: Graph, tensors: tuple[torch.Tensor, ...]) -> Any:
        raise KeyError("lost")

    assert judge(call_of("add"), refuse) == Verdict(Outcome.FAIL, "run: KeyError: 'lost'")


def test_changing_the_callers_tensors_is_a_failure() -> None:
    def execute_in_place(graph: Graph, tensors: tuple[torch.Tensor, ...]) -> Any:
        result = execute(graph, tensors)
        tensors[0].zero_()
        return result

    assert judge(call_of("add"), execute_in_place).reason.startswith("caller's tensors changed")


def test_zero_differs_from_minus_zero_and_nan_equals_nan() -> None:
    assert first_difference(torch.tensor([0.0]), torch.tensor([-0.0])).startswith("result 0: values:")
    assert first_difference(torch.tensor([float("nan")]), torch.tensor([float("nan")])) == ""


def test_a_graph_that_its_file_does_not_give_back_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "saved_and_loaded", lambda graph: Graph("another"))

    assert judge(call_of("add")) == Verdict(Outcome.FAIL, "file: the loaded graph differs")


def test_what_torch_export_refuses_is_named_with_its_reason() -> None:
    verdict = judge(call_of("equal"))

    assert verdict.outcome is Outcome.EXPORT_REFUSES
    assert verdict.reason == "DataDependentOutputException: aten.equal.default"


def test_what_eager_refuses_is_named_with_its_reason() -> None:
    def refuse() -> Any:
        raise ValueError("not on\nthis machine")

    assert judge(made_up(refuse)) == Verdict(Outcome.EAGER_REFUSES, "ValueError: not on")


def test_an_operator_that_differs_from_itself_is_no_failure_of_ours() -> None:
    counter = itertools.count()

    verdict = judge(made_up(lambda x: x + next(counter), torch.ones(2)))

    assert verdict.outcome is Outcome.PYTORCH_DIFFERS


def test_a_limit_is_named() -> None:
    assert judge(call_of("nonzero")).outcome is Outcome.PASS, "a size depends on data"
    assert judge(call_of("to_sparse")).outcome is Outcome.PASS, "a result is sparse"
    assert judge(call_of("t", IN_PLACE)).outcome is Outcome.RESHAPES_INPUT, "an input is turned in place"


def test_a_refusal_of_ours_without_cause_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for message in ("PyTorch bounds the size", "changes the shape or strides of x", "no"):

        def refuse(*args: Any, message: str = message, **kwargs: Any) -> Graph:
            raise ConversionError(message)

        monkeypatch.setattr(npu_ir, "extract_ir", refuse)

        assert judge(call_of("add")) == Verdict(Outcome.FAIL, f"extract: ConversionError: {message}")


# The workers


def events_of(name: str, skip: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    judge_operator(operators()[name], skip, lambda **event: events.append(event))
    return events


def test_a_worker_announces_each_stage_and_leaves_out_what_was_judged_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.ops.judge.calls_of", lambda op: calls_of(op, SAMPLE))

    everything, rest = events_of("nn.functional.relu6", 0), events_of("nn.functional.relu6", 3)

    assert [event.get("stage", event["event"]) for event in everything[:4]] == [
        "eager",
        "export",
        "run",
        "result",
    ]
    assert json.loads(json.dumps(everything)) == everything
    assert rest == everything[4 * 3 :]


def test_samples_that_cannot_be_made_are_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise RuntimeError("needs a GPU")

    monkeypatch.setattr("tests.ops.cases.samples_of", refuse)

    (event,) = events_of("add", 0)

    assert event["result"]["reason"] == "samples: RuntimeError: needs a GPU"


STAND_IN = """
import json, os, signal, sys, time
def say(**event):
    print(json.dumps(event), flush=True)
call = {"call": "function float32 #1", "dtype": "float32", "variant": "function"}
passed = {**call, "outcome": "pass", "reason": "", "same_strides": True}
say(event="ready")
for line in sys.stdin:
    op, skip = json.loads(line).values()
    if skip == 0:
        say(event="result", result=passed)
    if skip < 2 or op == "always":
        stage = op if op in ("eager", "export") else "run"
        say(event="stage", call=call, stage=stage)
        if op == "hang":
            time.sleep(60)
        elif op != "good":
            os.kill(os.getpid(), signal.SIGSEGV)
    say(event="result", result=passed)
    say(event="done")
"""


def run_stand_in(folder: Path, ops: list[str], **settings: Any) -> dict[str, OpResult]:
    results: dict[str, OpResult] = {}
    pool = Pool(folder, **{"size": 2, "limit_s": 120.0, **settings}, command=(sys.executable, "-c", STAND_IN))
    pool.run(ops, lambda result: results.update({result.op: result}))
    return results


def test_a_crash_costs_one_call_and_is_blamed_on_its_stage(tmp_path: Path) -> None:
    blamed = {"run": Outcome.FAIL, "export": Outcome.EXPORT_REFUSES, "eager": Outcome.EAGER_REFUSES}

    results = run_stand_in(tmp_path, [*blamed, "good"])

    for op, outcome in blamed.items():
        found = [(entry["outcome"], entry["reason"]) for entry in results[op].results]
        reason = f"{op}: the process ended: killed by SIGSEGV"
        assert found == [("pass", ""), (outcome.value, reason), ("pass", "")]
    assert [entry["outcome"] for entry in results["good"].results] == ["pass", "pass"]


def test_a_hang_costs_one_call_and_an_operator_that_always_crashes_is_given_up(tmp_path: Path) -> None:
    results = run_stand_in(tmp_path, ["hang", "always", "good"], size=1, limit_s=2.0)

    reasons = [entry["reason"] for entry in results["hang"].results]
    assert reasons == ["", "run: the process ended: no answer in 2 s", ""]
    assert results["always"].results[-1]["reason"] == f"given up after {MOST_CRASHES} crashes"
    assert "good" in results


def test_a_worker_that_does_not_start_ends_the_run(tmp_path: Path) -> None:
    pool = Pool(tmp_path, 2, 120.0, (sys.executable, "-c", "raise SystemExit(3)"))

    with pytest.raises(RuntimeError, match="a worker does not start: exit code 3; see .*worker-"):
        pool.run(["good"], lambda result: None)


# The store and the page


def entry(outcome: Outcome, reason: str = "", variant: str = FUNCTION) -> dict[str, Any]:
    named = {"call": f"{variant} float32 #0", "dtype": "float32", "variant": variant}
    return {**named, "outcome": outcome.value, "reason": reason, "same_strides": True}


def test_a_run_goes_on_behind_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    store = Store(path, "code 1")
    store.add(OpResult("add", [entry(Outcome.PASS)]))
    with path.open("a") as file:
        file.write('{"fingerprint": "code 1", "op": "cut sh')

    store.add(OpResult("mul"))

    assert list(store.read()) == ["add", "mul"]
    assert Store(path, "code 2").read() == {}
    assert list(Store(path, "code 2", any_code=True).read()) == ["add", "mul"]


def test_the_page_counts_what_can_be_exported_and_names_the_rest() -> None:
    passed, guard = entry(Outcome.PASS), "Guard: on {u12, u3} of FakeTensor(..., size=(5, 2))"
    misstated = entry(Outcome.SIZES_MISSTATED, "ConversionError: PyTorch bounds the size u3")
    refused = entry(Outcome.EAGER_REFUSES, "RuntimeError: of shapes")
    results = [
        OpResult("add", [passed, entry(Outcome.PASS, variant=IN_PLACE), refused]),
        OpResult("equal", [entry(Outcome.EXPORT_REFUSES, guard)]),
        OpResult("item", [passed, misstated]),
        OpResult("gpu_only"),
    ]

    page = format_report("2.0+cpu", results)

    assert page == format_report("2.0+cpu", results[::-1])
    assert "PyTorch 2.0: 4 operators, 6 calls" in page
    assert "**75.00 %** of the 4 calls that `torch.export` exports pass,\n  0 fail" in page
    assert "2 operators have a call that `torch.export` exports; 1 of them pass every such call" in page
    assert "- `Guard: on {u} of FakeTensor(...)`\n  <br>`equal` (1)" in page
    assert "- `RuntimeError`\n  <br>`add` (1)" in page
    assert "- `ConversionError: PyTorch bounds the size u`\n  <br>`item` (1)" in page
    assert "no dtype for the CPU: `gpu_only`." in page
    assert "| `add` | 1/1 |  | 1/1 |  |  | f32 | pass, eager refuses |" in page


def test_the_share_is_100_only_where_nothing_fails() -> None:
    failing = [
        OpResult("good", [entry(Outcome.PASS)] * 99_999),
        OpResult("bad", [entry(Outcome.FAIL, "run: x")]),
    ]

    assert "**99.99 %** of" in format_report("2.0", failing)
    assert "**100 %** of" in format_report("2.0", failing[:-1])


def test_only_a_failure_makes_the_run_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for outcome, status in ((Outcome.PASS, 0), (Outcome.EXPORT_REFUSES, 0), (Outcome.FAIL, 1)):
        folder = tmp_path / outcome.name
        folder.mkdir()
        Store(folder / "results.jsonl", RUN.mark).add(OpResult("add", [entry(outcome, "because")]))

        assert RUN.main(["--report-only", "--build", str(folder)]) == status
        assert ("FAIL add, function float32 #0: because" in capsys.readouterr().out) is (status == 1)
        assert (folder / "op-coverage.md").read_text().startswith("<!-- written by nox -s ops -->")
