"""A fixed sample of the operator run, and what the run itself promises."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import npu_ir
from npu_ir import ConversionError, Graph
from npu_ir.testing import OpCall
from tests.ops.cases import FUNCTION, IN_PLACE, IN_PLACE_INSIDE, OUT, Budget, calls_of, operators
from tests.ops.pipe import Verdict, execute, judge
from tests.ops.report import format_report
from tests.ops.run_all import RUN
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
LIMITED = {"as_strided": Outcome.EXPORT_REFUSES, "tensor_split": Outcome.EXPORT_REFUSES}


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


def call_of(name: str, variant: str = FUNCTION) -> OpCall:
    return next(call for call in calls_of(operators()[name], SAMPLE) if call.variant == variant)


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


def test_what_torch_export_refuses_is_named_with_its_reason() -> None:
    verdict = judge(call_of("equal"))

    assert verdict.outcome is Outcome.EXPORT_REFUSES
    assert verdict.reason == "DataDependentOutputException: aten.equal.default"


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


def test_only_a_failure_makes_the_run_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for outcome, status in ((Outcome.PASS, 0), (Outcome.EXPORT_REFUSES, 0), (Outcome.FAIL, 1)):
        folder = tmp_path / outcome.name
        folder.mkdir()
        Store(folder / "results.jsonl", RUN.mark).add(OpResult("add", [entry(outcome, "because")]))

        assert RUN.main(["--report-only", "--build", str(folder)]) == status
        assert ("FAIL add, function float32 #0: because" in capsys.readouterr().out) is (status == 1)
        assert (folder / "op-coverage.md").read_text().startswith("<!-- written by nox -s ops -->")
