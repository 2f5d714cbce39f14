"""Batch norms, their running statistics and their gradients, against PyTorch."""

from typing import Any

import pytest
import torch

from npu_cuda.backend import HostBackend
from npu_ir import Graph, parse_ir

HOST = HostBackend()
aten = torch.ops.aten
NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.uint8: "u8",
}
FORWARD = ("input", "weight", "bias", "running_mean", "running_var")
BACKWARD = ("grad_out", "input", "weight", "running_mean", "running_var", "save_mean", "save_invstd")


def type_of(x: torch.Tensor) -> str:
    strides = "" if x.is_contiguous() else f"@{list(x.stride())}"
    return f"{NAMES[x.dtype]}{list(x.shape)}{strides}"


def run(
    op: str, names: tuple[str, ...], tensors: list[Any], results: Any, **attrs: Any
) -> list[torch.Tensor]:
    """Return what native ops compute for one call; no tensor is None among the attributes."""
    given = {name: x for name, x in zip(names, tensors, strict=True) if x is not None}
    attrs = {**{name: None for name in names if name not in given}, **attrs}
    inputs = [f"input %{name}: {type_of(x)}" for name, x in given.items()]
    outputs = ", ".join(f"%y{i}: {type_of(y)}" for i, y in enumerate(results))
    operands = ", ".join(f"{name}=%{name}" for name in given)
    call = (
        f"{outputs} = aten.{op}({operands}) {{{', '.join(f'{key}={value}' for key, value in attrs.items())}}}"
    )
    returned = ", ".join(f"%y{i}" for i in range(len(results)))
    returned = f"({returned})" if len(results) > 1 else returned
    graph: Graph = parse_ir("\n".join(["graph g {", *inputs, call, f"return {returned}", "}"]))
    program = HOST.prepare(graph, HOST.lower(graph), torch.device("cpu"))
    return list(HOST.run(program, list(given.values())))


def parameters(affine: bool, dtype: torch.dtype) -> list[torch.Tensor | None]:
    torch.manual_seed(1)
    weight, bias, mean = torch.randn(3, 6, dtype=dtype)
    return [weight if affine else None, bias if affine else None, mean, torch.rand(6, dtype=dtype) + 0.5]


