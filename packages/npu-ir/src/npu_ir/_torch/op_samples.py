"""PyTorch's own samples of operators: OpInfo, which its test suite is made of."""

from __future__ import annotations

import functools
import random
import warnings
from typing import Any

import torch

# OpInfo runs its random operators under this seed, whatever the seed around them is.
SEED = 42


@functools.cache
def operators() -> dict[str, Any]:
    """Return the operators of the database, by full name; loading it takes seconds.

    Raises:
        ImportError: This PyTorch has no such database, or a package that it needs is missing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.full_name: op for op in op_db}


def supported_dtypes(op: Any) -> set[torch.dtype]:
    return set(op.supported_dtypes("cpu"))


def sample_inputs(op: Any, dtype: torch.dtype) -> list[Any]:
    """Return the samples of an operator, with values that do not depend on what ran before."""
    import numpy as np

    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(op.sample_inputs("cpu", dtype, requires_grad=False))
