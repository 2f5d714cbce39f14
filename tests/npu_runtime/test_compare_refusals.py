"""Comparisons that are impossible are refused, if possible before anything runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from npu_ir import TensorType, VerificationError, WeightError, extract_ir
from npu_runtime.diagnostics.compare import compare
from npu_runtime.diagnostics.compare.sides import ModuleSide
from tests.npu_runtime.compare_cases import Block, Counting, graph_of
from tests.support.corpus.case import Function


def test_what_is_no_side_is_refused() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))

    with pytest.raises(
        VerificationError, match=r"side b is str.*\n.*give an nn.Module, a Graph, an IRExecutor"
    ):
        compare(graph, "executor", (torch.randn(4),))


def test_other_inputs_than_a_side_takes_are_refused_before_anything_runs() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))
    other = graph_of(lambda x: x + 1, torch.randn(5))

    with pytest.raises(
        VerificationError, match=r"interpreter of 'Function' does not take these inputs: .*f32\[5\]"
    ):
        compare(graph, other, (torch.randn(4),))


def test_other_numbers_of_results_are_refused() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))
    other = graph_of(lambda x: (x + 1, x), torch.randn(4))

    with pytest.raises(VerificationError, match=r"gives result, .* result\[0\], result\[1\]"):
        compare(graph, other, (torch.randn(4),))


def test_inputs_that_are_no_sequence_are_refused() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))

    for inputs, name in (({"x": torch.randn(4)}, "dict"), (torch.randn(4), "Tensor")):
        with pytest.raises(
            VerificationError, match=f"inputs are positional arguments, in a tuple or list, not {name}"
        ):
            compare(graph, graph, inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize("number", [-1.0, float("nan")])
def test_a_tolerance_that_is_none_is_refused(name: str, number: float) -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))

    with pytest.raises(VerificationError, match=f"{name} is a number from 0 on, not "):
        compare(graph, graph, (torch.randn(4),), **{name: number})  # type: ignore[arg-type]


def test_a_model_that_fails_is_named() -> None:
    def failing(x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            raise ValueError("not today")
        return x + 1

    x = torch.randn(4)

    with pytest.raises(VerificationError, match="the model fails on these inputs: ValueError: not today"):
        compare(Function(failing), graph_of(failing, x), (x,))


def test_a_model_that_lacks_a_layer_of_the_weights_is_told_so() -> None:
    deep, shallow = (torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(count))) for count in (2, 1))
    x = torch.randn(1, 4)

    with pytest.raises(
        VerificationError, match=r"fix: the model has no 1\.weight: give a model of these weights"
    ):
        compare(shallow, extract_ir(deep, (x,)), (x,), weights=deep.state_dict())


def test_weights_that_no_side_knows_are_refused() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    with pytest.raises(WeightError, match="unexpected: other"):
        compare(graph, graph, (x,), weights={**model.state_dict(), "other": x})
    with pytest.raises(WeightError, match=r"missing: linear.weight"):
        compare(graph, graph, (x,))


def test_an_update_that_the_model_has_no_name_for_is_refused() -> None:
    model, x = Counting(), torch.rand(2)
    side = ModuleSide(model, (x,), {}, {})
    side.graph.set_update(side.graph.buffers["count"], None)
    unknown = side.graph.add_buffer("unknown", TensorType.of(x))
    side.graph.set_update(unknown, side.graph.outputs[0])

    with pytest.raises(
        VerificationError,
        match=(
            r"updates 'unknown', and the model has no parameter or buffer .*\n"
            r".*eager Counting\n.*read the tensor from"
        ),
    ):
        side.run((x,), {}, None)
