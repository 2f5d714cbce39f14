"""Arguments of an executor: which are refused, before anything runs, and how they may be laid out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn
from torch._subclasses import FakeTensorMode

from npu_ir import (
    ExecutionError,
    Graph,
    NpuError,
    SerializationError,
    TensorType,
    WeightError,
    extract_ir,
    parse_ir,
)
from npu_passes import PassError
from npu_runtime import BackendError, IRExecutor
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same


def executor_of(function: Callable[..., Any], *args: Any, **options: Any) -> IRExecutor:
    return IRExecutor(extract_ir(Function(function), args), passes=None, **options)


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    pytest.param((), {}, "args", id="none"),
    pytest.param((ones(2, 3), ones(2, 3)), {}, "args", id="too-many"),
    pytest.param((ones(3, 3),), {}, r"%x is f32\[3, 3\], the graph needs f32\[2, 3\]", id="shape"),
    pytest.param((ones(2, 3).double(),), {}, r"%x is f64\[2, 3\]", id="dtype"),
    pytest.param((ones(2, 3).to_sparse(),), {}, r"%x is f32\[2, 3\]", id="layout"),
    pytest.param(([ones(2, 3)],), {}, r"args\[0\]", id="nested"),
    pytest.param((1.0,), {}, "%x is float", id="number"),
    pytest.param((None,), {}, "%x is NoneType", id="no-tensor"),
    pytest.param((ones(2, 3),), {"y": None}, "kwargs", id="unknown-keyword"),
    pytest.param((ones(2, 3).to("meta"),), {},
        r"%x is on meta, the executor runs on cpu\n  fix: move it \(.to\('cpu'\)\)", id="device"),
])  # fmt: skip
def test_wrong_arguments_are_refused_before_anything_runs(
    register: Any, args: Any, kwargs: Any, message: str
) -> None:
    calls: list[Any] = []
    register("acme.note.default", lambda inputs, attrs: calls.append(inputs) or [inputs[0] * 2])
    graph = parse_ir(
        "graph g {\n  input %x: f32[2, 3]\n  call (%x)\n  %y: f32[2, 3] = acme.note.default(%x)\n"
        "  return %y\n}\n"
    )
    executor = IRExecutor(graph, passes=None)

    for run in (lambda: executor(*args, **kwargs), lambda: executor.run(args, kwargs)):
        with pytest.raises(ExecutionError, match=message):
            run()

    assert not calls
    assert executor(ones(2, 3)).tolist() == [[2.0] * 3] * 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused_before_and_after_a_call_that_fits() -> None:
    graph, weights = linear_graph()
    executor = IRExecutor(graph, weights)
    x = executor.graph.inputs[0].tensor_type
    nested = torch.nested.nested_tensor([ones(2), ones(2)])

    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"is a nested tensor, the graph needs f32"):
            executor(nested)
        executor(torch.ones(x.static_shape))


def test_another_constant_than_the_graph_was_made_for_is_refused() -> None:
    executor = executor_of(lambda x, n: x + n, ones(2), 3)

    with pytest.raises(ExecutionError, match=r"made for 3 here, not 4\n  at: args\[1\]"):
        executor(ones(2), 4)

    assert executor(ones(2), 3).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("given", [
    pytest.param(lambda x: x.transpose(0, 2).contiguous().transpose(0, 2), id="transposed"),
    pytest.param(lambda x: x[..., None].expand(2, 3, 4, 2)[..., 0], id="with-gaps"),
    pytest.param(lambda x: torch.cat([x, x])[2:], id="with-an-offset"),
    pytest.param(lambda x: x[:1].expand(2, 3, 4), id="expanded"),
    pytest.param(lambda x: torch.complex(x, -x).conj().imag, id="negated-lazily"),
    pytest.param(nn.Parameter, id="parameter"),
])  # fmt: skip
def test_an_input_may_be_laid_out_otherwise(given: Callable[[Tensor], Tensor]) -> None:
    def function(x: Tensor) -> Any:
        return (x + 1).view(-1), x.transpose(1, 2).reshape(2, -1).relu(), x.view(6, 4)[1]

    x = randn(2, 3, 4)
    item = given(x)

    actual = executor_of(function, x)(item)

    assert_same(actual, function(item.detach().contiguous()), "the result")


def test_inputs_that_the_caller_has_compared_are_not_compared_again() -> None:
    executor = executor_of(lambda x, y: (x + 1, y + 1), ones(2), ones(2))

    executor.trust(executor.graph.inputs[:1])

    assert executor(ones(3), ones(2))[0].tolist() == [2.0] * 3
    with pytest.raises(ExecutionError, match=r"is f32\[3\], the graph needs f32\[2\]"):
        executor(ones(2), ones(3))


def linear_graph() -> tuple[Graph, dict[str, torch.Tensor]]:
    model = nn.Linear(3, 2)
    return extract_ir(model, (torch.zeros(1, 3),)), model.state_dict()


@pytest.mark.parametrize(("options", "error", "message"), [
    pytest.param({"device": "nope"}, ExecutionError, r"cannot use the device 'nope' here: ", id="no-device"),
    pytest.param({"device": 3.5}, ExecutionError, r"cannot use the device '3.5' here: ", id="device-number"),
    pytest.param({"share": "ex"}, ExecutionError, r"share='ex' is not an executor", id="share"),
    pytest.param({"weights": 5}, WeightError, r"weights are tensors by name, not int", id="weights"),
    pytest.param({"passes": 5}, PassError, r"5 names no passes", id="passes"),
    pytest.param({"passes": "nope"}, PassError, r"nope", id="pass-name"),
    pytest.param({"backend": 5}, BackendError, r"5 is not a backend", id="backend"),
    pytest.param({"backend": [5]}, BackendError, r"5 is not a backend", id="backends"),
    pytest.param({"backend": "nope"}, BackendError, r"there is no backend 'nope'", id="backend-name"),
    pytest.param({"threads": 0}, ExecutionError, r"uses 1 to 1024 threads, not 0", id="no-thread"),
    pytest.param({"threads": True}, ExecutionError, r"uses 1 to 1024 threads, not True", id="threads-truth"),
    pytest.param({"threads": "2"}, ExecutionError, r"uses 1 to 1024 threads, not '2'", id="threads-text"),
    pytest.param({"threads": 1 << 40}, ExecutionError, r"1 to 1024 threads, not 1099", id="threads-many"),
    pytest.param({"threads": -1}, ExecutionError, r"(?s)threads, not -1.*leave threads= out", id="fix"),
    pytest.param({"device": 2**70}, ExecutionError, r"cannot use the device '11805", id="device-overflow"),
    pytest.param({"constants": True}, WeightError, r"(?s)not bool\n  at: constants=", id="constants"),
    pytest.param({"constants": {1: ones(2)}}, WeightError, r"weights have names, not 1", id="no-names"),
    pytest.param({"donate": 5}, ExecutionError, r"donate=5 is not a collection of names", id="donate"),
    pytest.param({"donate": [5]}, ExecutionError, r"donate=\[5\] is not a collection", id="donate-numbers"),
    pytest.param({"tuning": 5}, SerializationError, r"a file is given by its path, .* not int", id="tuning"),
])  # fmt: skip
def test_an_executor_is_not_made_of_this(
    options: dict[str, Any], error: type[NpuError], message: str
) -> None:
    graph, weights = linear_graph()

    with pytest.raises(error, match=message):
        IRExecutor(graph, **{"weights": weights, **options})


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


class Holding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.held.copy_(x)
        return x * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda executor: executor(ones(2)),
        IRExecutor.reset,
        lambda executor: executor.load_state_dict(Holding().state_dict()),
    ],
    ids=["call", "reset", "load_state_dict"],
)
def test_whoever_observes_a_run_cannot_change_its_buffers(change: Callable[[IRExecutor], Any]) -> None:
    executor = IRExecutor(extract_ir(Holding(), (ones(2),)), Holding().state_dict())

    with pytest.raises(ExecutionError, match="called from within one of its own calls"):
        executor.run((ones(2),), on_node=lambda node, outputs: change(executor))

    assert not executor.state_dict()["held"].any()


def test_a_buffer_holds_no_history_of_gradients() -> None:
    executor = IRExecutor(extract_ir(Holding(), (ones(2),)), Holding().state_dict())

    executor(ones(2, requires_grad=True))

    held = executor.state_dict()["held"]
    assert (held.tolist(), held.grad_fn, held.requires_grad) == ([1.0, 1.0], None, False)


def test_whoever_observes_a_run_without_buffers_may_call_the_executor() -> None:
    x = torch.ones(2)
    executor = IRExecutor(extract_ir(Function(torch.exp), (x,)), {})
    seen: list[torch.Tensor] = []

    executor.run((x,), on_node=lambda node, outputs: seen.append(executor(x)))

    assert torch.equal(seen[0], torch.exp(x))


def test_a_tensor_in_place_of_a_tuple_of_arguments_is_refused() -> None:
    executor = IRExecutor(extract_ir(Function(torch.exp), (ones(2),)), {})

    with pytest.raises(ExecutionError, match=r"the positional arguments are a tuple, not Tensor"):
        executor.run(ones(2))