def image(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(shape) * 3 + 5
    return x.to(memory_format=torch.channels_last) if len(shape) == 4 and shape[0] == 5 else x.to(dtype)


SHAPES = [(4, 6, 5, 7), (5, 6, 3, 9), (33, 6), (3, 6, 200)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_that_trains_moves_its_running_statistics(shape: tuple[int, ...], affine: bool) -> None:
    tensors = [image(shape), *parameters(affine, torch.float32)]
    expected = aten._native_batch_norm_legit_functional(*tensors, True, 0.25, 1e-3)

    attrs = {"training": True, "momentum": 0.25, "eps": 1e-3}
    results = run("_native_batch_norm_legit_functional.default", FORWARD, tensors, expected, **attrs)

    for actual, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["_batch_norm_with_update_functional", "_batch_norm_no_update"])
def test_a_norm_that_reserves_memory_for_its_gradient(name: str) -> None:
    tensors = [image((4, 6, 5, 7)), *parameters(True, torch.float32)]
    expected = getattr(aten, name)(*tensors, 0.25, 1e-3)

    results = run(f"{name}.default", FORWARD, tensors, expected, momentum=0.25, eps=1e-3)

    for actual, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_norm_with_reserved_memory() -> None:
    x, (weight, bias, mean, variance) = image((4, 6, 5, 7)), parameters(True, torch.float32)
    _, *saved, reserve, _, _ = aten._batch_norm_with_update_functional(
        x, weight, bias, mean, variance, 0.1, 1e-5
    )
    tensors = [torch.randn_like(x), x, weight, mean, variance, *saved, reserve]
    expected = aten.batch_norm_backward(*tensors[:-1], True, 1e-5, [True, True, True], reserve)

    attrs = {"update": True, "eps": 1e-5, "output_mask": [True, True, True]}
    names = (*BACKWARD[:-1], "save_var", "reserve")
    results = run("batch_norm_backward.default", names, tensors, expected, **attrs)

    for actual, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_norm_with_running_statistics(dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    tensors = [image((4, 6, 5, 7), dtype), *parameters(True, wide)]
    expected = aten.batch_norm(*tensors, False, 0.1, 1e-5, False)

    attrs = {"training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False}
    (result,) = run("batch_norm.default", FORWARD, tensors, [expected], **attrs)

    torch.testing.assert_close(result, expected, **({"rtol": 1e-5, "atol": 1e-5} if dtype is wide else {}))


def test_eps_has_the_digits_of_float64() -> None:
    x, (weight, bias, mean, variance) = image((4, 6, 5, 7), torch.float64), parameters(True, torch.float64)
    small = variance * 1e-5
    forward = aten.batch_norm(x, weight, bias, mean, small, False, 0.1, 1e-5, False)
    backward = aten.native_batch_norm_backward(x, x, weight, mean, small, None, None, False, 1e-5, [True] * 3)

    attrs = {"training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False}
    (result,) = run("batch_norm.default", FORWARD, [x, weight, bias, mean, small], [forward], **attrs)
    attrs = {"train": False, "eps": 1e-5, "output_mask": [True, True, True]}
    tensors = [x, x, weight, mean, small, None, None]
    results = run("native_batch_norm_backward.default", BACKWARD, tensors, backward, **attrs)

    for actual, wanted in zip((result, *results), (forward, *backward), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-9)


def test_a_channel_whose_mean_is_large_loses_no_digits() -> None:
    x = torch.randn(8, 6, 40) + 3000
    expected = aten._native_batch_norm_legit.no_stats(x.double(), None, None, True, 0.1, 1e-5)
    single = aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)

    names = ("input", "weight", "bias")
    attrs = {"training": True, "momentum": 0.1, "eps": 1e-5}
    results = run("_native_batch_norm_legit.no_stats", names, [x, None, None], single, **attrs)

    torch.testing.assert_close(results[0].double(), expected[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_gradients(shape: tuple[int, ...], affine: bool, train: bool) -> None:
    x, (weight, _, mean, variance) = image(shape), parameters(affine, torch.float32)
    dy = torch.randn_like(x)
    saved = [
        x.transpose(0, 1).flatten(1).mean(1),
        (x.transpose(0, 1).flatten(1).var(1, correction=0) + 1e-5).rsqrt(),
    ]
    tensors = [dy, x, weight, mean, variance, *saved]
    expected = aten.native_batch_norm_backward(*tensors, train, 1e-5, [True, True, True])

    attrs = {"train": train, "eps": 1e-5, "output_mask": [True, True, True]}
    results = run("native_batch_norm_backward.default", BACKWARD, tensors, expected, **attrs)

    for actual, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["grad_out", "input"])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_broken_number_reaches_no_other_element_where_statistics_are_given(
    shape: tuple[int, ...], affine: bool, where: str, broken: float
) -> None:
    x, (weight, _, mean, variance) = image(shape), parameters(affine, torch.float32)
    dy = torch.randn_like(x)
    (dy if where == "grad_out" else x)[1, 2] = broken
    tensors = [dy, x, weight, mean, variance, None, None]
    expected = aten.native_batch_norm_backward(*tensors, False, 1e-5, [True, True, True])

    attrs = {"train": False, "eps": 1e-5, "output_mask": [True, True, True]}
    results = run("native_batch_norm_backward.default", BACKWARD, tensors, expected, **attrs)

    assert results[0][0].isfinite().all()
    for actual, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)


NUMBERS = "momentum=0.1, eps=1e-5"
RUNNING = "running_mean=None, running_var=None"
SAVED = "save_mean=None, save_invstd=None"
GRADIENTS = f"train=True, eps=1e-5, weight=None, {RUNNING}"


@pytest.mark.parametrize(("op", "operands", "attrs", "reason"), [
    ("native_batch_norm", "input=%x, weight=%v", f"bias=None, {RUNNING}, training=True, {NUMBERS}",
        "a bias, or neither"),
    ("native_batch_norm", "input=%x", f"weight=None, bias=None, {RUNNING}, training=False, {NUMBERS}",
        "takes running ones"),
    ("native_batch_norm_backward", "grad_out=%x, input=%x, save_mean=%v, save_invstd=%v",
        f"{GRADIENTS}, output_mask=[True, False, False]", "three gradients are computed"),
    ("native_batch_norm_backward", "grad_out=%x, input=%x",
        f"{GRADIENTS}, {SAVED}, output_mask=[True, True, True]", "takes save_mean and save_invstd"),
])  # fmt: skip
def test_what_no_native_norm_computes_is_refused(op: str, operands: str, attrs: str, reason: str) -> None:
    lines = ["input %x: f32[4, 6]", "input %v: f32[6]"]
    call = f"%y: f32[4, 6], %m: f32[6], %r: f32[6] = aten.{op}.default({operands}) {{{attrs}}}"
    (node,) = parse_ir("\n".join(["graph g {", *lines, call, "return %y", "}"])).nodes

    assert reason in str(HOST.supports(node))


def test_statistics_that_are_given_are_not_returned() -> None:
    tensors = [image((4, 6, 5, 7)), *parameters(True, torch.float32)]
    expected = aten._native_batch_norm_legit_no_training(*tensors, 0.1, 1e-5)

    attrs = {"momentum": 0.1, "eps": 1e-5}
    results = run("_native_batch_norm_legit_no_training.default", FORWARD, tensors, expected, **attrs)

    torch.testing.assert_close(results, list(expected), rtol=1e-5, atol=1e-5)


def test_a_norm_without_channels_stays_with_aten() -> None:
    attrs = f"weight=None, bias=None, {RUNNING}, training=True, {NUMBERS}"
    call = f"%y: f32[0], %m: f32[0], %r: f32[0] = aten.native_batch_norm.default(input=%x) {{{attrs}}}"
    (node,) = parse_ir(f"graph g {{\ninput %x: f32[0]\n{call}\nreturn %y\n}}").nodes

    assert HOST.supports(node) == "a norm takes batches with channels, not f32[0]"
