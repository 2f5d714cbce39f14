"""The options of the backend ``npu`` of torch.compile, and what happens to what has no place in a graph."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import npu_runtime.interop.dynamo
from npu_ir import ConversionError
from npu_runtime import FallbackWarning
from tests.npu_runtime.compiled_graphs import CompiledGraphs, compiled, compiled_graphs

__all__ = ["compiled_graphs"]


def test_torch_compile_finds_the_backend_by_its_entry_point() -> None:
    assert "npu" in torch.compiler.list_backends()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            {"options": {"pases": "cpu"}},
            "has no option 'pases'\n.*passes, backend, threads, fallback",
            id="option",
        ),
        pytest.param({"mode": "max-autotune"}, "has no mode 'max-autotune'", id="mode"),
        pytest.param({"options": {"passes": "no-such-pass"}}, "no-such-pass", id="pass"),
        pytest.param({"options": {"backend": "nowhere"}}, "nowhere", id="backend"),
        pytest.param({"options": {"threads": 0}}, "at least one thread", id="threads"),
    ],
)
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
    assert given == {"passes": "elim-identity", "backend": "aten", "device": device, "threads": 1}


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

        total: torch.Tensor = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False).sum()
        return total

    def gradient(run: Any) -> Any:
        torch.manual_seed(0)
        x = torch.ones(3, 4, requires_grad=True)
        run(x).backward()
        return x.grad

    wanted = gradient(function)
    with pytest.warns(FallbackWarning, match="run_and_save_rng_state takes an operator as an argument"):
        actual = gradient(torch.compile(function, backend="npu", fullgraph=True))

    assert torch.equal(actual, wanted)


def test_nothing_is_warned_about_where_all_has_a_place(compiled_graphs: CompiledGraphs) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        torch.compile(torch.sin, backend="npu")(torch.rand(2))

    assert compiled_graphs.names == ["inference"]
