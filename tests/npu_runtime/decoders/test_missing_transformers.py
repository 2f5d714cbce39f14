"""Decoders without transformers: refused, with the command that installs it."""

import sys
from pathlib import Path

import pytest

from npu_ir.cli import main
from npu_ir.errors import UsageError
from npu_runtime import extract_decoder

FIX = 'python -m pip install "npu-runtime[transformers]"'


@pytest.fixture(autouse=True)
def _without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)


def test_a_capture_says_what_to_install() -> None:
    with pytest.raises(UsageError, match="models of transformers, which is not installed") as raised:
        extract_decoder("folder")

    assert raised.value.fix == FIX


def test_npu_generate_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(tmp_path), "text"]) == 2

    assert f"  fix: {FIX}\n" in capsys.readouterr().err
