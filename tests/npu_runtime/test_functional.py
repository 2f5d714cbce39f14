"""A training step written with `npu_runtime.functional` traces, converts and runs like any other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from npu_ir import Graph, Interpreter, format_ir, load_ir, parse_ir, save_ir
from npu_ir.capture.graph_module import convert_graph_module
from npu_runtime import IRExecutor, functional
from tests.support.passes.optimizer_cases import ADAM, SGD, Lists, random
from tests.support.training.eager import step_by_hand

State = dict[str, Tensor]
Optimizer = Callable[[list[Tensor], list[Tensor], State], None]
SHAPES = {"w1": (7, 5), "b1": (7,), "w2": (3, 7)}


def adam(params: list[Tensor], grads: list[Tensor], state: State) -> None:
    moments = [[state[f"{kind}_{name}"] for name in SHAPES] for kind in ("m", "v")]
    functional.adam_step_(params, grads, *moments, [], [state[f"s_{name}"] for name in SHAPES], lr=0.01)


def sgd(params: list[Tensor], grads: list[Tensor], state: State) -> None:
    functional.sgd_step_(params, grads, [state[f"m_{name}"] for name in SHAPES], lr=0.01, momentum=0.9)


def step_of(optimizer: Optimizer) -> Callable[[State, Tensor, Tensor], Tensor]:
    """Return the step of a small network, with its gradients by autograd, that changes a state in place."""

    def step(state: State, x: Tensor, y: Tensor) -> Tensor:
        params = [state[name].detach().requires_grad_() for name in SHAPES]
        w1, b1, w2 = params
        out = functional.linear(functional.relu(functional.linear(x, w1, b1)), w2)
        grads = torch.autograd.grad(out, params, functional.mse_grad(out.detach(), y))
        optimizer([state[name] for name in SHAPES], list(grads), state)
        return out.detach()

    return step


def new_state() -> State:
    params = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    moments = {f"{kind}_{name}": torch.zeros_like(p) for kind in "mv" for name, p in params.items()}
    return {**params, **moments, **{f"s_{name}": torch.zeros(()) for name in params}}


def graph_of(optimizer: Optimizer) -> Graph:
    """Return the graph of a step on flat inputs, traced and functionalized."""
    state, step = new_state(), step_of(optimizer)

    def flat(*inputs: Tensor) -> Tensor:
        return step(dict(zip(state, inputs, strict=False)), *inputs[-2:])

    inputs = (*state.values(), torch.randn(4, 5), torch.randn(4, 3))
    traced = make_fx(flat, tracing_mode="fake")(*inputs)
    with torch.no_grad():
        functionalized = make_fx(torch.func.functionalize(traced), tracing_mode="fake")(*inputs)
    return convert_graph_module(functionalized)


OPTIMIZERS = {
    "adam": (adam, lambda params: torch.optim.Adam(params, lr=0.01, fused=True)),
    "sgd": (sgd, lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9, fused=True)),
}


def ops_of(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def test_the_primitives_are_nodes_by_name_and_the_state_is_updated() -> None:
    graph = graph_of(adam)

    npu = [
        name.removeprefix("npu.").removesuffix(".default")
        for name in ops_of(graph)
        if name.startswith("npu.")
    ]
    assert npu == ["linear", "relu", "linear", "mse_grad", "relu_backward", "adam_step"]
    assert len(graph.updates) == 4 * len(SHAPES)
    assert not [name for name in ops_of(graph) if "copy_" in name]


class Network(nn.Module):
    """The same network in modules of PyTorch."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.params = nn.ParameterList([state[name].clone() for name in SHAPES])

    def forward(self, x: Tensor) -> Tensor:
        w1, b1, w2 = self.params
        return nn.functional.linear(torch.relu(nn.functional.linear(x, w1, b1)), w2)


@pytest.mark.parametrize("run_of", ["interpreter", "executor", "eager"])
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_twelve_steps_of_the_graph_are_those_of_pytorch(run_of: str, case: str) -> None:
    optimizer, expected_of = OPTIMIZERS[case]
    graph, state = graph_of(optimizer), new_state()
    runner: Any = IRExecutor(graph) if run_of == "executor" else Interpreter(graph)
    names = dict(zip([value.name for value in graph.inputs], state, strict=False))
    model = Network(state)
    expected = step_by_hand(model, expected_of(model.parameters()), mse_and_prediction)

    def run(x: Tensor, y: Tensor) -> Tensor:
        if run_of == "eager":
            return step_of(optimizer)(state, x, y)
        (out,), changes = runner.run_flat((*state.values(), x, y))
        state.update({names[value]: content for value, content in changes.items()})
        return out  # type: ignore[no-any-return]

    for _ in range(12):
        x, y = torch.randn(4, 5), torch.randn(4, 3)
        torch.testing.assert_close(run(x, y), expected(x, y)[1], rtol=1e-5, atol=1e-6)
    for name, param in zip(SHAPES, model.params, strict=True):
        torch.testing.assert_close(state[name], param.detach(), rtol=1e-5, atol=1e-6)


