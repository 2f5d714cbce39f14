"""The probe of an op by hand."""

import json

import pytest

import npu_cuda
from npu_cuda import _C, probe
from npu_cuda.testing import Outcome, row_of
from tests.support.processes import run_python
from tests.support.rows import each_row


def test_probe_prints_the_number_of_the_op_first_then_status_kernel_and_error_of_each_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = probe.main(["gemm", "--device", "host"])

    text = capsys.readouterr().out
    first, *_, last = text.splitlines()
    assert (code, first) == (0, str(int(_C.OpKind.Gemm)))
    assert "launch_by_id          gemm.host" in text
    assert "NotImplemented  (expected NotImplemented)" in text
    assert "InvalidArgument (expected InvalidArgument)" in text
    assert " of 1e-05 " in text
    assert last.startswith("Gemm: ")
    assert last.endswith(" calls, 0 failed")


def test_probe_takes_several_ops_and_gives_every_outcome_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "rows", lambda: (row_of("gemm"), row_of("relu")))

    code = probe.main(["all", "--device", "host", "--json"])

    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert [report["op"] for report in reports] == ["Gemm", "EltwiseRelu"]
    assert [report["kind"] for report in reports] == [2, 1]
    statuses = {outcome["status"] for outcome in reports[0]["outcomes"]}
    assert statuses == {"Ok", "NotImplemented", "InvalidArgument"}


def test_list_names_ops_and_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main(["--list"]) == 0

    listed = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]

    assert ["relu", "EltwiseRelu", "(1),"] in listed
    ours = {(op["name"], op["kind"]) for op in npu_cuda.ops() if op["origin"] == "npu-cuda"}
    assert {(op, int(number.strip("(),"))) for _, op, number in listed} == ours


@each_row("arguments, text", [
    ([], "which op? There are add, sub, add_scalar,"),
    (["sotfmax"], "there is no op 'sotfmax' in the table; it has add, sub,"),
    (["relu", "--device", "tpu"], "there is no device 'tpu' here, only host"),
])  # fmt: skip
def test_unknown_name_is_an_error_that_says_what_there_is(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe.main(arguments) == 2

    assert text in capsys.readouterr().err


@pytest.mark.smoke
def test_failure_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = Outcome("EltwiseRelu", "a case", "host", "op_call", "", "Ok", "Ok", wrong="an element is off")
    monkeypatch.setattr(probe, "outcomes_of", lambda row, device: iter([failed]))

    assert probe.main(["relu", "--device", "host"]) == 1

    text = capsys.readouterr().out
    assert all(part in text for part in ("FAIL host", "an element is off", "1 calls, 1 failed"))


def test_probe_of_an_op_whose_reference_is_of_numpy_needs_no_torch() -> None:
    without_torch = "import sys; sys.modules['torch'] = None; from npu_cuda.probe import main;"

    done = run_python(without_torch + "sys.exit(main(['copy']))")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("8\n")
