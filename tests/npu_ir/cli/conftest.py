"""Commands, run in a folder that holds the models of the test file."""

import contextlib
import functools
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_ir.cli import main
from npu_ir.plugins import plugin_manager
from tests.support.passes.plugins import Point, plugin


@pytest.fixture
def npu(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, requires its exit code, and returns what it printed on stdout and then on stderr.

    Wrong usage prints nothing on stdout.
    """

    def run(command: str, *words: str, code: int = 0) -> str:
        assert main([*shlex.split(command), *words]) == code
        printed = capsys.readouterr()
        assert code != 2 or printed.out == ""
        return printed.out + printed.err

    return run


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs plugins, given as their hooks by name, in place of those of this environment."""

    def install(disabled: str = "", **given: dict[str, Any] | Exception) -> None:
        points = [
            Point(name, hooks if isinstance(hooks, Exception) else plugin(**hooks), None)
            for name, hooks in given.items()
        ]
        load = functools.cache(lambda: plugin_manager.load(points, {disabled}))  # type: ignore[arg-type]
        monkeypatch.setattr(plugin_manager, "_load_installed", load)

    return install


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
