"""``npu::winograd_panels``: the values of 3 x 3 filters at the points, whichever way they are computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from npu_ir import TensorType
from npu_passes.ops import packed
from npu_passes.ops.packed import MOST_WIDTH, panels_type
from npu_passes.ops.winograd import matrices
from tests.support.rows import each_row


def as_defined(weight: Tensor, tile: int) -> Tensor:
    """Return the panels of the matrix [in, points * out], filter by filter in float64."""
    outputs, inputs = weight.shape[:2]
    filters = weight.double().reshape(outputs, inputs, 9)
    values = torch.einsum("pt,oit->ipo", matrices(tile)[1], filters).reshape(inputs, -1)
    return torch.ops.npu.pack_matrix(values.float(), MOST_WIDTH)


@each_row(
    "outputs, inputs, tile",
    {
        "small": (6, 5, 4),
        "full panels": (64, 16, 2),
        "large": (256, 200, 4),
        "large with a rest": (200, 130, 2),
    },
)
def test_panels_have_the_values_of_filters_at_the_points(outputs: Any, inputs: Any, tile: Any) -> None:
    weight = torch.randn(outputs, inputs, 3, 3)

    panels = torch.ops.npu.winograd_panels(weight, tile)

    assert TensorType.of(panels) == panels_type(
        TensorType((inputs, (tile + 2) ** 2 * outputs), weight.dtype), 64
    )
    torch.testing.assert_close(panels, as_defined(weight, tile), rtol=3e-7, atol=1e-12)


def test_weights_in_parts_and_at_once_give_the_same_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(200, 130, 3, 3).to(memory_format=torch.channels_last)
    by_parts = torch.ops.npu.winograd_panels(weight, 4)
    monkeypatch.setattr(packed, "_FEW_THREADS", 0)

    at_once = torch.ops.npu.winograd_panels(weight, 4)

    torch.testing.assert_close(by_parts, at_once, rtol=3e-7, atol=1e-12)
