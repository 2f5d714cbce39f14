"""The command that checks npu-cuda on a machine with a GPU, as far as it goes without one."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from npu_cuda import probe
from tests.support.places import ROOT
from tests.support.scripts import TOOLS, forgotten, imported


@pytest.fixture(name="tool")
def load() -> Iterator[ModuleType]:
    with forgotten(TOOLS):
        yield imported("gpu_check", TOOLS)


def python(tool: ModuleType, name: str, code: str, **fields: object) -> object:
    return tool.Step(name, (sys.executable, "-c", code), 30, **fields)


def test_tests_are_left_out_where_the_build_failed_or_there_is_no_gpu(tool: ModuleType) -> None:
    works = python(tool, "build", "print('built')", needs_gpu=False)
    fails = python(tool, "build", "print('no such compiler'); raise SystemExit(2)", needs_gpu=False)
    tests = python(tool, "tests", "print('ran')")

    for build, has_gpu, outcomes in (
        (fails, True, [("failed", "no such compiler"), ("left out", "the build failed")]),
        (works, False, [("passed", "built"), ("left out", "there is no GPU")]),
    ):
        ran = tool.run_all([build, tests], has_gpu, {})
        assert [(outcome.result, outcome.detail) for outcome in ran] == outcomes


def test_a_sanitizer_that_refuses_the_device_is_left_out(tool: ModuleType, tmp_path: Path) -> None:
    command = tmp_path / "compute-sanitizer"

    def absence(script: str) -> str:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        return str(tool.absence_of_sanitizer(str(command)))

    assert absence("echo '========= ERROR SUMMARY: 0 errors'") == ""
    assert absence("echo '========= Error: Device not supported. Please refer to'; exit 1") == (
        "compute-sanitizer refuses the device: Error: Device not supported. Please refer to"
    )
    command.unlink()
    assert "compute-sanitizer does not run here: [Errno 2]" in tool.absence_of_sanitizer(str(command))
    assert tool.absence_of_sanitizer(None) == "there is no compute-sanitizer"


def test_the_results_are_written_as_text_and_json(tool: ModuleType, tmp_path: Path) -> None:
    outcomes = tool.run_all([python(tool, "tests", "print('3 passed')")], True, {})

    table = tool.written(outcomes, "NVIDIA H200, 9.0", tmp_path)

    assert "| tests | passed | 0 | 3 passed |" in table
    assert (tmp_path / "report.md").read_text() == table + "\n"
    assert json.loads((tmp_path / "report.json").read_text())["steps"][0]["name"] == "tests"
    assert (tmp_path / "tests.log").read_text() == "3 passed\n"


def test_a_step_that_is_not_there_is_refused(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool.main(["--list", "--only", "ops", "test"])

    assert "test is no step: there are build, status, ops, tests," in capsys.readouterr().err
    assert tool.main(["--list", "--only", "ops"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["build", "ops"]


def test_the_steps_name_files_and_probes_that_exist(tool: ModuleType, tmp_path: Path) -> None:
    steps = tool.planned(tmp_path / "site", tmp_path, "NVIDIA H200, 143771 MiB, 580.0, 9.0")

    (build,) = (step for step in steps if step.name == "build")
    assert "cmake.define.CMAKE_CUDA_ARCHITECTURES=90-real" in build.command
    wheel = tool.planned(tmp_path / "site", tmp_path, "", tmp_path / "npu_cuda.whl")[0].command
    assert wheel[-3:] == ("--target", str(tmp_path / "site"), str(tmp_path / "npu_cuda.whl"))
    words = [word for step in steps for word in step.command]
    named = [word for word in words if "tests/" in word or word.startswith("benchmarks/")]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    probes = [step.command for step in steps if "npu_cuda.probe" in step.command]
    assert len(probes) == 2
    for command in probes:
        options = probe.argument_parser().parse_args(command[command.index("npu_cuda.probe") + 1 :])
        assert probe.find_rows(options.ops)
        assert options.device == "cuda"
