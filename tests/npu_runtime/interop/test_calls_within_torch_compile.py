"""What is compiled here can be called within functions that `torch.compile` compiles: it breaks its graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_runtime import Decoder, IRExecutor, TrainStep, compile_and_capture, extract_decoder
from npu_runtime._torch.opaque_calls import opaque
from tests.support.language_models import VOCABULARY, language_model

X, Y = torch.randn(5, 3), torch.randn(5, 4)
BACKENDS = pytest.mark.parametrize("backend", ["aten", "host"])


@pytest.fixture(autouse=True)
def _no_compiled_code() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).eval()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="eager", **options)


@BACKENDS
def test_an_executor_returns_the_same_within_a_compiled_function(backend: str) -> None:
    model = network()
    executor = IRExecutor(extract_ir(model, (X,)), model.state_dict(), backend=backend)

    @compiled
    def around(x: Tensor) -> tuple[Tensor, ...]:
        return executor(x * 2) + 1, executor.run_flat((x,))[0][0] + 1, executor.run((x,)).results + 1

    given = X, X + 1, X.clone().requires_grad_()
    found = [around(item) for item in given]

    expected = [
        (executor(item * 2) + 1, executor(item) + 1, executor.run((item,)).results + 1) for item in given
    ]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@BACKENDS
def test_state_advances_as_often_as_the_compiled_function_is_called(backend: str) -> None:
    model = network().train()
    graph = extract_ir(model, (X,))
    executor, other = (IRExecutor(graph, model.state_dict(), backend=backend) for _ in range(2))
    around = compiled(lambda x: executor(x) + 1)

    for _ in range(3):
        torch.testing.assert_close(around(X), other(X) + 1, rtol=0, atol=0)

    assert executor.state_dict()["1.num_batches_tracked"] == 3
    torch.testing.assert_close(executor.state_dict(), other.state_dict(), rtol=0, atol=0)


@BACKENDS
def test_steps_that_a_compiled_function_takes_are_those_of_the_step(backend: str) -> None:
    models = [network().train() for _ in range(2)]
    steps = [
        TrainStep(model, torch.optim.Adam(model.parameters(), lr=0.1), F.mse_loss, backend=backend)
        for model in models
    ]

    @compiled
    def train(x: Tensor, y: Tensor) -> Tensor:
        return steps[0](x * 1, y) + steps[0].run([(x, y)] * 6).sum()

    found = [train(X, Y) for _ in range(3)]

    expected = [steps[1](X * 1, Y) + steps[1].run([(X, Y)] * 6).sum() for _ in range(3)]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)


def test_an_artifact_is_replayed_within_a_compiled_function() -> None:
    model = network().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    artifact = compile_and_capture(model, optimizer, F.mse_loss, (X, Y))
    before = copy.deepcopy(model.state_dict())
    expected = artifact.run_ir(X, Y)

    found = compiled(lambda x, y: artifact.replay(x, y) * 2)(X, Y)

    torch.testing.assert_close(found, expected * 2)
    assert not torch.equal(model.state_dict()["0.weight"], before["0.weight"])


@BACKENDS
def test_tokens_are_generated_within_a_compiled_function(backend: str) -> None:
    model = language_model("llama")
    decoder = Decoder(extract_decoder(model, max_batch=1, max_length=48), model.state_dict(), backend=backend)
    prompt = torch.randint(3, VOCABULARY, (1, 5))

    @compiled
    def around(tokens: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        generated = decoder.generate(tokens * 1, max_new_tokens=12)
        decoder.reset()
        logits = decoder.feed(tokens)
        decoder.reset()
        return generated + 0, list(decoder.stream(tokens, max_new_tokens=4)), logits

    generated, streamed, logits = around(prompt)

    assert torch.equal(generated, decoder.generate(prompt, max_new_tokens=12))
    assert torch.equal(torch.stack(streamed, 1), generated[:, 5:9])
    decoder.reset()
    assert torch.equal(logits, decoder.feed(prompt))


def test_a_graph_without_breaks_says_what_breaks_it() -> None:
    model = network()
    executor = IRExecutor(extract_ir(model, (X,)), model.state_dict())

    with pytest.raises(
        torch._dynamo.exc.Unsupported, match="what it runs is compiled already: call it outside"
    ):
        compiled(lambda x: executor(x) + 1, fullgraph=True)(X)


def test_functions_that_an_opaque_one_calls_are_not_traced_either() -> None:
    seen = []

    def inner() -> None:
        seen.append(torch.compiler.is_compiling())

    @opaque
    def outer(x: Tensor) -> Tensor:
        inner()
        return x + 1

    result = compiled(lambda x: outer(x) * 2)(X)

    assert seen == [False]
    assert torch.equal(result, (X + 1) * 2)
