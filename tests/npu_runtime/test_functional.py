"""A training step written with `npu_runtime.functional` traces, converts and runs like any other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from npu_ir import Graph, Interpreter, extract_ir, format_ir, load_ir, parse_ir, save_ir
from npu_ir.capture.graph_module import convert_graph_module
from npu_runtime import IRExecutor, compile_and_capture, functional
from tests.support.passes.optimizer_cases import ADAM, SGD, Lists, random

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


class Network(nn.Module):
    """The same network in modules of PyTorch."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.params = nn.ParameterList([state[name].clone() for name in SHAPES])

    def forward(self, x: Tensor) -> Tensor:
        w1, b1, w2 = self.params
        return nn.functional.linear(torch.relu(nn.functional.linear(x, w1, b1)), w2)


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


def test_twelve_steps_of_the_graph_are_those_of_pytorch(subtests: pytest.Subtests) -> None:
    for run_of in ["interpreter", "executor", "eager"]:
        for case, (optimizer, expected_of) in OPTIMIZERS.items():
            with subtests.test(run_of=run_of, case=case):
                graph, state = graph_of(optimizer), new_state()
                model = Network(state)
                expected = expected_of(model.parameters())

                def run(x: Tensor, y: Tensor) -> Tensor:
                    if run_of == "eager":
                        return step_of(optimizer)(state, x, y)
                    out, changes = runner(*state.values(), x, y)
                    for value, content in changes.items():
                        state[names[value]] = content
                    return out

                names = dict(zip([value.name for value in graph.inputs], state, strict=False))
                runner = runner_of(graph, run_of)
                for _ in range(12):
                    x, y = torch.randn(4, 5), torch.randn(4, 3)
                    expected.zero_grad()
                    prediction = model(x)
                    nn.functional.mse_loss(prediction, y).backward()
                    expected.step()
                    torch.testing.assert_close(run(x, y), prediction.detach(), rtol=1e-5, atol=1e-6)
                for name, param in zip(SHAPES, model.params, strict=True):
                    torch.testing.assert_close(state[name], param.detach(), rtol=1e-5, atol=1e-6)


