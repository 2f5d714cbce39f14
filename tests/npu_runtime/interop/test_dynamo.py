"""``torch.compile(model, backend="npu")``: results, options, and what PyTorch runs itself."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, randn
from torch._dynamo.exc import BackendCompilerFailed

import npu_runtime.interop.dynamo
from npu_ir import ConversionError
from npu_runtime import FallbackWarning, explain
from tests.npu_runtime.interop.compiled_graphs import (
    CompiledGraphs,
    assert_same_calls,
    compiled,
    compiled_graphs,
)
from tests.support.language_models import language_model

__all__ = ["compiled_graphs"]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_composite_ops_stay_whole_without_gradients(compiled_graphs: CompiledGraphs, mode: Any) -> None:
    assert_same_calls(mlp(), (torch.randn(5, 8),), under=mode, fullgraph=True)

    assert compiled_graphs.names == ["inference"]
    assert compiled_graphs.ops() == ["aten.linear.default", "aten.tanh.default", "aten.linear.default"]


def test_parameters_are_inputs_so_their_new_content_counts(compiled_graphs: CompiledGraphs) -> None:
    model = mlp()
    ours, x = compiled(model, fullgraph=True), torch.randn(2, 8)
    with torch.no_grad():
        ours(x)
        model[0].weight.mul_(2)
        model[2].bias = nn.Parameter(torch.ones(4))

        torch.testing.assert_close(ours(x), model(x))
    assert compiled_graphs.names == ["inference"]
    assert not compiled_graphs.graphs[0].parameters


@pytest.mark.parametrize("dynamic", [
    pytest.param(True, id="from the start", marks=pytest.mark.exhaustive),
    pytest.param(None, id="when seen"),
])  # fmt: skip
def test_sizes_may_vary(compiled_graphs: CompiledGraphs, dynamic: bool | None) -> None:
    calls = [(torch.randn(rows, 8),) for rows in (5, 7, 9)]

    assert_same_calls(mlp(), *calls, dynamic=dynamic, fullgraph=True)

    assert len(compiled_graphs.names) == (1 if dynamic else 2)
    assert "s0" in compiled_graphs.graphs[-1].symbols


def _changed_inputs(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(1)
    y[0] = x.sum()
    return x.view(-1), y


def _changed_view(x: torch.Tensor) -> torch.Tensor:
    x[1:].mul_(2)
    return x.t()


def _sized(x: torch.Tensor, count: int, factor: float) -> Any:
    return x * count + factor, x.shape[0], None, {"half": 0.5}


def _random(x: torch.Tensor) -> torch.Tensor:
    drawn = x.clone().uniform_() + torch.bernoulli(torch.full((3, 4), 0.5)) + x.new_empty(3, 4).normal_()
    return F.dropout(x, 0.5) + drawn + torch.rand(3, 4) + torch.randn_like(x) + torch.randint(0, 5, (3, 4))


@pytest.mark.parametrize(("function", "calls"), [
    pytest.param(_changed_inputs, [(torch.randn(3), torch.randn(2))], id="changed inputs"),
    pytest.param(_changed_view, [(torch.randn(3, 4),)], id="changed through a view"),
    pytest.param(lambda x: (x, x.view(-1), x.detach()), [(torch.randn(3, 4),)], id="results that are inputs"),
    pytest.param(lambda x: (x.t() + 1, x[:, ::2].relu()), [(torch.randn(3, 4),)], id="other strides"),
    pytest.param(_sized, [(torch.randn(3), 2, 0.5), (torch.randn(4), 3, 0.7)], id="numbers"),
    pytest.param(_random, [(torch.randn(3, 4),)], id="random numbers"),
    pytest.param(lambda x: x + torch.tensor([1.0, 2, 3, 4]), [(torch.randn(3, 4),)], id="constant"),
    pytest.param(lambda x: torch.fft.fft(x).abs(), [(torch.randn(8),)], id="complex"),
])  # fmt: skip
def test_a_function_computes_what_eager_computes(
    compiled_graphs: CompiledGraphs, function: Callable[..., Any], calls: list[tuple[Any, ...]]
) -> None:
    assert_same_calls(function, *calls, fullgraph=True)

    assert set(compiled_graphs.names) <= {"inference"}


@contextlib.contextmanager
def _float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("under", [
    pytest.param(lambda: torch.autocast("cpu", dtype=torch.bfloat16), id="autocast"),
    pytest.param(_float64_by_default, id="default dtype"),
])  # fmt: skip
def test_what_surrounds_the_call_counts(compiled_graphs: CompiledGraphs, under: Any) -> None:
    def function(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return F.linear(x, x) + numbers.sum() / 3 + torch.ones(4).mean()

    assert_same_calls(function, (torch.randn(4, 4), torch.arange(4)), under=under, fullgraph=True)

    assert compiled_graphs.names == ["inference"]


def test_sizes_that_depend_on_data_are_captured(compiled_graphs: CompiledGraphs) -> None:
    def function(x: torch.Tensor, count: torch.Tensor) -> Any:
        return x[x > 0].sum() + torch.nonzero(x).shape[0], x * count.item()

    settings = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(settings):
        calls = [(torch.randn(3, 4), torch.tensor(count)) for count in (2, 3)]
        assert_same_calls(function, *calls, fullgraph=True)

    assert compiled_graphs.names == ["inference"]
    assert compiled_graphs.graphs[0].symbols


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.exhaustive)])
def test_generation_of_transformers_compiles_one_graph_for_all_tokens(
    compiled_graphs: CompiledGraphs, name: str
) -> None:
    tokens = torch.randint(2, 90, (2, 7))
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": "static"}
    options["attention_mask"] = torch.ones_like(tokens)
    model = language_model(name)
    expected = model.generate(tokens, **options)

    model.forward = compiled(model.forward, fullgraph=True)
    found = model.generate(tokens, **options)

    assert torch.equal(found, expected)
    _, one_token = compiled_graphs.executors  # the first one reads the prompt
    assert len(explain(one_token).state_in_place) == 4


def test_torch_compile_finds_the_backend_by_its_entry_point() -> None:
    assert "npu" in torch.compiler.list_backends()


@pytest.mark.parametrize(("settings", "message"), [
    pytest.param({"options": {"pases": "cpu"}}, "has no option 'pases'\n.*passes, backend, threads, fallback",
        id="option"),
    pytest.param({"mode": "max-autotune"}, "has no mode 'max-autotune'", id="mode"),
    pytest.param({"options": {"passes": "no-such-pass"}}, "no-such-pass", id="pass"),
    pytest.param({"options": {"backend": "nowhere"}}, "nowhere", id="backend"),
    pytest.param({"options": {"fallback": "no"}}, r"fallback='no' is not True or False\n  fix: False makes",
        id="fallback"),
    pytest.param({"options": {"threads": 0}}, "1 to 1024 threads", id="threads"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    torch._dynamo.reset()
    function = torch.compile(torch.sin, backend="npu", **settings)

    with pytest.raises(BackendCompilerFailed, match=f"(?s){message}"):
        function(torch.rand(2))


def test_options_reach_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}
    executor = npu_runtime.interop.dynamo.IRExecutor

    def watched(graph: Any, **kwargs: Any) -> Any:
        given.update(kwargs)
        return executor(graph, **kwargs)

    torch._dynamo.reset()
    monkeypatch.setattr(npu_runtime.interop.dynamo, "IRExecutor", watched)
    function = torch.compile(
        lambda x: x * 1, backend="npu", options={"passes": "elim-identity", "threads": 1}, fullgraph=True
    )

    assert torch.equal(function(torch.ones(2)), torch.ones(2))
    device = torch.device("cpu")
    assert given == {
        "passes": "elim-identity",
        "backend": None,
        "device": device,
        "donate": {},
        "threads": 1,
        "max_fixed_sizes": 0,
    }


@pytest.mark.parametrize(("records", "backend"), [(False, "auto"), (True, None)])
def test_without_options_the_fastest_backend_runs_inference(
    monkeypatch: pytest.MonkeyPatch, records: bool, backend: str | None
) -> None:
    given = []
    executor = npu_runtime.interop.dynamo.IRExecutor

    def watched(graph: Any, **kwargs: Any) -> Any:
        given.append((kwargs["passes"], kwargs["backend"]))
        return executor(graph, **kwargs)

    torch._dynamo.reset()
    monkeypatch.setattr(npu_runtime.interop.dynamo, "IRExecutor", watched)
    x = torch.ones(2, requires_grad=records)

    torch.compile(lambda x: x * x, backend="npu", fullgraph=True)(x)

    assert {*given} == {("default", backend)}


def _refuse(*_: Any, **__: Any) -> Any:
    raise ConversionError("the test says no", where="node 'sin'")


def test_what_has_no_place_in_a_graph_is_run_by_pytorch_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, compiled_graphs: CompiledGraphs
) -> None:
    monkeypatch.setattr(npu_runtime.interop.dynamo, "convert_graph_module", _refuse)
    function, x = torch.compile(torch.sin, backend="npu"), torch.rand(2, requires_grad=True)

    with pytest.warns(
        FallbackWarning, match="(?s)PyTorch runs a forward graph of . nodes.*the test says no.*'sin'"
    ):
        result = function(x)
    with pytest.warns(FallbackWarning, match="a backward graph"):
        result.sum().backward()

    assert torch.equal(result, torch.sin(x))
    assert x.grad is not None
    assert torch.equal(x.grad, torch.cos(x))
    assert compiled_graphs.names == []


def test_without_fallback_what_has_no_place_in_a_graph_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(npu_runtime.interop.dynamo, "convert_graph_module", _refuse)

    with pytest.raises(BackendCompilerFailed, match="the test says no"):
        compiled(torch.sin)(torch.rand(2))


def test_recomputed_random_numbers_fall_back_and_are_right() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        def part(y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(y.sin(), 0.3)

        return torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False).sum()

    def gradient(run: Any) -> Any:
        torch.manual_seed(0)
        x = torch.ones(3, 4, requires_grad=True)
        run(x).backward()
        return x.grad

    wanted = gradient(function)
    with pytest.warns(FallbackWarning, match="run_and_save_rng_state takes an operator as an argument"):
        actual = gradient(torch.compile(function, backend="npu", fullgraph=True))

    assert torch.equal(actual, wanted)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.register_buffer("scale", randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return (self.linear(x) @ self.scale).view(-1)


@pytest.mark.parametrize("is_dynamic", [None, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_other_weights_than_those_of_the_capture_give_the_right_answer(is_dynamic: bool | None) -> None:
    def resize(model: Any) -> None:
        model.linear.weight.data, model.linear.bias.data = randn(5, 3), randn(5)
        model.scale.data = randn(5, 4)

    changes: list[Callable[[Any], None]] = [
        lambda model: setattr(model.scale, "data", randn(4, 4).t()),
        lambda model: setattr(model, "scale", randn(4, 4).t()),
        lambda model: setattr(model.linear, "weight", nn.Parameter(randn(3, 4).t())),
        lambda model: setattr(model.scale, "data", torch.complex(randn(4, 4), randn(4, 4)).conj().imag),
        resize,
    ]

    for change in changes:
        model, x = Scaled(), randn(4, 3)
        with torch.no_grad():
            run = torch.compile(model, backend="npu", dynamic=is_dynamic)
            run(x)
            change(model)
            torch.testing.assert_close(run(x), model(x))
