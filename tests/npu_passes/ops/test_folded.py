"""``npu::fold_batch_norm`` returns what nodes of ATen in float64 do, of the types that the pass states."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_ir import TensorType
from npu_ir.graph.graph import Graph
from npu_ir.ops.inference import infer_types
from npu_passes.ops import packed
from npu_passes.ops.folded import FOLD_BATCH_NORM, folded_types
from tests.support.rows import each_row

EPS = 1e-3
KERNELS = ((), (3,), (3, 2), (2, 3, 2))


def statistics(channels: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    rows = {name: torch.randn(channels, dtype=dtype) for name in ("mean", "gamma", "beta")}
    return {**rows, "variance": torch.rand(channels, dtype=dtype) + 0.5}


def fold(
    weight: Tensor, bias: Tensor | None, norm: dict[str, Any], groups: int = 1, transposed: bool = False
) -> Any:
    return torch.ops.npu.fold_batch_norm(
        weight,
        bias,
        norm["mean"],
        norm["variance"],
        norm["gamma"],
        norm["beta"],
        EPS,
        groups if transposed else 0,
    )


def by_channel(weight: Tensor, groups: int, transposed: bool) -> list[Tensor]:
    """Return the part of a weight that makes each output channel."""
    if not transposed:
        return list(weight)
    rows = weight.shape[0] // groups
    return [part[:, column] for part in weight.split(rows) for column in range(weight.shape[1])]


@each_row("transposed, groups, kernel", itertools.product((False, True), (1, 2), KERNELS))
def test_each_channel_is_scaled_by_its_own_factor(transposed: Any, groups: Any, kernel: Any) -> None:
    weight, channels = torch.randn(4, 6, *kernel), 6 * groups if transposed else 4
    norm, bias = statistics(channels), torch.randn(channels)

    new_weight, new_bias = fold(weight, bias, norm, groups, transposed)

    wide = {name: item.double() for name, item in norm.items()}
    scale = wide["gamma"] * torch.rsqrt(wide["variance"] + EPS)
    parts = zip(
        by_channel(new_weight, groups, transposed), by_channel(weight, groups, transposed), scale, strict=True
    )
    assert all(torch.equal(new, (old.double() * factor).float()) for new, old, factor in parts)
    assert torch.equal(new_bias, ((bias.double() - wide["mean"]) * scale + wide["beta"]).float())


@each_row("has_bias, has_gamma, has_beta", itertools.product((False, True), repeat=3))
def test_what_is_missing_is_zeros_or_ones(has_bias: Any, has_gamma: Any, has_beta: Any) -> None:
    weight, bias, norm = torch.randn(4, 3, 2), torch.randn(4), statistics(4)
    neutral = {"gamma": torch.ones(4), "beta": torch.zeros(4)}
    given = {"gamma": has_gamma, "beta": has_beta}
    absent = {name: None for name, is_given in given.items() if not is_given}

    results = fold(weight, bias if has_bias else None, {**norm, **absent})

    explicit = {name: neutral[name] for name in absent}
    expected = fold(weight, bias if has_bias else torch.zeros(4), {**norm, **explicit})
    assert all(map(torch.equal, results, expected))


@each_row(
    "dtypes", itertools.product((torch.float64, torch.float32, torch.bfloat16, torch.float16), repeat=2)
)
def test_results_have_the_dtypes_of_weight_and_bias(dtypes: Any) -> None:
    weight, bias, norm = torch.randn(4, 3, 2).to(dtypes[0]), torch.randn(4).to(dtypes[1]), statistics(4)

    results = fold(weight, bias, norm)

    wide = fold(weight.double(), bias.double(), norm)
    assert [item.dtype for item in results] == list(dtypes)
    assert all(torch.equal(item, exact.to(item.dtype)) for item, exact in zip(results, wide, strict=True))


def layouts() -> dict[str, Tensor]:
    """Return weights of the same shape, by the name of their layout."""
    dense = torch.randn(4, 6, 3, 3)
    return {
        "contiguous": dense,
        "channels last": dense.to(memory_format=torch.channels_last),
        "turned": torch.randn(3, 3, 6, 4).permute(3, 2, 0, 1),
        "every second": torch.randn(4, 6, 3, 6)[..., ::2],
        "expanded": torch.randn(4, 6, 1, 1).expand(-1, -1, 3, 3),
    }


@pytest.mark.parametrize("has_bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "transposed"])
@pytest.mark.parametrize("layout", list(layouts()))
def test_results_are_of_the_types_that_are_stated(layout: str, transposed: bool, has_bias: bool) -> None:
    weight, channels = layouts()[layout], 12 if transposed else 4
    norm, bias = statistics(channels), torch.randn(channels).half() if has_bias else None
    bias_type = None if bias is None else TensorType.of(bias)

    types = folded_types(TensorType.of(weight), bias_type, channels)

    results = fold(weight, bias, norm, 2, transposed)
    is_stated = layout not in ("every second", "expanded")
    assert types == ([TensorType.of(item) for item in results] if is_stated else None)


def test_types_that_are_not_stated_are_inferred() -> None:
    weight, norm, graph = layouts()["every second"], statistics(4), Graph("types")
    tensors = {"weight": weight, **norm}
    values = [graph.add_input(name, TensorType.of(item)) for name, item in tensors.items()]
    attrs = {"bias": None, "eps": EPS, "transposed_groups": 0}

    types = infer_types(FOLD_BATCH_NORM, values, attrs, operands=list(tensors), symbols={})

    assert types == [TensorType.of(item) for item in fold(weight, None, norm)]


@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "transposed"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_large_weight_is_folded_part_by_part(
    transposed: bool, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, norm = (
        torch.randn(130, 192, 3, 3).to(memory_format=layout),
        statistics(192 if transposed else 130),
    )
    by_parts = fold(weight, None, norm, transposed=transposed)
    monkeypatch.setattr(packed, "_FEW_THREADS", 0)

    at_once = fold(weight, None, norm, transposed=transposed)

    assert all(map(torch.equal, by_parts, at_once))
    assert by_parts[0].stride() == weight.stride()


@pytest.mark.parametrize("trained", ["variance", "gamma"])
def test_statistics_of_a_large_fixed_weight_have_gradients(trained: str) -> None:
    weight, norm = torch.randn(130, 192, 3, 3), statistics(130)
    norm[trained].requires_grad_()

    (gradient,) = torch.autograd.grad([item.sum() for item in fold(weight, None, norm)], norm[trained])

    small = fold(weight.sum((1, 2, 3))[:, None], None, norm)
    (expected,) = torch.autograd.grad([item.sum() for item in small], norm[trained])
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)
