"""``npu run`` with the executor and backends that are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from npu_ir import extract_ir, save_ir
from npu_ir.cli import main


@pytest.mark.parametrize(
    ("backend", "code", "text"),
    [
        pytest.param("aten", 0, "run by       executor on aten\n", id="there"),
        pytest.param("acme", 2, "npu: error: there is no backend 'acme'", id="not there"),
    ],
)
def test_run_takes_the_name_of_a_backend(
    backend: str, code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_ir(extract_ir(nn.ReLU(), (torch.randn(2),)), tmp_path / "net.json")

    assert main(["run", str(tmp_path / "net.json"), "--backend", backend]) == code

    assert text in "".join(capsys.readouterr())