def runner_of(graph: Graph, kind: str) -> Callable[..., tuple[Tensor, Mapping[str, Tensor]]]:
    """Return what runs a graph: result, and new contents by name."""
    if kind == "interpreter":
        interpreter = Interpreter(graph)

        def interpreted(*inputs: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
            (out,), changes = interpreter.run_flat(inputs)
            return out, changes

        return interpreted
    executor = IRExecutor(graph)

    def executed(*inputs: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        run = executor.run(inputs)
        return run.results, run.mutations

    return executed


def test_the_graph_of_a_step_is_read_back_from_text_and_file(tmp_path: Path) -> None:
    graph = graph_of(adam)

    save_ir(graph, tmp_path / "step.json")

    assert format_ir(parse_ir(format_ir(graph))) == format_ir(graph)
    assert format_ir(load_ir(tmp_path / "step.json")) == format_ir(graph)


class Updates(nn.Module):
    """An optimizer as a module: what it updates are its buffers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.lists = kind, Lists(random(shapes=[(3, 5), (4,)]))
        for index in range(2):
            for name in ("params", "exp_avgs", "exp_avg_sqs", "steps"):
                self.register_buffer(f"{name}{index}", getattr(self.lists, name)[index])

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        params, exp_avgs, exp_avg_sqs, steps = (
            [getattr(self, f"{name}{index}") for index in range(2)]
            for name in ("params", "exp_avgs", "exp_avg_sqs", "steps")
        )
        grads = [first * 2, second * 2]
        if self.kind == "adam":
            torch.ops.npu.adam_step_(params, grads, exp_avgs, exp_avg_sqs, [], steps, **ADAM)
        else:
            torch.ops.npu.sgd_step_(params, grads, exp_avgs, **{**SGD, "momentum": 0.9})
        return params[0].sum()  # type: ignore[no-any-return]


def test_ops_in_place_are_functional_in_an_exported_model(subtests: pytest.Subtests) -> None:
    for kind in ["adam", "sgd"]:
        with subtests.test(kind=kind):
            model, args = Updates(kind), (torch.randn(3, 5), torch.randn(4))
            graph = extract_ir(copy.deepcopy(model), args)
            executor, weights = (
                IRExecutor(graph, model.state_dict()),
                {key: value.clone() for key, value in model.state_dict().items()},
            )

            out, changes = Interpreter(graph, weights).run_flat(args)
            run = executor.run(args)
            expected = model(*args)

            assert f"npu.{kind}_step.default" in ops_of(graph)
            torch.testing.assert_close(out[0], expected)
            for name, content in model.state_dict().items():
                if name in changes:
                    assert torch.equal(changes[name], content)
                    assert torch.equal(run.mutations[name], content)
                else:
                    assert torch.equal(weights[name], content)
            assert len(changes) == (8 if kind == "adam" else 4)


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


def test_nodes_of_ops_in_place_run_on_copies(subtests: pytest.Subtests) -> None:
    for run_of in ["interpreter", "executor"]:
        with subtests.test(run_of=run_of):
            graph, lists, grad = parse_ir(IN_PLACE), Lists([torch.randn(3, 5)]), torch.randn(3, 5)
            inputs = [lists.params[0], grad, lists.exp_avgs[0], lists.exp_avg_sqs[0], lists.steps[0]]
            before = [item.clone() for item in inputs]

            results = (
                Interpreter(graph).run(*inputs) if run_of == "interpreter" else IRExecutor(graph)(*inputs)
            )

            assert all(map(torch.equal, inputs, before))
            torch.ops.npu.adam_step_(lists.params, [grad], *lists.adam, **ADAM)
            assert all(
                map(
                    torch.equal,
                    results,
                    [lists.params[0], lists.exp_avgs[0], lists.exp_avg_sqs[0], torch.tensor(2.0)],
                )
            )


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


def test_numbers_of_a_step_may_be_values_of_the_graph(subtests: pytest.Subtests) -> None:
    for run_of in ["interpreter", "executor"]:
        with subtests.test(run_of=run_of):
            graph, (p, g, m) = parse_ir(NUMBERS), random(shapes=[(3, 5)] * 3)
            run = Interpreter(graph).run if run_of == "interpreter" else IRExecutor(graph)

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


def test_a_captured_step_corrects_by_the_same_multipliers_as_eager(subtests: pytest.Subtests) -> None:
    for dtype in [torch.int64, torch.float32]:
        with subtests.test(dtype=dtype):
            beta1, beta2 = 0.9, 0.999

            class Corrections(nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.register_buffer("step", torch.zeros(1, dtype=dtype))
                    self.register_buffer("bc1_inv", torch.empty(1))
                    self.register_buffer("bc2_inv", torch.empty(1))

            model = Corrections()

            def step(x: Tensor) -> Tensor:
                functional.step_inc_(model.step)
                functional.bias_corr_out(
                    model.step, beta1, beta2, bc1_inv=model.bc1_inv, bc2_inv=model.bc2_inv
                )
                return x * model.bc1_inv

            artifact = compile_and_capture(step, example_batch=(torch.ones(1),), modules=[model])
            results = [artifact.replay(torch.ones(1)) for _ in range(5)]

            assert [item.item() for item in results] == pytest.approx(
                [1 / (1 - beta1**t) for t in range(1, 6)], rel=1e-7
            )
            assert model.bc2_inv.item() == pytest.approx(1 / (1 - beta2**5), rel=1e-7)
            assert model.step.item() == 5


def test_linear_and_activation_are_one_op() -> None:
    x, weight, bias = torch.randn(4, 5), torch.randn(3, 5), torch.randn(3)

    out = functional.linear_activation(x, weight, bias, "relu")

    assert torch.equal(out, torch.relu(nn.functional.linear(x, weight, bias)))
    assert torch.equal(functional.relu_backward(x[:, :3], out), x[:, :3] * (out > 0))
