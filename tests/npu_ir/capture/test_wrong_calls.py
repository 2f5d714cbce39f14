"""A call or weights that do not fit a graph are refused before anything runs; a failing node is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn, randn

from npu_ir import ExecutionError, Graph, TensorType, WeightError, execute_ir, extract_ir, parse_ir
from tests.support.corpus.case import Call, Function, call


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("hidden", torch.ones(2), persistent=False)

    def forward(self, x: Any, options: Any, factor: float = 2.0, *, mask: Any = None) -> Any:
        y = self.linear(x) * self.scale + self.hidden
        return y * factor if mask is None else y * mask


@pytest.fixture(scope="module")
def net() -> Graph:
    return extract_ir(Net(), (randn(2, 3), {"a": randn(1), "b": [2, None]}, 0.5), {"mask": randn(2)})


X, OPTIONS, MASK = randn(2, 3), {"a": randn(1), "b": [2, None]}, randn(2)

WRONG_CALLS = [
    pytest.param(
        call(X, OPTIONS, mask=MASK), r"expected a tuple of 3, got a tuple of 2\n  at: args", id="too_few"
    ),
    pytest.param(
        call(X, OPTIONS, 0.5, 1, mask=MASK), r"expected a tuple of 3, got a tuple of 4", id="too_many"
    ),
    pytest.param(
        call(X, OPTIONS, 0.5), r"expected keys \['mask'\], got \[\]\n  at: kwargs", id="missing_keyword"
    ),
    pytest.param(call(X, OPTIONS, 0.5, mask=MASK, z=1), r"got \['mask', 'z'\]", id="unknown_keyword"),
    pytest.param(
        call(randn(7, 3), OPTIONS, 0.5, mask=MASK),
        r"input %x is f32\[7, 3\], the graph needs f32\[2, 3\]\n  at: args\[0\]",
        id="other_batch",
    ),
    pytest.param(
        call(X.double(), OPTIONS, 0.5, mask=MASK),
        r"input %x is f64\[2, 3\], the graph needs f32\[2, 3\]",
        id="other_dtype",
    ),
    pytest.param(call(X[0], OPTIONS, 0.5, mask=MASK), r"input %x is f32\[3\]", id="other_rank"),
    pytest.param(call([[1.0] * 3] * 2, OPTIONS, 0.5, mask=MASK), r"args\[0\]", id="lists_for_a_tensor"),
    pytest.param(
        call(None, OPTIONS, 0.5, mask=MASK), r"input %x is NoneType, the graph needs", id="none_for_a_tensor"
    ),
    pytest.param(
        call(3.0, OPTIONS, 0.5, mask=MASK), r"input %x is float, the graph needs", id="number_for_a_tensor"
    ),
    pytest.param(
        call(X, OPTIONS, 0.25, mask=MASK),
        r"the graph was made for 0.5 here, not 0.25\n  at: args\[2\]",
        id="other_number",
    ),
    pytest.param(
        call(X, OPTIONS, torch.tensor(0.5), mask=MASK),
        r"the graph was made for 0.5 here, not tensor",
        id="tensor_for_a_number",
    ),
    pytest.param(
        call(X, {"a": OPTIONS["a"], "b": [2.0, None]}, 0.5, mask=MASK),
        r"made for 2 here, not 2.0\n  at: args\[1\]\['b'\]\[0\]",
        id="float_for_an_int",
    ),
    pytest.param(
        call(X, {"a": OPTIONS["a"], "b": [2, 0]}, 0.5, mask=MASK),
        r"made for None here, not 0",
        id="number_for_none",
    ),
    pytest.param(
        call(X, {"a": OPTIONS["a"], "b": (2, None)}, 0.5, mask=MASK),
        r"expected a list of 2, got a tuple of 2\n  at: args\[1\]\['b'\]",
        id="tuple_for_a_list",
    ),
    pytest.param(
        call(X, {"a": OPTIONS["a"], "c": [2, None]}, 0.5, mask=MASK),
        r"expected keys \['a', 'b'\], got \['a', 'c'\]",
        id="other_keys",
    ),
    pytest.param(
        call(X, [OPTIONS["a"], [2, None]], 0.5, mask=MASK), r"expected a dict with keys", id="list_for_a_dict"
    ),
    pytest.param(call(X, OPTIONS, 0.5, mask=None), r"input %mask is NoneType", id="none_for_a_keyword"),
]


@pytest.mark.parametrize(("given", "match"), WRONG_CALLS)
def test_a_call_that_does_not_fit_is_refused(net: Graph, given: Call, match: str) -> None:
    with pytest.raises(ExecutionError, match=match) as caught:
        execute_ir(net, given.args, given.kwargs, weights=Net().state_dict())

    assert caught.value.fix


def test_all_weights_that_do_not_fit_are_listed_at_once(net: Graph) -> None:
    weights = {"linear.weight": randn(2, 4), "linear.bias": randn(2).half(), "linear.wieght": randn(2, 3)}

    with pytest.raises(WeightError) as caught:
        execute_ir(net, (X, OPTIONS, 0.5), {"mask": MASK}, weights=weights)

    assert str(caught.value).splitlines()[:5] == [
        "the weights do not fit graph 'Net':",
        "  misfit: linear.weight is f32[2, 4], the graph needs f32[2, 3]",
        "  misfit: linear.bias is f16[2], the graph needs f32[2]",
        "  missing: scale, f32[2]",
        "  unexpected: linear.wieght",
    ]


def test_a_nonpersistent_buffer_of_a_meta_model_must_be_given() -> None:
    with torch.device("meta"):
        model = Net()
    graph = extract_ir(model, (X, OPTIONS, 0.5), {"mask": MASK})

    with pytest.raises(
        WeightError, match=r"missing: hidden, f32\[2\] \(not in the state_dict: pass it in constants=\)"
    ):
        execute_ir(graph, (X, OPTIONS, 0.5), {"mask": MASK}, weights=Net().state_dict())


def test_tied_weights_that_differ_are_refused() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    graph = extract_ir(nn.Sequential(first, second), (randn(1, 3),))
    weights = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).state_dict()

    with pytest.raises(WeightError, match=r"misfit: 1.weight and 0.weight are tied in the model but differ"):
        execute_ir(graph, (randn(1, 3),), weights=weights)


def test_two_tensors_for_one_that_is_changed_are_refused() -> None:
    x = randn(3)
    graph = extract_ir(Function(lambda x, y: (x.add_(1), y * 2)), (x, x))

    with pytest.raises(ExecutionError, match=r"is passed in two places: both must be the same tensor"):
        execute_ir(graph, (randn(3), randn(3)))


def test_inputs_that_share_memory_with_one_that_is_changed_are_refused() -> None:
    graph = extract_ir(Function(lambda x, y: x.add_(1) + y), (randn(3), randn(3)))
    base = randn(4)

    with pytest.raises(
        ExecutionError, match=r"inputs %args_0 and %args_1 share memory, and the model changes %args_0"
    ):
        execute_ir(graph, (base[:3], base[1:]))


def test_an_operator_of_a_library_that_is_not_imported_is_named() -> None:
    graph = parse_ir(
        "graph g {\n  input %x: f32[2]\n\n  %y: f32[2] = absent.op.default(self=%x)\n\n  return %y\n}\n"
    )

    with pytest.raises(
        ExecutionError,
        match=r"there is no operator absent.op.default[\s\S]*import the library that registers it",
    ):
        execute_ir(graph, (randn(2),))


def test_operands_of_two_dtypes_are_not_cast_silently() -> None:
    graph = Graph()
    half = graph.add_input("half", TensorType((2, 3), torch.float16))
    full, product = (TensorType(shape, torch.float32) for shape in ((3, 2), (2, 2)))
    graph.set_outputs(
        graph.insert("aten.matmul.default", [half, graph.add_input("full", full)], types=product).outputs[0]
    )

    with pytest.raises(
        ExecutionError,
        match=r"aten.matmul.default failed: .*same dtype[\s\S]*called on f16\[2, 3\], f32\[3, 2\]",
    ):
        execute_ir(graph, (randn(2, 3).half(), randn(3, 2)))


def test_an_error_of_an_operator_is_shown_with_its_node_and_source_line() -> None:
    graph = extract_ir(Function(lambda x, i: x[i]), (randn(2), torch.tensor([0])))

    with pytest.raises(
        ExecutionError, match=r"aten.index.Tensor failed: IndexError[\s\S]*node 'index', .*case.py:\d+"
    ):
        execute_ir(graph, (randn(2), torch.tensor([9])))
