"""``npu run`` with the executor and named backends, and sources shared by several commands."""

from pathlib import Path

import pytest
import torch
from torch import nn

from npu_ir import extract_ir, save_ir
from npu_ir.cli import main


@pytest.mark.smoke
@pytest.mark.parametrize(("backend", "code", "text"), [
    pytest.param("aten", 0, "run by       executor on aten\n", id="there"),
    pytest.param("acme", 2, "npu: error: there is no backend 'acme'", id="not there"),
])  # fmt: skip
def test_run_takes_the_name_of_a_backend(
    backend: str, code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_ir(extract_ir(nn.ReLU(), (torch.randn(2),)), tmp_path / "net.json")

    assert main(["run", str(tmp_path / "net.json"), "--backend", backend]) == code

    assert text in "".join(capsys.readouterr())


class Scaled(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.scale = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


@pytest.mark.parametrize("command", [
    pytest.param(["compare"], id="compare"),
    pytest.param(["compare", "--a", "eager:{module}:Scaled"], id="compare-eager"),
    pytest.param(["opt", "--check"], id="opt"),
    pytest.param(["profile", "--repeat", "1"], id="profile"),
    pytest.param(["explain", "--time"], id="explain"),
    pytest.param(["bench", "--repeat", "1", "--model", "{module}:Scaled"], id="bench"),
    pytest.param(["bench", "--repeat", "1", "--random-weights", "1", "--model", "{module}:Scaled"],
        id="random"),
])  # fmt: skip
def test_constants_are_taken_wherever_weights_are(command: list[str], tmp_path: Path) -> None:
    with torch.device("meta"):
        save_ir(extract_ir(Scaled(), (torch.randn(1, 2),)), tmp_path / "net.json")
    torch.save({"scale": torch.tensor([2.0, 3.0])}, tmp_path / "constants.pt")
    name, *options = (word.format(module=Scaled.__module__) for word in command)
    files = [str(tmp_path / "net.json"), "--constants", str(tmp_path / "constants.pt")]

    assert main([name, *files, *options]) == 0
