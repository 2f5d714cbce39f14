"""Shell completions: commands, options, files, and the names that options take."""

import shutil
import subprocess
from pathlib import Path

import pytest

from npu_ir.cli import main
from tests.support.rows import each_row

pytest.importorskip("shtab")
pytest.importorskip("npu_runtime")

# What is asked of bash: the words of the command line, the last of which is to be completed.
_ASK_BASH = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_npu
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
NAMES = [
    ("opt net.json --pipeline ", {"default", "cpu", "fuse"}),
    ("opt net.json --passes c", {"cse", "canonicalize", "constant-folding"}),
    ("bench net.json --passes ", {"none", "cpu", "cse"}),
    ("bench net.json --peers ", {"none", "onnxruntime", "openvino"}),
    ("capture-step steps.py:make --passes ", {"none", "train", "cse"}),
    ("explain net.json --backend ", {"aten"}),
    ("run net.json --on ", {"executor", "interpreter"}),
    ("compare net.json --b ", {"executor", "float64"}),
    ("passes ", {"cse", "default"}),
    ("completions ", {"bash", "zsh", "fish", "tcsh"}),
    ("di", {"diff"}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("completions")


def script(folder: Path, shell: str, capsys: pytest.CaptureFixture[str]) -> Path:
    path = folder / {"zsh": "_npu"}.get(shell, f"npu.{shell}")
    if not path.exists():
        assert main(["completions", shell]) == 0
        path.write_text(capsys.readouterr().out)
    return path


def answer(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@each_row("line, names", NAMES)
def test_bash_completes_names(
    line: str, names: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = " ".join(f"'{word}'" for word in f"npu {line}".split(" "))

    found = answer(["bash", "-c", _ASK_BASH.format(script=script(folder, "bash", capsys), words=words)])

    assert names <= set(found.split())


def test_other_names_remain_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completions", "bash"])
    capsys.readouterr()

    assert main(["run", "net.json", "--on", "nobody"]) == 2
    assert "there is no runner 'nobody'" in capsys.readouterr().err


def test_a_shell_that_shtab_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shtab.SUPPORTED_SHELLS", ["bash", "zsh", "tcsh"])

    assert main(["completions", "fish"]) == 2

    error = capsys.readouterr().err
    assert "has no completions for fish\n  fix: python -m pip install --upgrade shtab" in error
