"""Warnings of Python numbers that forward changes or draws, which a graph has as constants."""

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from npu_ir import extract_ir
from npu_ir.errors import CaptureWarning

X = (torch.ones(2),)


class Stateful(nn.Module):
    """A model whose forward also calls ``change`` with it."""

    scale: float = 1.0

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.change = change
        self.inner = nn.Linear(2, 2)
        self.seen = {"calls": [0]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x) * self.scale
        self.change(self)
        return y


def set_inner(model: Stateful) -> None:
    model.inner.level = 2  # type: ignore[assignment]


def count(model: Stateful) -> None:
    model.seen["calls"][0] += 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(count, r"changes seen\.calls\.0 from 0 to 1: the graph does not", id="in-containers"),
        pytest.param(set_inner, r"forward changes inner\.level from 1 to 2", id="of-a-part"),
        pytest.param(lambda _: random.random(), "draws random numbers of random: the graph", id="random"),
        pytest.param(lambda _: np.random.rand(), r"draws random numbers of numpy\.random", id="numpy"),
    ],
)
def test_a_python_number_that_forward_changes_or_draws_is_warned_of(
    change: Callable[[Any], Any], text: str
) -> None:
    model = Stateful(change)
    model.inner.level = 1  # type: ignore[assignment]

    with pytest.warns(CaptureWarning, match=text) as caught:
        extract_ir(model, X)

    assert [warning.filename for warning in caught] == [__file__]
    assert not model._forward_hooks
    assert model.seen == {"calls": [0]}


def test_numbers_that_forward_only_reads_are_no_cause_for_a_warning() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        extract_ir(Stateful(lambda model: (model.scale, model.seen, torch.rand(()))), X)

    assert [warning for warning in caught if warning.category is CaptureWarning] == []
