"""The Python functions on sizes and other numbers, by the op type of their nodes.

torch.export leaves them in programs with symbolic sizes: ``operator.add``, ``math.ceil``,
``torch.sym_max``. They take and return numbers, never tensors, and have no side effects.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

_MODULES: dict[Any, str] = {
    operator: (
        "add sub mul truediv floordiv mod pow neg pos abs eq ne lt le gt ge and_ or_ xor not_ lshift rshift"
    ),
    math: "ceil floor trunc sqrt pow exp log log2 sin cos tan sinh cosh tanh asin acos atan fabs",
    builtins: "abs bool float int max min pow round",
    torch: (
        "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum _sym_sqrt _sym_cos _sym_cosh "
        "_sym_sin _sym_sinh _sym_tan _sym_tanh _sym_asin _sym_acos _sym_atan _sym_log2"
    ),
}

SCALAR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module, names in _MODULES.items()
    for name in names.split()
    if hasattr(module, name)
}
# By identity: some are in two modules under two names (math.sqrt of sizes is torch.sym_sqrt).
_NAMES = {id(function): name for name, function in reversed(SCALAR_FUNCTIONS.items())}


def scalar_function_name(function: object) -> str | None:
    """Return the name of one of these functions; None for anything else."""
    if getattr(function, "__name__", "") == "cast_symbool_to_symint_guardless":
        return "builtins.int"
    return _NAMES.get(id(function))
