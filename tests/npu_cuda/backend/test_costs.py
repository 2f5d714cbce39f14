"""What `backend="auto"` leaves to ATen: what costs more than it gains."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from npu_cuda import _C
from npu_cuda.backend import CudaBackend, HostBackend, native
from npu_cuda.backend.native import PricedCudaBackend
from npu_ir import OpNode, extract_ir
from npu_runtime import IRExecutor
from npu_runtime.backends.registry import find_backend
from tests.support.corpus.case import Function
from tests.support.rows import each_row

PRICED = HostBackend().by_cost()


class Product(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


class Scatter(nn.Module):
    def forward(self, x: Tensor, places: Tensor, given: Tensor) -> Tensor:
        return x.scatter_add(1, places, given)


def nodes_by_backend(model: nn.Module, *args: Tensor, passes: str = "default") -> dict[str, set[str]]:
    graph = extract_ir(model.eval(), args)
    executor = IRExecutor(graph, model.state_dict(), backend="auto", passes=passes)
    torch.testing.assert_close(executor(*args), model(*args).detach(), rtol=1e-4, atol=1e-5)
    found: dict[str, set[str]] = {}
    for item in executor.lowered.partitions:
        ops = {node.op_type.split(".")[1] for node in item.partition.nodes}
        found.setdefault(item.partition.backend.name, set()).update(ops)
    return found


def cost_of(model: nn.Module, *args: Tensor) -> float | None:
    (node,) = extract_ir(model, args).nodes
    assert isinstance(node, OpNode)
    return PRICED.cost(node)


def test_a_lone_small_op_is_not_worth_a_call() -> None:
    assert nodes_by_backend(nn.ReLU(), torch.randn(8)) == {"aten": {"relu"}}


@each_row("model, x", {
    "a convolution in groups": (nn.Conv1d(33, 33, 1, groups=33), torch.randn(1, 33, 16)),
    "gelu": (nn.GELU(), torch.randn(8)),
    "a norm": (nn.LayerNorm(8), torch.randn(4, 8)),
})  # fmt: skip
def test_a_lone_small_op_is_worth_one_where_a_call_of_aten_takes_long(model: nn.Module, x: Tensor) -> None:
    assert nodes_by_backend(model, x).keys() == {"host"}


def test_a_lone_small_layer_stays_where_its_weights_are_packed_for() -> None:
    found = nodes_by_backend(nn.Linear(4, 4), torch.randn(1, 4), passes="host")

    assert found == {"host": {"packed_linear"}}


@pytest.mark.smoke
def test_many_small_ops_are() -> None:
    layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(16)))

    assert nodes_by_backend(layers, torch.randn(1, 16)) == {"host": {"linear"}}
    assert nodes_by_backend(layers, torch.randn(1, 16), passes="host") == {"host": {"packed_linear"}}


def test_an_executor_that_is_told_nothing_packs_for_host() -> None:
    layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(16))).eval()
    x = torch.randn(1, 16)

    (part,) = IRExecutor(extract_ir(layers, (x,)), layers.state_dict()).lowered.partitions

    assert part.partition.backend.name == "host"
    assert {node.op_type for node in part.partition.nodes} == {"npu.packed_linear.default"}


def test_a_large_matrix_that_is_copied_for_few_rows_stays_with_aten() -> None:
    few, many = torch.randn(4, 512), torch.randn(512, 512) / 5  # products of about 1

    assert nodes_by_backend(Product(), few, torch.randn(512, 2048) / 20) == {"aten": {"matmul"}}
    assert nodes_by_backend(Product(), many, many.flip(0)) == {"host": {"matmul"}}
    assert nodes_by_backend(Product(), many.double(), many.double()) == {"aten": {"matmul"}}


def test_a_large_op_is() -> None:
    assert nodes_by_backend(nn.GELU(), torch.randn(1 << 20)) == {"host": {"gelu"}}


def test_contiguous_images_stay_with_aten_until_weights_are_packed() -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3))
    image = torch.randn(1, 16, 24, 24)

    assert nodes_by_backend(model, image) == {"aten": {"conv2d"}}
    assert "packed_conv2d" in nodes_by_backend(model, image, passes="host")["host"]


def test_convolutions_of_volumes_do_not_wait_for_packed_weights() -> None:
    volume = torch.randn(1, 16, 16, 16, 16)

    assert nodes_by_backend(nn.Conv3d(16, 32, 3), volume) == {"host": {"conv3d"}}
    assert nodes_by_backend(nn.Conv3d(16, 16, 1), volume) == {"aten": {"conv3d"}}


def test_batches_of_small_products_are() -> None:
    a, b = torch.randn(2, 16, 64, 64)

    assert nodes_by_backend(Product(), a, b) == {"host": {"matmul"}}


@each_row("function, x", {
    "an image to channels-last": (lambda x: x.permute(0, 2, 3, 1).contiguous(), torch.randn(1, 32, 64, 64)),
    "truth values to floats": (lambda x: x.to(torch.float32), torch.randn(256, 256) > 0),
    "a transposed matrix": (lambda x: x.t().reshape(-1), torch.randn(256, 256)),
})  # fmt: skip
def test_a_large_copy_is_not_taken_for_a_view(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    assert nodes_by_backend(Function(function), x).keys() == {"host"}


@each_row("function, x", {
    "bytes": (lambda x: x + x, torch.ones(512, 512, dtype=torch.int8)),
    "halves of a word": (torch.neg, torch.ones(512, 512, dtype=torch.int16)),
    "a function of float64": (torch.exp, torch.randn(512, 512, dtype=torch.float64)),
})  # fmt: skip
def test_dtypes_that_aten_has_vectors_of_stay_with_it(
    function: Callable[[Tensor], Tensor], x: Tensor
) -> None:
    assert nodes_by_backend(Function(function), x).keys() == {"aten"}


class SoftmaxGradient(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.aten._softmax_backward_data(x, x, self.dim, torch.float32)
        return result


def test_an_axis_of_strided_elements_costs_more() -> None:
    x = torch.randn(256, 256)

    rows, columns = cost_of(SoftmaxGradient(1), x), cost_of(SoftmaxGradient(0), x)

    assert rows is not None
    assert columns is not None
    assert columns > 2 * rows


def test_a_mean_of_windows_costs_less_where_channels_come_first() -> None:
    x = torch.randn(1, 64, 64, 64)

    first = cost_of(nn.AvgPool2d(2), x)
    last = cost_of(nn.AvgPool2d(2), x.contiguous(memory_format=torch.channels_last))

    assert first is not None
    assert last is not None
    assert last > 1.5 * first


@pytest.mark.skipif(_C.build_info()["mode"] == "OFF", reason="this build has no CUDA kernels")
def test_on_cuda_what_is_slower_than_atens_costs_more() -> None:
    x, places = torch.randn(1000, 1000), torch.randint(1000, (1000, 1000))
    (gelu,) = extract_ir(nn.GELU(), (x,)).nodes
    (scatter,) = extract_ir(Scatter(), (x, places, x)).nodes
    cuda, aten = PricedCudaBackend(), find_backend("aten")

    for node, is_cheaper in ((gelu, True), (scatter, False)):
        own, other = cuda.cost(node), aten.cost(node)
        assert own is not None
        assert other is not None
        assert (own < other) is is_cheaper


def test_the_emulator_competes_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_emulated, kind in ((False, PricedCudaBackend), (True, type(None))):
        monkeypatch.setattr(native, "_is_emulated", lambda is_emulated=is_emulated: is_emulated)
        assert type(CudaBackend().by_cost()) is kind


def test_products_cost_what_they_compute() -> None:
    square, long = (
        cost_of(Product(), torch.randn(512, size), torch.randn(size, 512)) for size in (512, 4096)
    )

    assert square is not None
    assert long is not None
    assert 6 < long / square < 8.1
