"""Recurrent networks on the backend ``host``."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_cuda import _C
from npu_ir import extract_ir
from npu_ir.core.structure import flatten
from npu_runtime import IRExecutor
from tests.support.recurrent_models import NETWORKS, Recurrent
from tests.support.rows import each_row

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 3e-3}
LAYERS = ("npu.lstm_layer.default", "npu.rnn_layer.default")


def native(model: nn.Module, inputs: tuple[Tensor, ...], **options: Any) -> IRExecutor:
    return IRExecutor(extract_ir(model, inputs), model.state_dict(), backend="host", passes="host", **options)


def layers_of(executor: IRExecutor, backend: str = "host") -> int:
    return sum(
        node.op_type in LAYERS
        for item in executor.lowered.partitions
        if item.partition.backend.name == backend
        for node in item.partition.nodes
    )


@pytest.mark.parametrize(("hidden", "dtype"), [
    pytest.param(1, torch.float32, marks=pytest.mark.exhaustive),
    (20, torch.bfloat16),
    pytest.param(16, torch.float16, marks=pytest.mark.exhaustive),
    (70, torch.float32),
])  # fmt: skip
@each_row("name", list(NETWORKS))
def test_a_network_gives_what_eager_gives(name: str, hidden: int, dtype: torch.dtype) -> None:
    model, x = Recurrent(name, hidden=hidden).eval().to(dtype), torch.randn(4, 3, 5).to(dtype)
    rows = 4 if model.network.batch_first else 3
    given = (x, *(item.to(dtype) for item in model.first_states(rows)))

    executor = native(model, given)
    with torch.no_grad():
        found, expected = flatten(executor(*given))[0], flatten(model(*given))[0]

    assert layers_of(executor) == model.network.num_layers * (1 + model.network.bidirectional)
    for left, right in zip(found, expected, strict=True):
        assert (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
        assert float((left - right).abs().max()) <= TOLERANCE[dtype]


@pytest.mark.parametrize("strides", [(1, 3, 15), (40, 10, 2)])
def test_an_input_of_any_strides_is_read(strides: tuple[int, ...]) -> None:
    model = Recurrent("lstm").eval()
    x = torch.randn(200).as_strided((3, 4, 5), strides)

    torch.testing.assert_close(native(model, (x,))(x), model(x), rtol=0, atol=1e-6)


@pytest.mark.smoke
def test_a_batch_without_rows_has_results_without_elements() -> None:
    model, x = Recurrent("gru").eval(), torch.randn(3, 0, 5)

    y, last = native(model, (x,))(x)

    assert (y.shape, last.shape) == ((3, 0, 7), (1, 0, 7))


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_threads_do_not_change_a_bit(name: str) -> None:
    model, x = Recurrent(name, 160, 200).eval(), torch.randn(5, 13, 160)
    executor = native(model, (x,))
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(flatten(executor(x))[0])
            assert _C.thread_count() == count
    finally:
        torch.set_num_threads(before)

    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)
    torch.testing.assert_close(results[0], flatten(model(x))[0], rtol=0, atol=1e-5)


def test_open_sizes_run_native_by_the_size_of_a_call() -> None:
    rows = torch.export.Dim("rows", min=2, max=30)
    model, x = Recurrent("lstm").eval(), torch.randn(3, 4, 5)
    graph = extract_ir(model.network, (x,), dynamic_shapes=({1: rows},))
    executor = IRExecutor(graph, model.network.state_dict(), backend="host", passes="host")

    for size in (2, 17):
        given = torch.randn(3, size, 5)
        assert layers_of(executor.for_call((given,))) == 1
        torch.testing.assert_close(executor(given), model.network(given), rtol=0, atol=1e-6)


def test_infinities_and_nan_stay_where_they_are() -> None:
    model, x = Recurrent("gru").eval(), torch.randn(2, 3, 5)
    x[0, 0, 0], x[1, 1, 1] = float("inf"), float("nan")

    torch.testing.assert_close(native(model, (x,))(x), model(x), rtol=0, atol=1e-6, equal_nan=True)
