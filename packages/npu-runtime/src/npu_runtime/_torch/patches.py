"""Replacements in PyTorch's objects for a block, undone at its end: a flag, weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from npu_ir._torch.patches import set_attributes


def compiler_flag() -> contextlib.AbstractContextManager[None]:
    """Set the flag of compilation: optimizers then keep numbers in tensors, instead of reading them."""
    from torch import compiler

    return set_attributes((compiler, "_is_compiling_flag", True))


@contextlib.contextmanager
def swap_weights(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Swap parameters and buffers of a module by name; tied ones stay tied, and so do modules with two names.

    `torch.func.functional_call` does not restore the tensors of a module with two names (torch 2.13).
    """
    named = (*module.named_parameters(), *module.named_buffers())
    others = {id(own): tensors[name] for name, own in named if name in tensors}
    owners: Any = [owner for part in module.modules() for owner in (part._parameters, part._buffers)]
    kept = [(owner, key, own) for owner in owners for key, own in owner.items() if id(own) in others]
    try:
        for owner, key, own in kept:
            owner[key] = others[id(own)]
        yield
    finally:
        for owner, key, own in kept:
            owner[key] = own
