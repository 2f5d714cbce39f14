"""Contract tests of programs bound to the caller's memory: `Backend.bind`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_ir.core.storage import flat_view
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import copy_with_strides
from npu_runtime.testing.data import has_same_bytes, invert_bytes, storage_bytes
from npu_runtime.testing.trials import Trial, Trials, error_context


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
                    raise BackendError("a bound program writes into its inputs", where=trial.name)

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
    for target, item in zip(fixed, inputs, strict=True):
        if isinstance(target, torch.Tensor):
            flat_view(target).copy_(flat_view(item))
