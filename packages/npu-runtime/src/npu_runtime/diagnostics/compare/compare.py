"""`compare`: comparison of two sides on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from npu_ir import VerificationError
from npu_ir.graph.requirement import keyword_dict, positional_tuple
from npu_runtime.diagnostics.compare.comparison import Comparison
from npu_runtime.diagnostics.compare.make_sides import make_sides, require_comparable
from npu_runtime.diagnostics.compare.reproduction import write_reproduction
from npu_runtime.diagnostics.compare.side_by_side import SideBySide
from npu_runtime.diagnostics.compare.verdicts import Judge


def compare(
    a: Any,
    b: Any,
    inputs: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    repro_dir: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Run two sides on the same inputs, and find the first value in which they differ.

    A side is an ``nn.Module`` (run eagerly), a `Graph` (run by the interpreter), an `IRExecutor`, or
    `float64` of a graph. Inner values are aligned by name and provenance, also if passes have changed a
    graph; results by position and updates by name. A difference beyond the tolerance is attributed to
    rounding if it is at most `NOISE_MULTIPLE` times the noise floor: the error of the better side against a
    run in float64, or that of simulated rounding.

    Both start from the same random state. Sides, inputs and random state are restored. The peak memory holds
    the aligned values of one side, and the live values of the other and of the float64 runs.

    Args:
        a: The trusted side: relative differences are relative to it.
        b: The side to examine.
        inputs: Positional arguments for both, in a tuple or list.
        kwargs: Keyword arguments for both.
        weights: Weights of modules and graphs by ``state_dict`` key, or a file of them. By default a module
            has its own, and a graph those of the other side. Executors have their own.
        rtol: Relative tolerance; by default that of each dtype (`npu_ir.verify.compare`).
        atol: Absolute tolerance, likewise.
        repro_dir: The folder to write the first divergence to, as a script that runs the one node.

    Raises:
        VerificationError: The sides cannot be compared, a module fails, or no reproduction can be written.
        ExecutionError: A node fails.
        WeightError: Weights do not fit a graph.
    """
    call = positional_tuple(inputs, VerificationError), keyword_dict(kwargs, VerificationError)
    _require_tolerance("rtol", rtol)
    _require_tolerance("atol", atol)
    random_state = torch.get_rng_state()
    try:
        sides = make_sides(a, b, *call, weights)
        require_comparable(*sides, *call)
        run = SideBySide(*sides, call, Judge(rtol, atol))
        torch.set_rng_state(random_state)
        comparison = run.compare()
        if repro_dir is None or run.finding is None:
            return comparison
        torch.set_rng_state(random_state)
        write_reproduction(Path(repro_dir), comparison, run.finding, sides[1], call)
        return replace(comparison, repro=Path(repro_dir))
    finally:
        torch.set_rng_state(random_state)


def _require_tolerance(name: str, tolerance: float | None) -> None:
    if tolerance is not None and not tolerance >= 0:
        raise VerificationError(f"{name} is a number from 0 on, not {tolerance}")
