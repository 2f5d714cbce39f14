"""Every model of the corpus gives the same answer through a graph as in eager mode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from npu_ir import execute_ir, extract_ir
from tests.support.corpus import journey
from tests.support.corpus.case import Case, Function
from tests.support.corpus.comparison import assert_same
from tests.support.corpus.dtypes import float64_default
from tests.support.corpus.tables import all_cases

CASES = all_cases()
cases = pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])


@pytest.mark.captured_once
@cases
def test_a_graph_computes_what_eager_computes(case: Case, tmp_path: Path) -> None:
    expected, graph = journey.eager_and_graph(case)
    loaded = journey.check_graph(case, graph, tmp_path)

    journey.check_execution(case, [graph, graph, loaded], expected)
    bare = journey.capture_without_weights(case)
    if not case.unregistered:
        assert journey.text_without_data(bare) == journey.text_without_data(graph)
    journey.check_execution(case, [journey.check_graph(case, bare, tmp_path)], expected)


# PyTorch cannot build the others of FakeTensors, or it would take too long to try all.
UNBUILT = (
    "transformer",
    "bfloat16_convolution",
    "double_model",
    "half_model",
    "channels_last_model",
    "orthogonal",
)
SAMPLE = [case for case in CASES if case.id not in UNBUILT and not case.unregistered][::6]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in SAMPLE])
def test_a_model_of_fake_tensors_computes_what_eager_computes(case: Case) -> None:
    expected = journey.run_eagerly(case)

    graph = journey.capture_of_fakes(case)

    journey.check_execution(case, [graph], expected)


def test_keywords_and_keys_may_come_in_another_order() -> None:
    model = Function(lambda tree, *, a, b: tree["x"] - tree["y"] * a / b)
    given = [torch.rand(2) for _ in range(4)]
    graph = extract_ir(model, ({"x": given[0], "y": given[1]},), {"a": given[2], "b": given[3]})

    result = execute_ir(graph, ({"y": given[1], "x": given[0]},), {"b": given[3], "a": given[2]})

    assert torch.equal(result, model({"x": given[0], "y": given[1]}, a=given[2], b=given[3]))


def test_a_weight_may_be_given_by_any_of_its_names() -> None:
    layer = nn.Linear(2, 2)
    graph = extract_ir(nn.Sequential(layer, layer), (torch.rand(1, 2),))
    state, x = layer.state_dict(), torch.rand(1, 2)

    first = execute_ir(graph, (x,), weights={f"0.{key}": tensor for key, tensor in state.items()})
    second = execute_ir(graph, (x,), weights={f"1.{key}": tensor for key, tensor in state.items()})

    assert torch.equal(first, second)


NUMBERS_FROM_NOTHING = (
    "aranges",
    "linspace_logspace_eye",
    "random_factories",
    "integer_arithmetic",
    "windows_and_triangles",
)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.id) for case in CASES if case.id in NUMBERS_FROM_NOTHING]
)
def test_the_default_dtype_of_the_process_has_no_influence(case: Case) -> None:
    expected = journey.run_eagerly(case)
    graph, given = journey.capture_without_weights(case), case.make_call()

    with float64_default():
        torch.manual_seed(journey.RUN_SEED)
        result = execute_ir(graph, given.args, given.kwargs)

    assert_same(result, expected.result, "the result")


# What a reader expects to be covered, by kind of operator.
EXPECTED = {
    "convolution": "conv1d conv2d conv3d conv_transpose2d convolution",
    "linear": "linear addmm mm bmm matmul einsum",
    "activation": "relu gelu silu sigmoid tanh leaky_relu hardswish",
    "normalization": "batch_norm layer_norm group_norm instance_norm",
    "pooling": "max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d",
    "elementwise": "add sub mul div pow sqrt rsqrt neg abs exp log clamp",
    "shape": "view reshape permute transpose flatten squeeze unsqueeze expand repeat",
    "concatenation": "cat split chunk stack",
    "reduction": "mean sum max min amax amin",
    "attention": "softmax log_softmax scaled_dot_product_attention",
    "indexing": "embedding select slice index gather",
    "comparison": "eq ne lt gt where",
    "casts": "to _to_copy contiguous clone",
    "recurrent": "gru lstm",
    "others": "dropout sort topk lerp addcmul",
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_every_expected_operator_has_a_model(kind: str) -> None:
    covered = {case.op.split(".")[1] for case in CASES if case.op}

    assert set(EXPECTED[kind].split()) - covered == set()


def test_every_model_has_a_name_of_its_own() -> None:
    counts = Counter(case.id for case in CASES)

    assert [name for name, count in counts.items() if count > 1] == []


def test_the_corpus_has_more_than_600_models() -> None:
    assert len(CASES) > 600


def test_a_tolerance_has_a_reason() -> None:
    assert [case.id for case in CASES if bool(case.tolerance) != bool(case.reason)] == []