def mse_and_prediction(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return nn.functional.mse_loss(prediction, target), prediction


def test_the_graph_of_a_step_is_read_back_from_text_and_file(tmp_path: Path) -> None:
    graph = graph_of(adam)

    save_ir(graph, tmp_path / "step.json")

    assert format_ir(parse_ir(format_ir(graph))) == format_ir(graph)
    assert format_ir(load_ir(tmp_path / "step.json")) == format_ir(graph)


IN_PLACE = """
graph step {
  input %p: f32[3, 5]
  input %g: f32[3, 5]
  input %m: f32[3, 5]
  input %v: f32[3, 5]
  input %s: f32[]
  %a.0: f32[3, 5], %a.1: f32[3, 5], %a.2: f32[3, 5], %a.3: f32[] = npu.adam_step_.default(params=[%p], \
grads=[%g], exp_avgs=[%m], exp_avg_sqs=[%v], max_exp_avg_sqs=[], steps=[%s]) \
{lr=0.01, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.0, decoupled=False, amsgrad=False, maximize=False}
  %n: f32[] = npu.step_inc_.default(step=%a.3)
  return (%a.0, %a.1, %a.2, %n)
}
"""


Runner = Callable[[Graph], Callable[..., Any]]
RUNNERS: list[Runner] = [lambda graph: Interpreter(graph).run, IRExecutor]
runners = pytest.mark.parametrize("runner", RUNNERS, ids=["interpreter", "executor"])


@runners
def test_nodes_of_ops_in_place_run_on_copies(runner: Runner) -> None:
    lists, grad = Lists([torch.randn(3, 5)]), torch.randn(3, 5)
    inputs = [lists.params[0], grad, lists.exp_avgs[0], lists.exp_avg_sqs[0], lists.steps[0]]
    before = [item.clone() for item in inputs]

    results = runner(parse_ir(IN_PLACE))(*inputs)

    assert all(map(torch.equal, inputs, before))
    torch.ops.npu.adam_step_(lists.params, [grad], *lists.adam, **ADAM)
    expected = [lists.params[0], lists.exp_avgs[0], lists.exp_avg_sqs[0], torch.tensor(2.0)]
    assert all(map(torch.equal, results, expected))


NUMBERS = """
graph step {
  input %p: f32[3, 5]
  input %g: f32[3, 5]
  input %m: f32[3, 5]
  input %lr: float
  input %momentum: float
  %s.0: f32[3, 5], %s.1: f32[3, 5] = npu.sgd_step.default(params=[%p], grads=[%g], momentum_buffers=[%m], \
lr=%lr, momentum=%momentum) {dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False}
  return (%s.0, %s.1)
}
"""


@runners
def test_numbers_of_a_step_may_be_values_of_the_graph(runner: Runner) -> None:
    run, (p, g, m) = runner(parse_ir(NUMBERS)), random(shapes=[(3, 5)] * 3)

    for lr, momentum in ((0.1, 0.9), (0.2, 0.5)):
        expected = torch.ops.npu.sgd_step([p], [g], [m], **{**SGD, "lr": lr, "momentum": momentum})
        assert all(map(torch.equal, run(p, g, m, lr, momentum), [expected[0][0], expected[1][0]]))


@pytest.mark.smoke
def test_functions_in_place_change_what_they_are_given() -> None:
    grad, step, bc1_inv, bc2_inv = torch.ones(3), torch.zeros(()), torch.empty(()), torch.empty(())

    functional.grad_zero_(grad)
    functional.step_inc_(step)
    results = functional.bias_corr_out(step, 0.9, 0.99, bc1_inv=bc1_inv, bc2_inv=bc2_inv)

    assert (grad.tolist(), step.item()) == ([0.0] * 3, 1.0)
    assert results[0] is bc1_inv
    assert results[1] is bc2_inv
    assert (bc1_inv.item(), bc2_inv.item()) == (pytest.approx(10), pytest.approx(100))


def test_functions_in_place_become_ops_that_return_new_tensors() -> None:
    def counted(step: Tensor, grad: Tensor, first: Tensor, second: Tensor) -> Tensor:
        functional.step_inc_(step)
        functional.grad_zero_(grad)
        functional.bias_corr_out(step, 0.9, 0.99, bc1_inv=first, bc2_inv=second)
        return first * 2

    inputs = (torch.zeros(()), torch.ones(3), torch.empty(()), torch.empty(()))
    graph = convert_graph_module(make_fx(torch.func.functionalize(counted), tracing_mode="fake")(*inputs))

    assert ops_of(graph) == [
        "npu.step_inc.default",
        "npu.grad_zero.default",
        "npu.bias_corr.default",
        "aten.mul.Tensor",
    ]
    (out,), changes = Interpreter(graph).run_flat(inputs)
    assert out.item() == pytest.approx(20)
    assert len(changes) == 4
    assert inputs[0].item() == 0


def test_linear_and_activation_are_one_op() -> None:
    x, weight, bias = torch.randn(4, 5), torch.randn(3, 5), torch.randn(3)

    out = functional.linear_activation(x, weight, bias, "relu")

    assert torch.equal(out, torch.relu(nn.functional.linear(x, weight, bias)))
    assert torch.equal(functional.relu_backward(x[:, :3], out), x[:, :3] * (out > 0))
