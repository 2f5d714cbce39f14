"""Steps from the cache: the same to the bit as traced ones, and never used where anything is another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.checkpoint import checkpoint

from npu_runtime import TrainStep, compile_and_capture
from npu_runtime.training.cache.stored_step import StoredBranch
from tests.npu_runtime.training.cache.small_step import BATCH, Net, note, parts
from tests.support.training.cases import case_named
from tests.support.training.eager import full_state
from tests.support.training.full_state import bits, require_same
from tests.support.training.optimizers import recipe_named

WITH_HOST = pytest.mark.skipif(find_spec("npu_cuda") is None, reason="npu-cuda is not installed")
BACKENDS = ["aten", pytest.param("host", marks=WITH_HOST)]


def with_backends(rows: Mapping[str, Any]) -> list[ParameterSet]:
    """Return each row with each backend; of these, the exhaustive tier alone runs every second one."""
    found = []
    for number, (name, row) in enumerate(rows.items()):
        for place, backend in enumerate(("aten", "host")):
            marks = [WITH_HOST] if backend == "host" else []
            marks += [pytest.mark.exhaustive] if (number + place) % 2 else []
            found.append(pytest.param(row, backend, id=f"{name}-{backend}", marks=marks))
    return found


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: Any, batches: Any
) -> dict[str, torch.Tensor]:
    """Return everything that training leaves: the losses, the state, the random generator."""
    torch.manual_seed(3)
    scheduler = StepLR(optimizer, 2, 0.5)
    losses = []
    for batch in batches:
        result = step(*batch)
        losses.append(result[0] if isinstance(result, (tuple, list)) else result)
        scheduler.step()
    state = full_state(model, optimizer)
    return {"losses": torch.stack(losses), "random": torch.get_rng_state(), **state}


RECIPES = ["SGD, nesterov", "Adam, amsgrad", "AdamW, amsgrad, maximize", "NAdam", "ASGD"]


@pytest.mark.parametrize(("recipe", "backend"), with_backends(dict(zip(RECIPES, RECIPES, strict=True))))
def test_a_loaded_step_trains_as_a_traced_one(steps, recipe, backend):
    case = case_named("mlp")
    results = []
    for options in ({"cache": False}, {"cache": True}, {"cache": True}):
        model = case.model()
        optimizer = recipe_named(recipe).make(case, model)
        step = TrainStep(model, optimizer, case.loss, backend=backend, **options)
        results.append((train(model, optimizer, step, case.batches(5)), note(step)))

    (traced, nothing), (stored, first), (loaded, second) = results
    assert (nothing, first.split()[0], second.split()[0]) == ("", "stored", "loaded")
    require_same(stored, traced)
    require_same(loaded, traced)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_recurrent_model_is_loaded(steps, backend):
    case = case_named("lstm")
    results = []
    for cache in (False, True, True):
        model = case.model()
        optimizer = recipe_named("Adam").make(case, model)
        step = TrainStep(model, optimizer, case.loss, backend=backend, cache=cache)
        results.append((train(model, optimizer, step, case.batches(3)), note(step)))

    assert [text.partition(" ")[0] for _, text in results] == ["", "stored", "loaded"]
    require_same(results[1][0], results[0][0])
    require_same(results[2][0], results[0][0])


OPTIONS: dict[str, dict[str, Any]] = {
    "accumulation": {"accumulate": 2},
    "clipping": {"clip_grad_norm": 0.1, "clip_grad_value": 0.01},
    "autocast": {"autocast": torch.bfloat16},
    "a memory budget": {"memory_budget_bytes": 1 << 20},
    "no passes": {"passes": None},
    "no capture": {"capture": "off"},
}


@pytest.mark.parametrize(("options", "backend"), with_backends(OPTIONS))
def test_options_give_the_same_from_the_cache(steps, options, backend):
    results = []
    for cache in (False, True, True):
        model, optimizer = parts()
        step = TrainStep(model, optimizer, F.mse_loss, backend=backend, cache=cache, **options)
        results.append((train(model, optimizer, step, [BATCH] * 4), note(step)))

    assert [text.partition(" ")[0] for _, text in results] == ["", "stored", "loaded"]
    require_same(results[1][0], results[0][0])
    require_same(results[2][0], results[0][0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_function_with_a_scaled_loss_is_loaded(steps, backend):
    def make() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        model, optimizer = parts()
        scale = 1024.0

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            (loss * scale).backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= scale
            optimizer.step()
            return loss

        return model, optimizer, step

    results = []
    for cache in (False, True, True):
        model, optimizer, function = make()
        step = TrainStep(function, backend=backend, cache=cache)
        results.append((train(model, optimizer, step, [BATCH] * 3), note(step)))

    assert [text.partition(" ")[0] for _, text in results] == ["", "stored", "loaded"]
    require_same(results[2][0], results[0][0])


def test_training_resumes_from_a_checkpoint_with_a_loaded_step(steps):
    model, optimizer = parts()
    step = TrainStep(model, optimizer, F.mse_loss, cache=True)
    for _ in range(2):
        step(*BATCH)
    state = torch.utils._pytree.tree_map(
        lambda item: item.clone() if isinstance(item, torch.Tensor) else item, step.state_dict()
    )
    torch.manual_seed(5)
    wanted = [bits(step(*BATCH)) for _ in range(3)]

    other, its_optimizer = parts(rate=0.5)
    resumed = TrainStep(other, its_optimizer, F.mse_loss, cache=True)
    resumed.load_state_dict(state)
    torch.manual_seed(5)
    found = [bits(resumed(*BATCH)) for _ in range(3)]

    assert note(resumed).startswith("loaded")
    assert found == wanted


def test_guards_of_a_loaded_step_trace_again(steps):
    for _ in range(2):
        model, optimizer = parts()
        step = TrainStep(model, optimizer, F.mse_loss, cache=True)
        step(*BATCH)
        first = note(step)
        model.drop.p = 0.5
        step(*BATCH)
        other_rate = note(step)
        model.eval()
        step(*BATCH)
        evaluated = note(step)
        step(BATCH[0][:3], BATCH[1][:3])
        shorter = note(step)

    files = {text.rpartition(" ")[2] for text in (first, other_rate, evaluated, shorter)}
    assert len(files) == 4
    assert all(text.startswith("loaded") for text in (first, other_rate, evaluated, shorter))


def test_another_learning_rate_uses_the_same_file(steps):
    for rate in (0.01, 0.2):
        model, optimizer = parts(rate)
        step = TrainStep(model, optimizer, F.mse_loss, cache=True)
        step(*BATCH)
    plain_model, plain_optimizer = parts(0.2)
    TrainStep(plain_model, plain_optimizer, F.mse_loss)(*BATCH)

    assert note(step).startswith("loaded")
    assert len(list(steps.iterdir())) == 1
    require_same(full_state(model, optimizer), full_state(plain_model, plain_optimizer))


def test_a_branch_on_a_number_is_not_taken_from_the_cache(steps):
    notes = []
    for decay in (0.1, 0.0, 0.2):
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=decay)
        step = TrainStep(model, optimizer, F.mse_loss, cache=True)
        step(*BATCH)
        notes.append(note(step).split()[0])

    assert notes == ["stored", "stored", "loaded"]


@pytest.mark.parametrize(
    ("relation", "values", "holds"),
    [
        (("!=", "a", 0.0), {"a": 0.1}, True),
        (("!=", "a", 0.0), {"a": 0.0}, False),
        ((">", "a", "b"), {"a": 2.0, "b": 1.0}, True),
        (("<=", 1.0, "a"), {"a": 0.5}, False),
    ],
)
def test_stored_branches_hold_as_traced_ones(relation, values, holds):
    branch = StoredBranch("text", *relation)

    assert branch.holds(values) is holds
    assert branch.names == {item for item in relation[1:] if isinstance(item, str)}


def checkpointed_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    hidden = checkpoint(torch.tanh, output, use_reentrant=False)
    return F.mse_loss(hidden, target)


def test_a_step_with_a_checkpoint_is_loaded(steps):
    first = TrainStep(*parts(), checkpointed_loss, cache=True)
    second = TrainStep(*parts(), checkpointed_loss, cache=True)

    losses = []
    for step in (first, second):
        torch.manual_seed(3)  # of the dropout
        losses.append(step(*BATCH))

    assert note(second).startswith("loaded from "), note(first)
    assert torch.equal(*losses)


def test_an_artifact_is_compiled_from_the_cache(steps):
    for _ in range(2):
        model, optimizer = parts()
        artifact = compile_and_capture(model, optimizer, F.mse_loss, BATCH, cache=True)
    artifact.replay(*BATCH)

    assert artifact.cache_note.startswith("loaded from ")
    assert artifact.capture_state == "planned"


SCRIPT = """\
import torch
from npu_runtime import TrainStep
FACTOR = 2.0

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x) * FACTOR

