"""Steps of training on the executor: optimizer state advances, and numbers come with each call."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import ones, randn, tensor, zeros

from npu_ir import ConversionError, ExecutionError, Graph, Interpreter, WeightError, parse_ir
from npu_passes import optimize
from npu_runtime import IRExecutor, to_exported_program
from tests.support.corpus.comparison import assert_same

# AdamW on two parameters, with the ops of its capturable foreach form.
STEP = """
graph Step {
  input %a.grad: f32[3, 2]
  input %b.grad: f32[4]
  input %lr: float
  input %beta1: float
  input %beta2: float
  input %weight_decay: float
  param %a: f32[3, 2]
  param %b: f32[4]
  state %a.exp_avg: f32[3, 2]
  state %b.exp_avg: f32[4]
  state %a.exp_avg_sq: f32[3, 2]
  state %b.exp_avg_sq: f32[4]
  state %a.step: f32[]
  state %b.step: f32[]
  call (%a.grad, %b.grad, hyperparameters={"lr": %lr, "betas": (%beta1, %beta2), "weight_decay": \
%weight_decay})

  %step.0: f32[], %step.1: f32[] = aten._foreach_add.Scalar(self=[%a.step, %b.step]) {scalar=1}
  %decay: float = operator.mul(a=%lr, b=%weight_decay)
  %kept: float = operator.sub(b=%decay) {a=1.0}
  %w.0: f32[3, 2], %w.1: f32[4] = aten._foreach_mul.Scalar(self=[%a, %b], scalar=%kept)
  %rest1: float = operator.sub(b=%beta1) {a=1.0}
  %m.0: f32[3, 2], %m.1: f32[4] = aten._foreach_lerp.Scalar(self=[%a.exp_avg, %b.exp_avg], \
tensors1=[%a.grad, %b.grad], weight=%rest1)
  %v.0: f32[3, 2], %v.1: f32[4] = aten._foreach_mul.Scalar(self=[%a.exp_avg_sq, %b.exp_avg_sq], scalar=%beta2)
  %rest2: float = operator.sub(b=%beta2) {a=1.0}
  %s.0: f32[3, 2], %s.1: f32[4] = aten._foreach_addcmul.Scalar(self=[%v.0, %v.1], \
tensor1=[%a.grad, %b.grad], tensor2=[%a.grad, %b.grad], value=%rest2)
  %root.0: f32[3, 2], %root.1: f32[4] = aten._foreach_sqrt.default(self=[%s.0, %s.1])
  %safe.0: f32[3, 2], %safe.1: f32[4] = aten._foreach_add.Scalar(self=[%root.0, %root.1]) {scalar=1e-08}
  %size: float = operator.neg(a=%lr)
  %new.0: f32[3, 2], %new.1: f32[4] = aten._foreach_addcdiv.Scalar(self=[%w.0, %w.1], tensor1=[%m.0, %m.1], \
tensor2=[%safe.0, %safe.1], value=%size)

  update %a = %new.0
  update %b = %new.1
  update %a.exp_avg = %m.0
  update %b.exp_avg = %m.1
  update %a.exp_avg_sq = %s.0
  update %b.exp_avg_sq = %s.1
  update %a.step = %step.0
  update %b.step = %step.1
  return (%kept, %new.1)
}
"""


def weights(graph: Graph) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        value.argument.target: torch.rand(value.tensor_type.static_shape)
        for value in graph.weights
        if value.argument is not None
    }


def call(index: int, **changes: Any) -> dict[str, Any]:
    torch.manual_seed(index)
    numbers = {"lr": 0.1 / (index + 1), "betas": (0.9, 0.99), "weight_decay": 0.01 * index, **changes}
    return {"args": (randn(3, 2), randn(4)), "kwargs": {"hyperparameters": numbers}}


@pytest.mark.parametrize("pipeline", [None, "default"])
def test_an_executor_takes_several_steps_as_the_interpreter_does(pipeline: str | None) -> None:
    graph = parse_ir(STEP)
    expected = given_state = weights(graph)
    before = copy.deepcopy(given_state)
    executor = IRExecutor(graph if pipeline is None else optimize(graph, pipeline), expected)

    for index in range(5):
        given = call(index)
        kept, new = executor(*given["args"], **given["kwargs"])
        results, updates = Interpreter(graph, expected).run_flat(given["args"], given["kwargs"])
        expected = {**expected, **updates}
        assert kept == results[0] == 1.0 - given["kwargs"]["hyperparameters"]["lr"] * 0.01 * index
        assert_same(new, results[1], f"the result of call {index}")

    assert executor.state_dict().keys() == expected.keys()
    assert_same(executor.state_dict(), expected, "the state")
    assert_same(given_state, before, "the state that was given")


def test_state_that_is_missing_is_refused() -> None:
    graph = parse_ir(STEP)
    given = weights(graph)
    del given["b.step"]

    with pytest.raises(WeightError, match=r"missing: b.step, f32\[\] \(optimizer state: not in"):
        IRExecutor(graph, given)


@pytest.mark.parametrize(("changes", "message"), [
    pytest.param({"lr": 1}, "input %lr is int, the graph needs float", id="int"),
    pytest.param({"lr": tensor(0.1)}, r"input %lr is f32\[\], the graph needs float", id="tensor"),
    pytest.param({"lr": None}, "input %lr is NoneType, the graph needs float", id="None"),
    pytest.param({"betas": (0.9,)}, "betas", id="too few"),
    pytest.param({"eps": 0.1}, "hyperparameters", id="unknown"),
])  # fmt: skip
def test_numbers_of_another_kind_are_refused(changes: dict[str, Any], message: str) -> None:
    graph = parse_ir(STEP)
    executor, given = IRExecutor(graph, weights(graph)), call(0, **changes)

    with pytest.raises(ExecutionError, match=message):
        executor(*given["args"], **given["kwargs"])


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -2.5, 1e-45, 1e30, math.inf, math.nan])
@pytest.mark.parametrize("op", [
    "aten.mul.Scalar(self=%x, other=%number)",
    "aten.add.Tensor(self=%x, other=%x, alpha=%number)",
    "aten.pow.Tensor_Scalar(self=%x, exponent=%number)",
    "aten.lerp.Scalar(self=%x, end=%y, weight=%number)",
    "aten.addcmul.default(self=%x, tensor1=%y, tensor2=%y, value=%number)",
    "aten.threshold.default(self=%x, threshold=%number, value=%number)",
    "aten.dropout.default(input=%x, p=%zero) {train=True}",
    "aten.clamp.default(self=%x, min=%number)",
    "aten.full_like.default(self=%x, fill_value=%number)",
])  # fmt: skip
def test_no_number_is_compiled_in(op: str, number: float) -> None:
    graph = parse_ir(f"""
