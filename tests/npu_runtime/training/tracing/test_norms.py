"""Norms of FakeTensors state the dtypes that kernels return."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from npu_runtime._torch.norms import corrected_norms

aten = torch.ops.aten


@pytest.mark.parametrize(("device", "statistics"), [("cpu", torch.bfloat16), ("cuda", torch.float32)])
def test_statistics_of_layer_norms_are_float32_on_gpus(device: str, statistics: torch.dtype) -> None:
    with corrected_norms(), FakeTensorMode():
        x = torch.empty(2, 4, dtype=torch.bfloat16, device=device)
        weight = torch.empty(4, dtype=torch.bfloat16, device=device)
        results = aten.native_layer_norm(x, [4], weight, weight, 1e-5)

    assert [item.dtype for item in results] == [torch.bfloat16, statistics, statistics]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_statistics_of_group_norms_have_the_dtype_of_the_weights(device: str) -> None:
    with corrected_norms(), FakeTensorMode():
        x = torch.empty(2, 4, 3, dtype=torch.bfloat16, device=device)
        weight = torch.empty(4, device=device)
        _, mean, rstd = aten.native_group_norm(x, weight, weight, 2, 4, 3, 2, 1e-5)

    assert (mean.dtype, rstd.dtype) == (torch.float32, torch.float32)
