"""Commands, run in a folder that holds the models of the test file."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
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


@contextlib.contextmanager
def _models_of(files: Iterable[str]) -> Iterator[pytest.MonkeyPatch]:
    """Forget the modules that are loaded from these files, and what they do to the path."""
    names, known = {name.removesuffix(".py") for name in files}, set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        yield patch
    for name in [name for name in sys.modules if name.partition(":")[0] in names and name not in known]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the ``FILES`` of the test module, and what the commands of its ``SETUP`` write."""
    folder = tmp_path_factory.mktemp("cli")
    files = getattr(request.module, "FILES", {})
    for name, text in files.items():
        (folder / name).write_text(text)
    with _models_of(files) as patch:
        patch.chdir(folder)
        torch.manual_seed(0)
        for command in getattr(request.module, "SETUP", ()):
            assert main(shlex.split(command)) == 0
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    with _models_of(getattr(request.module, "FILES", {})) as patch:
        patch.chdir(folder)
        yield
