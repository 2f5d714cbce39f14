"""Shell completions: commands, options, files, and the names that options take."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import termios
from collections.abc import Iterator
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
    """Holds the script for each shell."""
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


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@each_row("line, names", NAMES)
def test_fish_completes_names(
    line: str, names: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(folder, "fish", capsys)

    found = answer(["fish", "--no-config", "-c", f"source {path}; complete -C 'npu {line}'"])

    assert names <= {text.split("\t")[0] for text in found.splitlines()}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@each_row("line, names", NAMES[:2])
def test_zsh_completes_names(
    line: str, names: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(folder, "zsh", capsys)
    setup = f"PS1=; fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; print 'RE''ADY'\n"

    with zsh_in_a_terminal() as terminal:
        os.write(terminal, setup.encode())
        seen(terminal, {"READY"})
        os.write(terminal, f"npu {line}\t".encode())
        found = seen(terminal, names)

    assert all(name in found for name in names)


@contextlib.contextmanager
def zsh_in_a_terminal() -> Iterator[int]:
    """Start a zsh that completes, which it does on a terminal only, and yield the other end of that."""
    terminal, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=device, stdout=device, stderr=device, start_new_session=True
    )
    os.close(device)
    try:
        yield terminal
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def seen(terminal: int, words: set[str]) -> str:
    """Return what is on the terminal once all the words are, or nothing more comes."""
    text = ""
    while not all(word in text for word in words) and select.select([terminal], [], [], 20)[0]:
        text += os.read(terminal, 1 << 16).decode(errors="replace")
    return text


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
