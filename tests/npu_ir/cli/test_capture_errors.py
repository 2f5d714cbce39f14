"""Errors of ``npu extract`` on models that cannot be captured, and on inputs that do not fit."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from npu_ir.cli.dynamic import suggest_options
from tests.support.rows import each_row

MODELS = """
import warnings
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x, scale=1.0):
        return self.linear(x) * scale

class Branching(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x

class Keeping(torch.nn.Module):
    last = None

    def forward(self, x):
        self.last = x * 2
        warnings.warn("of the model")
        return x + 1

class Recurrent(torch.nn.LSTM):
    def __init__(self):
        super().__init__(2, 3)

class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(512, 8))

    def forward(self, x):
        return x + self.table[: x.shape[1]]
"""

FILES = {
    "capture_models.py": MODELS,
    "ending.py": """
import sys, torch
class Ending(torch.nn.Module):
    def forward(self, x, code=0):
        sys.exit(code)
""",
}


def test_errors_and_warnings_are_short_in_a_process_of_its_own_without_numpy() -> None:
    program = """
import sys
sys.modules["numpy"] = None
from npu_ir.cli import main
for name in ("Layer", "Branching", "Recurrent", "Keeping"):
    main(["extract", f"capture_models.py:{name}", "-i", "f32[4, 3]" if name == "Layer" else "f32[4, 2]"])
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    lines = done.stderr.splitlines()
    starts = [
        "npu: error: torch.export cannot capture Layer: RuntimeError: a and b must have same reduction dim",
        "  fix: call the model in PyTorch with these arguments",
        "npu: error: torch.export cannot capture Branching: GuardOnDataDependentSymNode: Could not guard on",
        "  fix: the model decides by the content of a tensor",
        "",
        "  warnings.warn(",
        "npu: warning: forward assigns tensors to self.last: the graph does not keep them",
    ]
    assert len(lines) == len(starts), done.stderr
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True)), done.stderr
    assert lines[0].endswith(f"(at linear (Linear), {Path.cwd() / 'capture_models.py'}:11)")
    assert lines[4].endswith("UserWarning: of the model")


LAYER = "extract capture_models.py:Layer"


@each_row("command, code, said", [
    (f"{LAYER} -i 'y=f32[4, 2]'", 2,
        "gets 'y': 'x' is missing; there is no 'y'\n  fix: add -i \"x=f32[2,3]\", with its own"),
    (LAYER, 2, "gets no arguments: 'x' is missing\n"),
    (f"{LAYER} -i f32[2] -i sacle=2.0", 2, "there is no 'sacle' (did you mean 'scale'?)\n"),
    (f"{LAYER} -i f32[2] -i 1.0 -i 2", 2,
        "gets 3 by position: it takes 2 by position\n  fix: leave out what it does not take\n"),
    (f"{LAYER} -d x:0=b", 2, "gets no arguments: 'x' is missing\n"),
    (f"{LAYER} -i 'f32[4, 3]' --verbose", 1, "torch.export: failed while attempting to run meta for "),
    ("extract capture_models.py:Positions -i f32[2,5,8] -d x:1=s -d s=2..1024", 1,
        "\n  fix: write --dynamic s=..512\n"),
    ("extract ending.py:Ending -i f32[2]", 1, "the model ends the program: sys.exit(0) (at "),
    ("extract ending.py:Ending -i f32[2] -i 4", 1, "the model ends the program: sys.exit(4) (at "),
    ("extract ending.py:Ending -i f32[2] -i none", 1, "the model ends the program: sys.exit() (at "),
])  # fmt: skip
def test_what_cannot_be_captured_is_an_error_that_says_why(
    command: str, code: int, said: str, npu: Callable[..., str]
) -> None:
    printed = npu(command, code=code)

    assert said in printed
    assert ("torch.export: failed" in printed) == ("--verbose" in command)


@each_row("definition, option", [
    ("s = Dim('s', max=512)", "write --dynamic s=..512"),
    ("s = Dim('s', min=4, max=oo)", "write --dynamic s=4.."),
    ("b = 4", "leave out b, which is always 4"),
    ("b = a", "write a in place of b"),
    ("_a = Dim('_a', min=1, max=8)", ""),
    ("a = 4*_a",
        "a is always 4*_a: let FACTORY return the model and its dynamic_shapes, where a is written so")
])  # fmt: skip
def test_a_suggested_size_is_an_option(definition: str, option: str) -> None:
    assert suggest_options([definition]) == option