graph Numbers {{
  input %x: f32[3]
  input %y: f32[3]
  input %number: float
  input %zero: float

  %first: f32[3] = {op}
  %second: f32[3] = aten.add.Tensor(self=%first, other=%x)
  %third: f32[3] = aten.mul.Tensor(self=%first, other=%second)

  return (%second, %third, %number)
}}
""")
    executor = IRExecutor(graph)

    for other in (0.5, number, 1.0, number):
        args = (tensor([1.0, -2.0, 3.5]), tensor([0.5, 4.0, -1.0]), other, 0.0)
        x = args[0].clone()
        assert_same(executor(*args), Interpreter(graph).run(*args), f"results for {other}")
        assert_same(args[0], x, "the input")


MOMENT = """
graph Step {
  input %x: f32[4]
  state %w.exp_avg: f32[4]
  %added: f32[4] = aten.add.Tensor(self=%w.exp_avg, other=%x)
  update %w.exp_avg = %added
  return %added
}
"""


def test_state_becomes_a_buffer_of_a_program_of_pytorch() -> None:
    module = to_exported_program(parse_ir(MOMENT), {"w.exp_avg": zeros(4)}).module()

    assert_same(module(ones(4)), ones(4), "the first result")
    assert_same(module(ones(4)), 2 * ones(4), "the second result")
    graph = parse_ir(STEP)
    with pytest.raises(ConversionError, match="input %lr is a float: a program of PyTorch takes tensors"):
        to_exported_program(graph, weights(graph))
