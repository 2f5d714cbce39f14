"""Contract tests of fixed memory: `Backend.bind`, `Backend.capture` and `Backend.replay`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_ir.core.storage import copy_with_strides, flat_view
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Captured
from npu_runtime.testing.data import has_same_bytes, invert_bytes, shared_pairs, storage_bytes
from npu_runtime.testing.trials import Trial, Trials, error_context

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module


class BindContract(Trials):
    """The promises of `bind`."""

    def test_a_bound_program_computes_in_the_memory_that_it_was_given(self) -> None:
        for trial in self.trials():
            inputs, outputs, compute = _bind(trial)
            for seed in (1, 2):
                given = trial.inputs(seed=seed)
                _feed(inputs, given)
                before = storage_bytes(inputs)
                _call(trial, compute)
                trial.require(outputs, given, "the outputs that a program was bound to")
                if not has_same_bytes(before, storage_bytes(inputs)):
                    raise BackendError(
                        "a bound program writes into its inputs",
                        where=trial.name,
                        fix="write into the outputs and memory of the program only",
                    )

    def test_bindings_and_runs_have_nothing_in_common(self) -> None:
        for trial in self.trials():
            inputs, outputs, compute = _bind(trial)
            _, others, other = _bind(trial)
            _feed(inputs, trial.inputs(seed=1))
            _call(trial, compute)
            invert_bytes(others)
            trial.run(trial.inputs(seed=2))
            trial.require(outputs, trial.inputs(seed=1), "a binding, after a run and a call of another")
            _call(trial, other)
            trial.require(others, trial.inputs(seed=0), "a binding whose outputs were written to")


def _bind(trial: Trial) -> tuple[list[Any], list[Any], Callable[[], None]]:
    """Return inputs, overwritten outputs, and the callable bound to both."""
    inputs = [copy_with_strides(item) for item in trial.inputs(seed=0)]
    outputs = [copy_with_strides(item) for item in trial.run(trial.inputs(seed=0))]
    invert_bytes(outputs)
    with error_context("bind", trial.name), torch.no_grad():
        return inputs, outputs, trial.backend.bind(trial.program, inputs, outputs)


def _call(trial: Trial, compute: Callable[[], None]) -> None:
    with error_context("what bind returned", trial.name), torch.no_grad():
        compute()


def _feed(fixed: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Copy the inputs of a further call into the fixed inputs."""
    for target, item in zip(fixed, inputs, strict=True):
        if isinstance(target, torch.Tensor):
            flat_view(target).copy_(flat_view(item))


class CaptureContract(Trials):
    """The promises of `capture` and `replay`."""

    def test_a_capture_has_results_and_memory_of_its_own(self) -> None:
        for trial in self.trials():
            inputs = trial.inputs()
            before = storage_bytes(inputs)
            captured = _capture(trial, inputs)
            if not has_same_bytes(before, storage_bytes(inputs)) or shared_pairs(inputs, captured.inputs):
                raise BackendError(
                    "capture ties the program to the memory of the caller",
                    where=trial.name,
                    fix="copy the inputs",
                )
            trial.require(captured.outputs, inputs, "the outputs of a capture")

    def test_replay_computes_in_fixed_memory(self) -> None:
        for trial in self.trials():
            captured = _capture(trial, trial.inputs(seed=0))
            addresses = _addresses(captured)
            for seed in (1, 2):
                inputs = trial.inputs(seed=seed)
                _feed(captured.inputs, inputs)
                _replay(trial, captured)
                trial.require(captured.outputs, inputs, "replay after new inputs were written")
                if addresses != _addresses(captured):
                    raise BackendError(
                        "replay moved an input or output to other memory",
                        where=trial.name,
                        fix="copy results into captured.outputs",
                    )

    def test_replay_leaves_its_inputs_as_they_are(self) -> None:
        for trial in self.trials():
            captured = _capture(trial, trial.inputs())
            before = storage_bytes(captured.inputs)
            _replay(trial, captured)
            if not has_same_bytes(before, storage_bytes(captured.inputs)):
                raise BackendError(
                    "replay writes into the inputs",
                    where=trial.name,
                    fix="compute in captured.outputs, or in memory of the capture",
                )

    def test_captures_and_runs_have_nothing_in_common(self) -> None:
        for trial in self.trials():
            first, second = (_capture(trial, trial.inputs(seed=seed)) for seed in (0, 1))
            _replay(trial, second)
            invert_bytes(trial.run(trial.inputs(seed=2)))
            trial.require(
                first.outputs, trial.inputs(seed=0), "a capture, after a run and the replay of another"
            )
            _replay(trial, first)
            trial.require(
                first.outputs, trial.inputs(seed=0), "replay, after a run and the replay of another"
            )


def _capture(trial: Trial, inputs: Sequence[Any]) -> Captured:
    with error_context("capture", trial.name), torch.no_grad():
        return trial.backend.capture(trial.program, inputs)


def _replay(trial: Trial, captured: Captured) -> None:
    with error_context("replay", trial.name), torch.no_grad():
        trial.backend.replay(captured)


def _addresses(captured: Captured) -> list[int]:
    items = (*captured.inputs, *captured.outputs)
    return [item.data_ptr() for item in items if isinstance(item, torch.Tensor)]
