"""The difference of the results of two ways to run a graph, as one number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npu_ir.core.literals import same_literal
from npu_ir.core.tensor_bytes import largest_magnitude, same_data

# The return type of `run_flat`: flat results, and updates by name.
Results = tuple[Sequence[Any], Mapping[str, torch.Tensor]]


def result_difference(wanted: Results, found: Results) -> float:
    """Return the largest difference of a result or update, relative to the largest expected element.

    It is infinite if it cannot be computed: dtypes or shapes differ, or elements are NaN or infinite in one
    only.
    """
    pairs = [
        *zip(wanted[0], found[0], strict=True),
        *((item, found[1].get(name)) for name, item in wanted[1].items()),
    ]
    return max((_relative_difference(*pair) for pair in pairs), default=0.0)


def _relative_difference(wanted: Any, found: Any) -> float:
    from npu_runtime.diagnostics.compare.metrics import measure, to_float64

    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return 0.0 if same_literal(wanted, found) else math.inf
    if same_data(wanted, found):
        return 0.0
    measured, exact = measure(found, wanted), to_float64(wanted)
    if wanted.dtype != found.dtype or exact is None or math.isnan(measured.max_abs) or measured.unlike:
        return math.inf
    return measured.max_abs / (largest_magnitude(exact) or 1.0)
