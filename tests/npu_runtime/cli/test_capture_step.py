"""Files, output and refusals of ``npu capture-step``."""

import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npu_ir import Value, load_ir, load_weights, parse_ir
from npu_ir.cli import main
from npu_runtime import IRExecutor
from tests.support.corpus.comparison import assert_same
from tests.support.training.eager import full_state, step_by_hand

Capture = pytest.CaptureFixture[str]

STEPS = """
import torch
from torch.nn.functional import mse_loss

def parts():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    batch = torch.randn(5, 3), torch.randn(5, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.25), batch

def make():
    model, optimizer, batch = parts()
    return model, optimizer, mse_loss, batch

def clipped():
    model, optimizer, batch = parts()
    return {
        "model": model, "optimizer": optimizer, "loss_fn": mse_loss, "example_batch": batch,
        "clip_grad_norm": 0.5,
    }

def written(factor):
    model, optimizer, (x, y) = parts()

    def step(x, y):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y) * factor
        loss.backward()
        optimizer.step()
        return loss

    return step, (x, y)

def model_alone():
    return torch.nn.Linear(3, 4)

def three():
    return 1, 2, 3

def no_batch():
    return {"model": torch.nn.Linear(3, 4)}

def misspelt():
    return {"model": torch.nn.Linear(3, 4), "example_batch": (), "clip_norm": 1.0}

def broken():
    raise ValueError("no data here")

def of_another_width():
    model, optimizer, (_, y) = parts()
    return model, optimizer, mse_loss, (torch.randn(5, 7), y)



number = 7
"""


@pytest.fixture
def _steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "capture_steps.py").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [name for name in sys.modules if name.partition(":")[0] == "capture_steps"]:
        del sys.modules[name]


def captured(*words: str) -> int:
    return main(["capture-step", *words])


@pytest.mark.usefixtures("_steps")
@pytest.mark.parametrize("passes", [[], ["--passes", "default"]])
def test_a_saved_step_trains_as_pytorch_does(passes: list[str], capsys: Capture) -> None:
    assert captured("capture_steps.py:make", "-o", "step.json", "--save-weights", *passes) == 0

    printed = capsys.readouterr().out
    assert "optimizer state  6 tensors, 34 elements" in printed
    assert "step.weights.safetensors" in printed
    graph = load_ir("step.json")
    executor = IRExecutor(graph, load_weights("step.json", graph))
    made: dict[str, Any] = {}
    exec(STEPS, made)
    model, optimizer, loss_fn, (x, y) = made["make"]()
    names = graph.call[0].children[1].children[0].context
    leaves = dict(zip(names, graph.call[1][-len(names) :], strict=True))
    numbers = {name: 0.0 if isinstance(leaf, Value) else leaf for name, leaf in leaves.items()}
    numbers["group0.momentum"] = 0.25
    step = step_by_hand(model, optimizer, loss_fn)
    for rate in (0.5, 0.125, 0.25):
        optimizer.param_groups[0]["lr"] = rate
        got = executor(x, y, hyperparameters={**numbers, "group0.lr": rate})
        assert_same(got, step(x, y), f"the loss at rate {rate}", 1e-6)
    assert_same(executor.state_dict(), full_state(model, optimizer), "the state", 1e-6)


@pytest.mark.usefixtures("_steps")
def test_the_text_is_printed_alone(capsys: Capture) -> None:
    assert captured("capture_steps.py:written(factor=2)", "--text", "--name", "Written") == 0

    graph = parse_ir(capsys.readouterr().out)
    assert graph.name == "Written"
    assert "0.weight.momentum_buffer" in graph.optimizer_state


@pytest.mark.usefixtures("_steps")
def test_options_of_compile_ir_stand_beside_the_parts(capsys: Capture) -> None:
    assert captured("capture_steps.py:make", "--text") == captured("capture_steps.py:clipped", "--text") == 0

    plain, clipped, _ = capsys.readouterr().out.split("\n}\n")
    assert "_foreach_norm" not in plain
    assert "_foreach_norm" in clipped


@pytest.mark.usefixtures("_steps")
def test_stages_are_dumped(tmp_path: Path, capsys: Capture) -> None:
    assert captured("capture_steps.py:make", "--dump", "stages") == 0

    assert "stages/20_ir.txt" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "stages").iterdir())
    stages = ("20_ir", "30_lowered", "31_op_attrs")
    assert names == [f"{stage}.{ending}" for stage in stages for ending in ("json", "txt")]


@pytest.mark.usefixtures("_steps")
@pytest.mark.parametrize(("words", "code", "message"), [
    ("model_alone", 1, "capture_steps.py:model_alone returns Linear, not a training step (at "),
    ("three", 1, "returns a tuple of 3, not a training step"),
    ("no_batch", 1, "the dict of capture_steps.py:no_batch has no 'example_batch' (at "),
    ("misspelt", 1, "the dict of capture_steps.py:misspelt has 'clip_norm', which is not a part of a"),
    ("broken", 1, "capture_steps.py:broken failed: ValueError: no data here"),
    ("number", 2, "capture_steps.py:number is int\n  fix: name a function or class"),
    ("nothing", 2, "capture_steps.py has no nothing"),
    ("make --save-weights", 2, "--save-weights needs a place\n  fix: give -o FILE"),
    ("make --passes nothing", 2, "'nothing'"),
])  # fmt: skip
def test_what_makes_no_step_is_refused(words: str, code: int, message: str, capsys: Capture) -> None:
    assert captured(*f"capture_steps.py:{words}".split()) == code

    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("_steps")
def test_a_step_of_wrong_shapes_is_told_by_the_error_alone(torch_log: io.StringIO, capsys: Capture) -> None:
    assert captured("capture_steps.py:of_another_width") == 1

    assert capsys.readouterr().err.startswith(
        "npu: error: the step cannot be traced: RuntimeError: a and b must"
    )
    assert torch_log.getvalue() == ""


@pytest.fixture
def torch_log() -> Iterator[io.StringIO]:
    """What PyTorch logs of ops that fail."""
    handler, log = logging.StreamHandler(io.StringIO()), logging.getLogger("torch._subclasses.fake_tensor")
    log.addHandler(handler)
    yield handler.stream
    log.removeHandler(handler)
