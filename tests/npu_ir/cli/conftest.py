"""Commands, run in a folder that holds the models of the test file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from npu_ir.cli import main


@pytest.fixture
def npu(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, requires its exit code, and returns what it printed on stdout and then on stderr."""

    def run(command: str, *words: str, code: int = 0) -> str:
        assert main([*shlex.split(command), *words]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the ``FILES`` of the test module, and what the commands of its ``SETUP`` write."""
    folder = tmp_path_factory.mktemp("cli")
    for name, text in getattr(request.module, "FILES", {}).items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        torch.manual_seed(0)
        for command in getattr(request.module, "SETUP", ()):
            assert main(shlex.split(command)) == 0
    return folder


@pytest.fixture(autouse=True)
def _in_folder(
    folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    models = {name.removesuffix(".py") for name in getattr(request.module, "FILES", {})}
    for name in [name for name in sys.modules if name.partition(":")[0] in models]:
        del sys.modules[name]
