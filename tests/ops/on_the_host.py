"""Run calls of every OpInfo operator on the native backend of the CPU, and compare with eager.

``python -m tests.ops.on_the_host`` prints what is wrong; its exit code is 1 if anything is. Integers and
booleans are equal; other numbers are within the tolerances of ``torch.testing``, or nearer to what PyTorch
computes in double precision than twice eager's error.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch

import npu_ir
from npu_ir._torch.pytree import tree_leaves
from npu_ir.core.structure import unflatten
from npu_ir.testing import OpCall
from npu_ir.testing.op_calls import UNINITIALIZED
from npu_runtime import IRExecutor
from tests.ops.cases import FUNCTION, SEED, Budget, OpModule, print_problems
from tests.ops.pipe import ROUNDED_OTHERWISE
from tests.support.coverage_runs.outcomes import first_line

BUDGET = Budget(main={FUNCTION: 6}, other={FUNCTION: 2})


def problem_of(call: OpCall) -> str | None:
    """Return what is wrong with the result of a call; "" if nothing is.

    None if eager or export refuse the call, or none of its ops is native.
    """
    tensors = call.fresh_tensors()
    try:
        expected = _run_eagerly(call, tensors)
        graph = npu_ir.extract_ir(OpModule(call), call.fresh_tensors(), name="op")
    except Exception:  # noqa: BLE001 - tests.ops.run_all tells these refusals apart
        return None
    executor = IRExecutor(graph, backend="host")
    if all(part.program is None for part in executor.lowered.partitions):
        return None
    torch.manual_seed(SEED)
    leaves, _ = executor.run_flat(call.fresh_tensors())
    actual = unflatten(graph.results[0], leaves)
    if call.operator in UNINITIALIZED or (call.operator, call.variant) in ROUNDED_OTHERWISE:
        return ""
    pairs = zip(tree_leaves(actual), tree_leaves(expected), strict=True)
    errors = [_error_of(*pair) for pair in pairs]
    return next(filter(None, errors), "") and _without_rounding(call, actual, expected, errors)


def _run_eagerly(call: OpCall, tensors: tuple[torch.Tensor, ...]) -> Any:
    args, kwargs = call.arguments(tensors)
    torch.manual_seed(SEED)
    return call.function(*args, **kwargs)


def _error_of(actual: Any, expected: Any) -> str:
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def _without_rounding(call: OpCall, actual: Any, expected: Any, errors: list[str]) -> str:
    """Return the first error that is not one of rounding."""
    precise = tree_leaves(_run_eagerly(call, tuple(map(_as_precise, call.fresh_tensors()))))
    for ours, theirs, exact, error in zip(
        tree_leaves(actual), tree_leaves(expected), precise, errors, strict=True
    ):
        if error and not _is_nearer(ours, theirs, exact):
            return error
    return ""


def _as_precise(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _is_nearer(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape or not theirs.is_floating_point():
        return False
    own, others = ((item.double() - exact).abs().max() for item in (ours, theirs))
    return bool(own <= 2 * others < torch.inf)


def outcome_of(call: OpCall) -> tuple[str, str]:
    try:
        problem = problem_of(call)
    except Exception as error:  # noqa: BLE001 - reported, like a wrong result
        problem = f"{type(error).__name__}: {first_line(error)}"
    return "not native" if problem is None else "wrong" if problem else "right", problem or ""


def main() -> int:
    warnings.simplefilter("ignore")
    return print_problems(outcome_of, BUDGET)


if __name__ == "__main__":
    sys.exit(main())
