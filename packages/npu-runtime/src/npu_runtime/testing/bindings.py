"""Contract tests of programs bound to the caller's memory: `Backend.bind`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_ir.errors import BackendError
from npu_ir.plugins.backend import copied
from npu_runtime.testing.data import bits, overwrite, row_of, same_bits
from npu_runtime.testing.trials import Trial, Trials, explained


class BindContract(Trials):
    """The promises of `bind`."""

    def test_a_bound_program_computes_in_the_memory_that_it_was_given(self) -> None:
        for trial in self.trials():
            inputs, outputs, compute = _bound(trial)
            for seed in (1, 2):
                given = trial.inputs(seed=seed)
                _feed(inputs, given)
                before = bits(inputs)
                _call(trial, compute)
                trial.require(outputs, given, "the outputs that a program was bound to")
                if not same_bits(before, bits(inputs)):
                    raise BackendError("a bound program writes into its inputs", where=trial.name)

    def test_bindings_and_runs_have_nothing_in_common(self) -> None:
        for trial in self.trials():
            inputs, outputs, compute = _bound(trial)
            _, others, other = _bound(trial)
            _feed(inputs, trial.inputs(seed=1))
            _call(trial, compute)
            overwrite(others)
            trial.run(trial.inputs(seed=2))
            trial.require(outputs, trial.inputs(seed=1), "a binding, after a run and a call of another")
            _call(trial, other)
            trial.require(others, trial.inputs(seed=0), "a binding whose outputs were written to")


def _bound(trial: Trial) -> tuple[list[Any], list[Any], Callable[[], None]]:
    """Return inputs, overwritten outputs, and the callable bound to both."""
    inputs = [copied(item) for item in trial.inputs(seed=0)]
    outputs = [copied(item) for item in trial.run(trial.inputs(seed=0))]
    overwrite(outputs)
    with explained("bind", trial.name), torch.no_grad():
        return inputs, outputs, trial.backend.bind(trial.program, inputs, outputs)


def _call(trial: Trial, compute: Callable[[], None]) -> None:
    with explained("what bind returned", trial.name), torch.no_grad():
        compute()


def _feed(fixed: Sequence[Any], inputs: Sequence[Any]) -> None:
    for target, item in zip(fixed, inputs, strict=True):
        if isinstance(target, torch.Tensor):
            row_of(target).copy_(row_of(item))
