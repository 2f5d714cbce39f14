"""Files that are not used, steps that are not stored, and what is said of both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from npu_runtime import CacheWarning, TrainStep
from tests.npu_runtime.training.cache.small_step import BATCH, note, parts
from tests.support.training.full_state import bits

DAMAGES = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "cut at its end": lambda data: data[:-1],
    "a changed byte": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "another file": lambda data: b"not a step at all",
    "no entry": lambda data: (2).to_bytes(8, "little") + b"{}",
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return the file of a step, its content, and the loss that the step computes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPU_CACHE", str(tmp_path_factory.mktemp("stored")))
        step = TrainStep(*parts(), F.mse_loss, cache=True)
        loss = bits(step(*BATCH))
    file = Path(note(step).removeprefix("stored in "))
    return file.name, file.read_bytes(), loss


@pytest.mark.parametrize("damage", [pytest.param(item, id=name) for name, item in DAMAGES.items()])
def test_a_damaged_file_is_ignored_and_replaced(steps, stored, damage):
    name, content, wanted = stored
    steps.mkdir(parents=True)
    (steps / name).write_bytes(damage(content))

    step = TrainStep(*parts(), F.mse_loss, cache=True)
    with pytest.warns(CacheWarning, match="a damaged file in the cache of training steps is replaced"):
        loss = bits(step(*BATCH))

    assert note(step) == f"stored in {steps / name}"
    assert loss == wanted
    assert (steps / name).read_bytes() == content


def test_a_replaced_file_is_loaded(steps, stored):
    name, content, wanted = stored
    steps.mkdir(parents=True)
    (steps / name).write_bytes(content)

    step = TrainStep(*parts(), F.mse_loss, cache=True)

    assert bits(step(*BATCH)) == wanted
    assert note(step) == f"loaded from {steps / name}"


def test_a_file_of_another_key_is_ignored(steps):
    model, optimizer = parts()
    step = TrainStep(model, optimizer, F.mse_loss, cache=True)
    step(*BATCH)
    step(BATCH[0][:4], BATCH[1][:4])
    first, second = steps.iterdir()
    first.write_bytes(second.read_bytes())

    model, optimizer = parts()
    step = TrainStep(model, optimizer, F.mse_loss, cache=True)
    with pytest.warns(CacheWarning, match="it is a step of another key"):
        _take_both(step)


def _take_both(step: TrainStep) -> None:
    step(*BATCH)
    step(BATCH[0][:4], BATCH[1][:4])


def test_caches_can_be_off(monkeypatch):
    monkeypatch.setenv("NPU_CACHE", "off")
    model, optimizer = parts()
    step = TrainStep(model, optimizer, F.mse_loss, cache=True)

    step(*BATCH)

    assert "cache: not stored: NPU_CACHE turns caches off" in step.explain()


def test_a_relative_folder_is_warned_of(monkeypatch):
    monkeypatch.setenv("NPU_CACHE", "cache")
    step = TrainStep(*parts(), F.mse_loss, cache=True)

    with pytest.warns(CacheWarning, match="not stored: NPU_CACHE=cache is relative"):
        step(*BATCH)

    assert "not stored: NPU_CACHE=cache is relative" in note(step)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NPU_CACHE", str(tmp_path / "file" / "cache"))
    model, optimizer = parts()
    step = TrainStep(model, optimizer, F.mse_loss, cache=True)

    step(*BATCH)

    assert note(step).startswith("not stored: ")


def test_explain_says_why_a_step_is_not_stored(steps):
    import os

    model, optimizer = parts()
    step = TrainStep(model, optimizer, lambda y, t: F.mse_loss(y, t) * len(os.sep), cache=True)

    step(*BATCH)

    assert "cache: not stored: the module os may read the environment" in step.explain()
    assert not steps.exists()


def test_a_step_that_changes_what_it_reads_is_not_stored(steps):
    calls: list[int] = []

    def loss_fn(y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return F.mse_loss(y, t) * len(calls)

    model, optimizer = parts()
    step = TrainStep(model, optimizer, loss_fn, cache=True)

    step(*BATCH)

    assert note(step) == "not stored: the trace has changed something that it depends on"
    assert not steps.exists()


def test_foreign_kernels_prevent_the_cache(steps):
    library = torch.library.Library("aten", "IMPL")
    model, optimizer = parts()
    step = TrainStep(model, optimizer, F.mse_loss, cache=True)
    try:
        library.impl("_cdist_forward", lambda *args: None, "CPU")
        step(*BATCH)
    finally:
        library._destroy()

    assert "torch.library has other kernels: aten/_cdist_forward/CPU" in note(step)


def test_kernels_of_a_library_that_a_module_of_pytorch_holds_do_not_prevent_the_cache(steps, monkeypatch):
    library = torch.library.Library("aten", "IMPL")
    monkeypatch.setattr(torch.nn.functional, "_kernels", library, raising=False)
    step = TrainStep(*parts(), F.mse_loss, cache=True)
    try:
        library.impl("_cdist_forward", lambda *args: None, "FuncTorchDynamicLayerFrontMode")
        step(*BATCH)
    finally:
        library._destroy()

    assert note(step).startswith("stored in ")


def test_kernels_that_pytorch_adds_for_vmap_do_not_prevent_the_cache(steps):
    torch.func.vmap(torch.sin)(torch.ones(2))
    step = TrainStep(*parts(), F.mse_loss, cache=True)

    step(*BATCH)

    assert note(step).startswith("stored in ")


def test_a_changed_source_prevents_the_cache(steps, monkeypatch):
    from npu_runtime.training.cache import environment

    monkeypatch.setattr(environment, "process_start", lambda: 0.0)
    model, optimizer = parts()
    step = TrainStep(model, optimizer, F.mse_loss, cache=True)

    step(*BATCH)

    assert "has changed since this process began" in note(step)
