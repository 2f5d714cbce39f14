"""Relus run within the batch norms before them, and their gradients within those of the norms."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_cuda.backend import CudaBackend, HostBackend
from npu_cuda.backend.native import NativeBackend
from npu_ir import extract_ir
from tests.support.corpus.case import Function
from tests.support.emulator.module import needs_emulator
from tests.support.rows import each_row

HOST, CUDA = HostBackend(), CudaBackend()
aten = torch.ops.aten


def norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor, var: Tensor) -> Any:
    return aten._native_batch_norm_legit_functional(x, gamma, beta, mean, var, True, 0.1, 1e-5)


def forward(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Any:
    y, *statistics = norm(x, gamma, beta, mean, var)
    return (torch.relu(y), *statistics)


def with_given_statistics(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return torch.relu(aten.batch_norm(x, gamma, beta, mean, var, False, 0.1, 1e-5, False))


def backward(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Any:
    through_relu = aten.threshold_backward(x.flip(0), x, 0)
    wanted = [True, True, True]
    return aten.native_batch_norm_backward(through_relu, x, gamma, None, None, mean, var, True, 1e-5, wanted)


def arguments(dtype: torch.dtype = torch.float32, *, last: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(4, 6, 5, 7, dtype=dtype).to(memory_format=layout)
    numbers = torch.float64 if dtype is torch.float64 else torch.float32
    gamma, beta, mean = torch.randn(3, 6, dtype=numbers)
    return [x, gamma, beta, mean, torch.rand(6, dtype=numbers) + 0.5]


def kinds_and_results(
    function: Callable[..., Any], args: list[Tensor], backend: NativeBackend = HOST
) -> tuple[list[str], list[Tensor], list[Tensor]]:
    """Return the kinds of the ops, what they compute, and what they compute one by one."""
    graph = extract_ir(Function(function), tuple(args))
    ways = backend.lower(graph), backend.lower_one_by_one(graph)
    found, expected = (
        [item.clone() for item in backend.run(backend.prepare(graph, ops, torch.device("cpu")), list(args))]
        for ops in ways
    )
    return [op.kind for op in ways[0]], found, expected


def assert_same_bits(actual: list[Tensor], expected: list[Tensor]) -> None:
    for left, right in zip(actual, expected, strict=True):
        assert (left.dtype, left.stride()) == (right.dtype, right.stride())
        assert torch.equal(left, right)


@each_row("function", {"training": forward, "given statistics": with_given_statistics, "backward": backward})
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("last", [False, True], ids=["", "channels last"])
def test_a_relu_is_part_of_the_norm(function: Callable[..., Any], dtype: torch.dtype, last: bool) -> None:
    args = arguments(dtype, last=last)

    kinds, found, expected = kinds_and_results(function, args)

    assert not {"EltwiseRelu", "ReluBwd"} & set(kinds)
    assert_same_bits(found, expected)
    wanted = function(*args)
    torch.testing.assert_close(tuple(found), (wanted,) if isinstance(wanted, Tensor) else tuple(wanted))


def read_twice(*args: Tensor) -> Any:
    y = norm(*args)[0]
    return torch.relu(y), y


def half_precision(x: Tensor, *rest: Tensor) -> Any:
    return with_given_statistics(x.half(), *rest)


def without_parameters(x: Tensor, gamma: Tensor, beta: Tensor, *rest: Tensor) -> Any:
    return torch.relu(norm(x, None, None, *rest)[0])


def a_statistic(*args: Tensor) -> Any:
    y, mean, *_ = norm(*args)
    return y, torch.relu(mean)


def gradient_read_twice(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Any:
    through_relu = aten.threshold_backward(x.flip(0), x, 0)
    wanted = [True, True, True]
    of_norm = aten.native_batch_norm_backward(
        through_relu, x, gamma, None, None, mean, var, True, 1e-5, wanted
    )
    return (*of_norm, through_relu)


# With updates of running statistics, a relu over their shape is one op.
@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (read_twice, "EltwiseRelu"),
        (half_precision, "EltwiseRelu"),
        (without_parameters, "EltwiseRelu"),
        (a_statistic, "Fused"),
        (gradient_read_twice, "ReluBwd"),
    ],
)
def test_a_relu_stays_where_it_would_change_what_others_read(function: Callable[..., Any], kept: str) -> None:
    kinds, found, expected = kinds_and_results(function, arguments())

    assert kept in kinds
    assert_same_bits(found, expected)


def test_what_is_not_a_number_stays_so() -> None:
    args = arguments()
    args[0][1, 2, 3, 4] = torch.nan

    _, found, _ = kinds_and_results(with_given_statistics, args)

    assert found[0].isnan().nonzero().tolist() == [[1, 2, 3, 4]]


@needs_emulator
@each_row("function", {"training": forward, "given statistics": with_given_statistics, "backward": backward})
def test_a_relu_is_part_of_the_norm_on_the_gpu(function: Callable[..., Any]) -> None:
    kinds, found, expected = kinds_and_results(function, arguments(), CUDA)

    assert not {"EltwiseRelu", "ReluBwd"} & set(kinds)
    assert_same_bits(found, expected)
