"""Each kernel of an op over rows says why it does not take a call."""

from collections.abc import Sequence

import pytest

from npu_cuda import _C

Shape = tuple[int, ...]
IS_CUDA = any(device["name"] != "host" for device in _C.devices())


def spec(shape: Shape, dtype: str = "float32", strides: Shape | None = None) -> _C.TensorSpec:
    sizes = [1]
    for size in reversed(shape[1:]):
        sizes.insert(0, sizes[0] * max(size, 1))
    return _C.TensorSpec(dtype, shape, strides or tuple(sizes[: len(shape)]), 16)


def reasons(kind: str, inputs: Sequence[_C.TensorSpec], outputs: Sequence[_C.TensorSpec], device: str) -> str:
    selection = _C.select(_C.kinds()[kind], inputs, outputs, device=device, deterministic=True)
    return "; ".join(reason for _, reason in selection.refusals)


X, ROWS, GAMMA = spec((4, 6)), spec((4, 1)), spec((6,))


@pytest.mark.parametrize(("kind", "inputs", "outputs", "reason"), [
    ("Softmax", [X], [spec((4, 6), "float64")], "float64 is computed in f64"),
    ("Softmax", [spec((4, 6), "int64")], [X], "a tensor is int64, not a real float"),
    ("SoftmaxBwd", [X, spec((6, 4))], [X], "y is [6, 4], dy is [4, 6]"),
    ("NllLossFwd", [X, spec((4,), "int64")], [spec((4,)), spec(())], "not of 1 elements"),
    ("LayerNormFwd", [X, GAMMA], [X, ROWS, ROWS], "this kernel takes 1 inputs"),
    ("LayerNormFwd", [X], [X, ROWS, spec((5, 1))], "mean or rstd is float32[5, 1], not of 4 rows"),
    ("LayerNormBwd", [X, spec((6, 4)), ROWS, ROWS], [X, GAMMA, GAMMA], "dy is [6, 4], x is [4, 6]"),
    ("LayerNormBwd", [X, X, ROWS, ROWS], [X, GAMMA, spec((7,))],
        "the gradient of gamma or beta is float32[7], which is not the shape that is normalized"),
    ("LayerNormBwd", [X, X, ROWS, ROWS], [X, spec((6,), strides=(2,)), GAMMA],
        "the gradient of gamma or beta is not contiguous"),
])  # fmt: skip
def test_a_call_is_refused_with_its_reason(
    kind: str, inputs: Sequence[_C.TensorSpec], outputs: Sequence[_C.TensorSpec], reason: str
) -> None:
    assert reason in reasons(kind, inputs, outputs, "host")


def test_float32_is_not_computed_in_float64() -> None:
    refusals = dict(_C.select(_C.kinds()["Softmax"], [X], [spec((6, 4))]).refusals)

    assert refusals["softmax.f64.host"] == "these dtypes are computed in f32"


@pytest.mark.skipif(not IS_CUDA, reason="this build has no CUDA kernels")
@pytest.mark.parametrize(("kind", "shape", "strides", "reason"), [
    ("Softmax", (2, 4097), None, "rows of 4097 are wider than 4096"),
    ("Softmax", (4, 6), (1, 4), "are not contiguous"),
    ("LogSoftmax", (1 << 16, 1 << 15), None, "a tensor spans 2^31 elements or more"),
])  # fmt: skip
def test_a_kernel_of_cuda_says_what_it_does_not_take(
    kind: str, shape: Shape, strides: Shape | None, reason: str
) -> None:
    x = spec(shape, strides=strides)

    assert reason in reasons(kind, [x], [x], "cuda")
