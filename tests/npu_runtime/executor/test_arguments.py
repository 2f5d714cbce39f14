"""Arguments of an executor: which are refused, before anything runs, and how they may be laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn
from torch._subclasses import FakeTensorMode

from npu_ir import ExecutionError, Graph, NpuError, TensorType, WeightError, extract_ir, register_executor
from npu_ir.ops import unregister_executor
from npu_passes import PassError
from npu_runtime import BackendError, IRExecutor
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same

F32 = torch.float32


def executor_of(function: Callable[..., Any], *args: Any, **options: Any) -> IRExecutor:
    return IRExecutor(extract_ir(Function(function), args), passes=None, **options)


@pytest.fixture
def counted() -> Iterator[list[str]]:
    """A registered executor that notes each call."""
    calls: list[str] = []

    def double(inputs: list[Any], attrs: Any) -> list[Any]:
        calls.append("double")
        return [inputs[0] * 2]

    register_executor("aten.exp.default")(double)
    yield calls
    unregister_executor("aten.exp.default")


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        pytest.param((), {}, "args", id="none"),
        pytest.param((ones(2, 3), ones(2, 3)), {}, "args", id="too-many"),
        pytest.param((ones(3, 3),), {}, r"%x is f32\[3, 3\], the graph needs f32\[2, 3\]", id="shape"),
        pytest.param((ones(2, 3).double(),), {}, r"%x is f64\[2, 3\]", id="dtype"),
        pytest.param((ones(2, 3).to_sparse(),), {}, r"%x is f32\[2, 3\]", id="layout"),
        pytest.param(([ones(2, 3)],), {}, r"args\[0\]", id="nested"),
        pytest.param((1.0,), {}, "%x is float", id="number"),
        pytest.param((None,), {}, "%x is NoneType", id="no-tensor"),
        pytest.param((ones(2, 3),), {"y": None}, "kwargs", id="unknown-keyword"),
        pytest.param(
            (ones(2, 3).to("meta"),),
            {},
            r"%x is on meta, the executor runs on cpu\n  fix: move it \(.to\('cpu'\)\)",
            id="device",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    counted: list[str], args: Any, kwargs: Any, message: str
) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 3), F32))
    graph.set_outputs(graph.insert("aten.exp.default", [x], types=x.type, operands=("self",)).outputs[0])
    graph.set_call((x,))
    executor = IRExecutor(graph, passes=None)

    for run in (lambda: executor(*args, **kwargs), lambda: executor.run(args, kwargs)):
        with pytest.raises(ExecutionError, match=message):
            run()

    assert not counted
    assert executor(ones(2, 3)).tolist() == [[2.0] * 3] * 2


def test_another_constant_than_the_graph_was_made_for_is_refused() -> None:
    executor = executor_of(lambda x, n: x + n, ones(2), 3)

    with pytest.raises(ExecutionError, match=r"made for 3 here, not 4\n  at: args\[1\]"):
        executor(ones(2), 4)

    assert executor(ones(2), 3).tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda x: x.transpose(0, 2).contiguous().transpose(0, 2), id="transposed"),
        pytest.param(lambda x: x[..., None].expand(2, 3, 4, 2)[..., 0], id="with-gaps"),
        pytest.param(lambda x: torch.cat([x, x])[2:], id="with-an-offset"),
        pytest.param(lambda x: x[:1].expand(2, 3, 4), id="expanded"),
        pytest.param(lambda x: torch.complex(x, -x).conj().imag, id="negated-lazily"),
        pytest.param(nn.Parameter, id="parameter"),
    ],
)
def test_an_input_may_be_laid_out_otherwise(given: Callable[[Tensor], Tensor]) -> None:
    def function(x: Tensor) -> Any:
        return (x + 1).view(-1), x.transpose(1, 2).reshape(2, -1).relu(), x.view(6, 4)[1]

    x = randn(2, 3, 4)
    item = given(x)

    actual = executor_of(function, x)(item)

    assert_same(actual, function(item.detach().contiguous()), "the result")


def test_an_input_captured_expanded_may_be_dense() -> None:
    def function(x: Tensor) -> Tensor:
        return x.relu().neg().transpose(1, 2).unsqueeze(0).select(1, 1)

    expanded, dense = randn(1, 4, 5).expand(3, 4, 5).transpose(1, 2), randn(3, 5, 4)
    executor = executor_of(function, expanded)

    assert_same(executor(expanded), function(expanded), "the result")
    assert_same(executor(dense), function(dense), "the result on dense data")


def test_an_image_may_be_in_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    x = randn(2, 3, 8, 8)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    torch.testing.assert_close(executor(x.contiguous(memory_format=torch.channels_last)), model(x).detach())


def test_complex_views_are_those_of_eager() -> None:
    def function(x: Tensor) -> Any:
        product = x * x
        turned = product.conj()
        return (
            turned.resolve_conj(),
            turned.imag.resolve_neg(),
            torch.view_as_real(product)[..., 1],
            turned * 2,
        )

    x = randn(3, dtype=torch.complex64)

    assert_same(executor_of(function, x)(x), function(x), "the results")


def test_inputs_that_the_caller_has_compared_are_not_compared_again() -> None:
    executor = executor_of(lambda x, y: (x + 1, y + 1), ones(2), ones(2))

    executor.trust(executor.graph.inputs[:1])

    assert executor(ones(3), ones(2))[0].tolist() == [2.0] * 3
    with pytest.raises(ExecutionError, match=r"is f32\[3\], the graph needs f32\[2\]"):
        executor(ones(2), ones(3))


def test_threads_are_a_number() -> None:
    graph = extract_ir(Function(torch.relu), (ones(2),))

    for wrong in (0, -1, True, 1.0, "2"):
        with pytest.raises(ExecutionError, match=f"at least one thread, not {wrong!r}"):
            IRExecutor(graph, threads=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        pytest.param((ones(2), ones(2)), {}, "expected a tuple of 1, got a tuple of 2", id="positional"),
        pytest.param((), {"x": ones(2), "y": ones(2)}, "expected a tuple of 1", id="all-by-keyword"),
        pytest.param((ones(2),), {"z": ones(2)}, r"expected keys \['y'\], got \['z'\]", id="another-keyword"),
        pytest.param((ones(2),), {}, r"expected keys \['y'\], got \[\]", id="no-keyword"),
    ],
)
def test_keywords_are_those_of_the_capture(args: Any, kwargs: Any, message: str) -> None:
    graph = extract_ir(Function(lambda x, *, y: x - y), (ones(2),), {"y": ones(2)})
    executor = IRExecutor(graph)

    with pytest.raises(ExecutionError, match=message):
        executor(*args, **kwargs)

    assert executor(ones(2) * 3, y=ones(2)).tolist() == [2.0, 2.0]


def linear_graph() -> tuple[Graph, dict[str, torch.Tensor]]:
    model = nn.Linear(3, 2)
    return extract_ir(model, (torch.zeros(1, 3),)), model.state_dict()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param(
            {"device": "nope"}, ExecutionError, r"cannot use the device 'nope' here: ", id="no-device"
        ),
        pytest.param(
            {"weights": 5}, WeightError, r"a state_dict or the path of a file, not int", id="weights"
        ),
        pytest.param({"passes": 5}, PassError, r"5 names no passes", id="passes"),
        pytest.param({"passes": "nope"}, PassError, r"nope", id="pass-name"),
        pytest.param({"backend": 5}, BackendError, r"5 is not a backend", id="backend"),
        pytest.param({"backend": [5]}, BackendError, r"5 is not a backend", id="backends"),
        pytest.param({"backend": "nope"}, BackendError, r"there is no backend 'nope'", id="backend-name"),
        pytest.param({"threads": 0}, ExecutionError, r"at least one thread, not 0", id="threads"),
        pytest.param({"threads": "2"}, ExecutionError, r"at least one thread, not '2'", id="threads-text"),
    ],
)
def test_an_executor_is_not_made_of_this(
    options: dict[str, Any], error: type[NpuError], message: str
) -> None:
    graph, weights = linear_graph()

    with pytest.raises(error, match=message):
        IRExecutor(graph, **{"weights": weights, **options})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_a_device_that_is_not_here_is_refused() -> None:
    graph, weights = linear_graph()

    with pytest.raises(ExecutionError, match="cannot use the device 'cuda' here"):
        IRExecutor(graph, weights, device="cuda")


def test_the_pipeline_for_cpus_runs_on_cpus_only() -> None:
    graph, weights = linear_graph()
    empty = {key: tensor.to("meta") for key, tensor in weights.items()}

    with pytest.raises(
        ExecutionError, match=r"(?s)'cpu' is for CPUs, and the executor runs on meta.*passes=\"default\""
    ):
        IRExecutor(graph, weights, passes="cpu", device="meta")
    with pytest.raises(ExecutionError, match="'train-cpu' is for CPUs, and the executor runs on meta"):
        IRExecutor(graph, empty, passes="train-cpu")


def test_an_op_that_only_cpus_have_is_refused_elsewhere() -> None:
    graph, row = Graph(), TensorType((2, 2), torch.float32)
    x = graph.add_input("x", row)
    graph.set_outputs(graph.insert("aten.mkldnn_linear.default", [x, x], types=row).outputs[0])

    with pytest.raises(
        ExecutionError,
        match=r"only CPUs have aten\.mkldnn_linear\.default, and the executor runs on meta\n  at: node",
    ):
        IRExecutor(graph, device="meta", passes=None)


def test_weights_that_are_fake_are_refused() -> None:
    graph, weights = linear_graph()
    mode = FakeTensorMode()

    with pytest.raises(WeightError, match=r"the weight 'weight' is a FakeTensor: it has no data\n"):
        IRExecutor(graph, {key: mode.from_tensor(tensor) for key, tensor in weights.items()})


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_whoever_observes_a_run_cannot_advance_its_buffers() -> None:
    model, x = Counter(), torch.ones(2)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    with pytest.raises(ExecutionError, match="called from within one of its own calls"):
        executor.run((x,), on_node=lambda node, outputs: executor(x))

    assert torch.equal(executor(x), torch.ones(2))


def test_whoever_observes_a_run_without_buffers_may_call_the_executor() -> None:
    x = torch.ones(2)
    executor = IRExecutor(extract_ir(Function(torch.exp), (x,)), {})
    seen: list[torch.Tensor] = []

    executor.run((x,), on_node=lambda node, outputs: seen.append(executor(x)))

    assert torch.equal(seen[0], torch.exp(x))