def loss_fn(y, t):
    return ((y - t) ** 2).mean()

torch.manual_seed(0)
model = Net()
step = TrainStep(model, torch.optim.AdamW(model.parameters()), loss_fn, cache=True)
loss = step(torch.ones(4, 3), torch.ones(4, 2))
print(step.artifact.cache_note.split()[0], loss.item())
"""


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)


# One process runs a script, writes another text into it and runs it again.
RUN_AGAIN = """\
import runpy, sys
path, text = sys.argv[1:]
runpy.run_path(path, run_name="__main__")
open(path, "w").write(text)
runpy.run_path(path, run_name="__main__")
"""


def test_other_processes_load_a_step_until_its_source_is_edited(steps, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    first = start(str(script)).communicate()[0].split()

    lines = start("-c", RUN_AGAIN, str(script), SCRIPT.replace("2.0", "3.0")).communicate()[0].splitlines()

    second, third = (line.split() for line in lines)
    assert (first[0], second[0], third[0]) == ("stored", "loaded", "stored")
    assert first[1] == second[1] != third[1]


@pytest.mark.exhaustive
def test_processes_may_write_at_the_same_time(steps, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    outputs = [process.communicate()[0].split() for process in [start(str(script)) for _ in range(3)]]

    assert len({loss for _, loss in outputs}) == 1
    assert [path.suffix for path in steps.iterdir()] == [".safetensors"]
    assert start(str(script)).communicate()[0].split() == ["loaded", outputs[0][1]]
