"""Copies that backends work on: strides stay, and memory holds the values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from npu_ir._torch.tensors import negated_view
from npu_ir.plugins.backend import copy_memory, copy_with_strides

LAYOUTS = [
    pytest.param((4, 3), (3, 1), id="dense"),
    pytest.param((2, 3), (6, 2), id="gaps"),
    pytest.param((3, 4), (0, 2), id="expanded"),
    pytest.param((3, 2), (1, 1), id="windows"),
]
LAZY = [
    pytest.param(torch.conj, id="conjugated"),
    pytest.param(negated_view, id="negated"),
    pytest.param(lambda x: negated_view(x.conj()), id="both"),
]


@pytest.mark.parametrize("lazily", LAZY)
@pytest.mark.parametrize(("shape", "strides"), LAYOUTS)
def test_the_copy_of_a_lazy_tensor_holds_its_values_in_the_same_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], lazily: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    item = lazily(torch.randn(12, dtype=torch.complex64).as_strided(shape, strides))
    target = copy_with_strides(torch.zeros(12, dtype=torch.complex64).as_strided(shape, strides))

    copy = copy_with_strides(item)
    copy_memory(item, target)

    for found in (copy, target):
        assert torch.equal(found, item)
        assert found.stride() == strides
        assert not found.is_conj()
        assert not found.is_neg()
