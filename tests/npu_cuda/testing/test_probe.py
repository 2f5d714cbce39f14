"""The probe of an op by hand."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import npu_cuda
from npu_cuda import _C, probe
from npu_cuda.testing import Outcome, row_of
from tests.support.cuda.programs import refused


def test_probe_prints_the_number_of_the_op_first(capsys: pytest.CaptureFixture[str]) -> None:
    code = probe.main(["relu", "--device", "host"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0] == str(int(_C.OpKind.EltwiseRelu)) == "1"
    assert lines[-1].startswith("EltwiseRelu: ")
    assert lines[-1].endswith(" calls, 0 failed")


def test_probe_says_status_kernel_and_error_of_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    probe.main(["gemm", "--device", "host"])

    text = capsys.readouterr().out
    assert "launch_by_id          gemm.f32.host" in text
    assert "NotImplemented  (expected NotImplemented)" in text
    assert "InvalidArgument (expected InvalidArgument)" in text
    assert " of 1e-05 " in text


def test_probe_as_json_has_every_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    code = probe.main(["add", "--device", "host", "--json"])

    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (report["op"], report["kind"]) == ("EltwiseAdd", 0)
    assert {outcome["status"] for outcome in report["outcomes"]} == {
        "Ok",
        "NotImplemented",
        "InvalidArgument",
    }


@pytest.mark.parametrize(
    ("names", "ops"),
    [(["relu", "gemm"], ["EltwiseRelu", "Gemm"]), (["all"], ["Gemm", "EltwiseRelu"])],
    ids=["some", "all"],
)
def test_probe_takes_several_ops(
    names: list[str], ops: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "rows", lambda: (row_of("gemm"), row_of("relu")))

    code = probe.main([*names, "--device", "host", "--json"])

    assert code == 0
    assert [json.loads(line)["op"] for line in capsys.readouterr().out.splitlines()] == ops


def test_list_names_ops_and_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main(["--list"]) == 0

    listed = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]

    assert ["relu", "EltwiseRelu", "(1),"] in listed
    ours = {(op["name"], op["kind"]) for op in npu_cuda.ops() if op["origin"] == "npu-cuda"}
    assert {(op, int(number.strip("(),"))) for _, op, number in listed} == ours


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param([], "which op? There are add, sub, add_scalar,", id="no op"),
        pytest.param(["sotfmax"], "there is no op 'sotfmax' in the table; it has add, sub,", id="op"),
        pytest.param(["relu", "--device", "tpu"], "there is no device 'tpu' here, only host", id="device"),
    ],
)
def test_unknown_name_is_an_error_that_says_what_there_is(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe.main(arguments) == 2

    assert text in capsys.readouterr().err


def test_row_of_an_unknown_op_is_an_error() -> None:
    with refused("there is no op 'x' in the table; it has add, sub, "):
        row_of("x")


@pytest.mark.smoke
def test_failure_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = Outcome("EltwiseRelu", "a case", "host", "op_call", "", "Ok", "Ok", wrong="an element is off")
    monkeypatch.setattr(probe, "outcomes_of", lambda row, device: iter([failed]))

    assert probe.main(["relu", "--device", "host"]) == 1

    text = capsys.readouterr().out
    assert "FAIL host" in text
    assert "an element is off" in text
    assert "1 calls, 1 failed" in text


def test_probe_of_an_op_whose_reference_is_of_numpy_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from npu_cuda.probe import main; sys.exit(main(['copy']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("8\n")
