"""FakeTensors state the dtypes and strides that kernels return."""

import threading

import pytest
import torch
from torch._subclasses import FakeTensorMode

from npu_ir._torch.fake_kernels import corrected_fakes

aten = torch.ops.aten


@pytest.mark.parametrize(("device", "statistics"), [("cpu", torch.bfloat16), ("cuda", torch.float32)])
def test_statistics_of_layer_norms_are_float32_on_gpus(device: str, statistics: torch.dtype) -> None:
    with corrected_fakes(), FakeTensorMode():
        x = torch.empty(2, 4, dtype=torch.bfloat16, device=device)
        weight = torch.empty(4, dtype=torch.bfloat16, device=device)
        results = aten.native_layer_norm(x, [4], weight, weight, 1e-5)

    assert [item.dtype for item in results] == [torch.bfloat16, statistics, statistics]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_statistics_of_group_norms_have_the_dtype_of_the_weights(device: str) -> None:
    with corrected_fakes(), FakeTensorMode():
        x = torch.empty(2, 4, 3, dtype=torch.bfloat16, device=device)
        weight = torch.empty(4, device=device)
        _, mean, rstd = aten.native_group_norm(x, weight, weight, 2, 4, 3, 2, 1e-5)

    assert (mean.dtype, rstd.dtype) == (torch.float32, torch.float32)


def permuted(*shape: int) -> list[torch.Tensor]:
    """Return tensors of one shape in several layouts."""
    rank = len(shape)
    axes = list(range(rank))
    orders = [axes, [0, *axes[2:], 1], [*axes[:-2], rank - 1, rank - 2], axes[::-1]]
    return [
        torch.rand([shape[axis] for axis in order]).permute([order.index(axis) for axis in axes])
        for order in orders
    ]


def norm_arguments(x: torch.Tensor) -> tuple[object, ...]:
    ones = torch.ones(x.shape[1])
    return x, ones, ones, ones, ones + 1, True, 0.1, 1e-5


ROWS = [
    *((op, norm_arguments(x)) for op in (aten.native_batch_norm, aten._native_batch_norm_legit_functional)
      for shape in ((3, 4, 5), (3, 4, 5, 6)) for x in permuted(*shape)),
    *((aten.pow.Scalar, (2.0, x)) for x in permuted(3, 4, 5)),
    *((aten.log_sigmoid_forward, (x,)) for x in permuted(3, 4, 5)),
    *((aten.channel_shuffle, (x, 2)) for x in permuted(3, 4, 5, 6)),
    *((op, (x, [1] * 6)) for op in (aten.reflection_pad3d, aten.replication_pad3d)
      for x in permuted(2, 3, 4, 5, 6)),
    *((op, (x, y)) for op in (aten.copysign, aten.floor_divide, aten.heaviside, aten.logaddexp,
                              aten.logical_and, aten.logical_xor, aten.xlogy)
      for x in permuted(3, 4, 5) for y in (*permuted(4, 5), *permuted(3, 1, 5), torch.rand(()))),
]  # fmt: skip


def test_results_on_the_cpu_have_the_strides_that_kernels_return() -> None:
    wrong = 0
    for op, arguments in ROWS:
        fakes = FakeTensorMode()
        given = [fakes.from_tensor(item) if isinstance(item, torch.Tensor) else item for item in arguments]
        with fakes:
            stated = op(*given)
        with corrected_fakes(), fakes:
            corrected = op(*given)
        computed = op(*arguments)
        first, before, real = (
            item[0] if isinstance(item, tuple) else item for item in (corrected, stated, computed)
        )

        assert (first.stride(), first.dtype) == (real.stride(), real.dtype), (str(op), arguments)
        wrong += before.stride() != real.stride()
    assert wrong > 20  # PyTorch states other ones


def test_blocks_of_several_threads_leave_pytorch_as_it_was() -> None:
    before = FakeTensorMode.dispatch
    entered, left = threading.Barrier(2), threading.Event()

    def stay() -> None:
        with corrected_fakes():
            entered.wait()
            left.wait()

    thread = threading.Thread(target=stay)
    with corrected_fakes():
        thread.start()
        entered.wait()
    is_patched = FakeTensorMode.dispatch is not before
    left.set()
    thread.join()

    assert is_patched  # for the thread that stays longer
    assert FakeTensorMode.dispatch is before
