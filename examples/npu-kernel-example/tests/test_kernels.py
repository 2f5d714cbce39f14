"""The package is found, and its kernels compute what they say."""

from __future__ import annotations

import npu_cuda
import numpy as np
import pytest


@pytest.fixture(scope="session")
def plugin() -> npu_cuda.KernelPlugin:
    return next(each for each in npu_cuda.load_plugins() if each.name == "npu-kernel-example")


def test_the_package_is_loaded(plugin: npu_cuda.KernelPlugin) -> None:
    assert plugin.refused is None
    assert plugin.ops == ["npu_kernel_example.window"]


def test_relu_keeps_nan(plugin: npu_cuda.KernelPlugin) -> None:
    x = np.array([-1.0, 2.0, np.nan], dtype=np.float32)

    npu_cuda.launch_by_id("npu_kernel_example.relu.f32.host", [x], [x])

    np.testing.assert_array_equal(x, np.array([0.0, 2.0, np.nan], dtype=np.float32))


def test_window_removes_what_signals_have_in_common(plugin: npu_cuda.KernelPlugin) -> None:
    window = npu_cuda.find_op("npu_kernel_example.window")
    x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    y = np.empty_like(x)

    npu_cuda.op_call(window.kind, [x], [y], *window.attrs(gain=2.0))

    np.testing.assert_allclose(y, 2.0 * np.hanning(9) * (x - x.mean(axis=0)), rtol=1e-5, atol=1e-6)
