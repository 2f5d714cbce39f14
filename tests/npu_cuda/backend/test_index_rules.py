"""Each rule that moves, orders or makes elements computes what PyTorch computes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_cuda.backend.index_rules import INDEX_RULES
from npu_ir import BackendError, Graph, OpNode, extract_ir, parse_ir
from npu_ir.plugins.backend import Backend
from npu_runtime import IRExecutor
from tests.support.backends.native_backends import HOST, NATIVE_BACKENDS
from tests.support.corpus.case import Function

aten = torch.ops.aten


def matrix(rows: int = 6, columns: int = 5) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))


def places(size: int, *shape: int, low: int = 0) -> Tensor:
    return torch.randint(low, size, shape, generator=torch.Generator().manual_seed(size))


X, CUBE, LONG = matrix(), torch.randn(3, 4, 5), matrix(3, 700)
BATCH = torch.randn(2, 3, 6, 5)
TIES = torch.tensor([[3.0, torch.nan, -0.0, 3.0], [0.0, -torch.inf, -0.0, torch.nan]])
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "embedding": (lambda w, i: aten.embedding(w, i, 2), (X, places(6, 3, 4))),
    "embedding of int32": (aten.embedding, (X, places(6, 3).int())),
    "its gradient": (lambda g, i: aten.embedding_dense_backward(g, i, 6, 2, False), (CUBE, places(6, 3, 4))),
    "index_select": (lambda x, i: x.index_select(1, i), (CUBE, places(4, 7))),
    "index_select of columns": (lambda x, i: x.t().index_select(-1, i), (X, places(6, 7))),
    "gather": (lambda x, i: x.gather(1, i), (CUBE, places(4, 3, 6, 2))),
    "gather along the last axis": (lambda x, i: x.gather(-1, i), (CUBE, places(5, 3, 4, 5))),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), (X, places(6, 9, 4), matrix(9, 5))),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), (X, places(5, 5, 3), matrix(6, 3))),
    "scatter of a number": (lambda x, i: x.scatter(1, i, 2.5), (X, places(5, 5, 3))),
    "index": (lambda x, i, j: x[i, j], (CUBE, places(3, 4, 1, low=-3), places(4, 2, low=-4))),
    "index of later axes": (lambda x, i, j: x[:, i, j], (CUBE, places(4, 3), places(5, 3))),
    "index of transposed": (lambda x, i: x.t()[i], (X, places(5, 3, 2))),
    "index_put": (lambda x, i: aten.index_put(x, [i], torch.ones(5)), (X, places(6, 4, low=-6))),
    "index_put of several": (
        lambda x, i, j, v: aten.index_put(x, [None, i, j], v, True),
        (CUBE, places(4, 3), places(5, 3), matrix(3, 3)),
    ),
    "index_copy": (lambda x, i, s: x.index_copy(1, i, s), (X, places(5, 3), matrix(6, 3))),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), (X, places(6, 9), matrix(9, 5))),
    "cat": (lambda x, y: torch.cat([x, y.t(), x], 1), (X, matrix(3, 6))),
    "cat of a vector without elements": (lambda x, y: torch.cat([y, x, x], 1), (X, torch.empty(0))),
    "cat of vectors without elements": (lambda x: torch.cat([x, x]), (torch.empty(0),)),
    "stack": (lambda x, y: torch.stack([x, y.t()], -1), (X, matrix(5, 6))),
    "slice_copy": (lambda x: aten.slice_copy(x, 1, -4, 100, 2), (X,)),
    "slice_scatter": (lambda x, s: x.slice_scatter(s, 1, 1, 5, 2), (X, matrix(6, 2))),
    "select_scatter": (lambda x, s: x.select_scatter(s, 0, -2), (X, torch.ones(5))),
    "constant_pad_nd": (lambda x: aten.constant_pad_nd(x, [2, -1, -2, 3], 7.5), (X,)),
    "pad": (lambda x: aten.pad(x, [2, -1, -2, 3], "constant", 7.5), (X,)),
    "pad by zeros": (lambda x: aten.pad(x, [0, 3]), (CUBE,)),
    "pad by reflection": (lambda x: aten.pad(x, [2, 1, 0, 5], "reflect"), (BATCH,)),
    "pad by the last element": (lambda x: aten.pad(x, [7, 2], "replicate"), (CUBE,)),
    "reflection_pad2d": (lambda x: aten.reflection_pad2d(x, [2, 1, 0, 5]), (BATCH,)),
    "replication_pad1d": (lambda x: aten.replication_pad1d(x, [7, 2]), (CUBE,)),
    "flip": (lambda x: x.flip(0, -1), (CUBE,)),
    "flip of rows": (lambda x: x.flip(0), (CUBE,)),
    "roll": (lambda x: x.roll((2, -8), (1, 2)), (CUBE,)),
    "roll of a vector": (lambda x: x.roll(3), (torch.arange(7),)),
    "repeat": (lambda x: x.repeat(2, 3, 1, 2), (CUBE,)),
    "repeat of a scalar": (lambda x: x.repeat(2, 3), (torch.tensor(3),)),
    "tril": (lambda x: x.tril(-1), (CUBE,)),
    "triu": (lambda x: x.triu(2), (CUBE.double(),)),
    "sort": (lambda x: torch.sort(x, dim=0, stable=True), (TIES,)),
    "sort downwards": (lambda x: torch.sort(x, descending=True, stable=True), (TIES,)),
    "sort of long rows": (lambda x: torch.sort(x, 1), (LONG,)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), (CUBE,)),
    "repeat_interleave along the last axis": (lambda x: x.t().repeat_interleave(2, -1), (X,)),
    "repeat_interleave along the first axis": (lambda x: x.repeat_interleave(2, 0), (X,)),
    "repeat_interleave of all": (lambda x: x.t().repeat_interleave(2), (X,)),
    "repeat_interleave, no times": (lambda x: x.repeat_interleave(0, 1), (X,)),
    "one_hot": (lambda i: nn.functional.one_hot(i, 7), (places(7, 3, 2),)),
    "arange": (lambda x: x + torch.arange(-3, 7, 2), (torch.zeros(5, dtype=torch.int64),)),
    "arange of reals": (lambda x: x + torch.arange(0.5, 3, 0.5), (torch.zeros(5),)),
    "full": (lambda x: x + torch.full((6, 5), 2.5), (X,)),
    "new_zeros": (lambda x: x + x.new_zeros(6, 5), (X,)),
}


def run(backend: Backend, graph: Graph, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    program = backend.prepare(graph, backend.lower(graph), torch.device("cpu"))
    return list(backend.run(program, inputs))


def graph_of(name: str) -> tuple[Graph, tuple[Tensor, ...]]:
    """Return the graph of a call without views, which are those of the inputs, and its inputs."""
    function, inputs = CALLS[name]
    return extract_ir(Function(function), inputs), inputs


def node_of(graph: Graph) -> OpNode:
    return next(node for node in graph.nodes if node.op_type in INDEX_RULES)


@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
@pytest.mark.parametrize("name", CALLS)
def test_a_node_gives_what_pytorch_gives(name: str, backend: Backend) -> None:
    function, given = CALLS[name]
    inputs = tuple(item.to(backend.devices()[0]) for item in given)
    with inputs[0].device:
        graph = extract_ir(Function(function), inputs)
        assert backend.supports(node_of(graph)) is None
        result = IRExecutor(graph, backend=backend)(*inputs)
    expected = function(*given)  # on a GPU, any element of a scatter may be the last

    wanted = tuple(expected) if isinstance(expected, tuple) else (expected,)
    found = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    assert {item.device for item in found} == {inputs[0].device}
    torch.testing.assert_close(
        [item.cpu() for item in found], list(wanted), rtol=1e-6, atol=1e-6, equal_nan=True
    )


EQUAL = places(4, 3, 200, low=-4).float()
TOPS: dict[str, tuple[Callable[..., Any], Tensor]] = {
    "rows": (lambda x: x.topk(3), X),
    "columns": (lambda x: x.topk(2, 1, largest=False), CUBE),
    "few of many": (lambda x: x.topk(5), LONG),
    "all": (lambda x: x.t().topk(6), X),
    "nothing": (lambda x: x.topk(0), X),
    "a number": (lambda x: x.topk(1), torch.tensor(3.0)),
    "in any order": (lambda x: x.topk(9, sorted=False), LONG),
    "NaN, and zeros of both signs": (lambda x: x.topk(3), TIES),
    "equal elements": (lambda x: x.topk(70), EQUAL),
    "few of equal elements": (lambda x: x.topk(3, largest=False), EQUAL),
    "equal integers": (lambda x: x.topk(70, largest=False), EQUAL.to(torch.int16)),
    "equal halves": (lambda x: x.topk(70, sorted=False), EQUAL.half()),
}


@pytest.mark.parametrize("name", TOPS)
def test_topk_takes_the_elements_that_pytorch_takes_in_its_order(name: str) -> None:
    function, x = TOPS[name]
    graph = extract_ir(Function(function), (x,))
    (node,) = graph.nodes_of("aten.topk.default")

    values, indices = IRExecutor(graph, backend="host")(x)

    expected = function(x)
    assert HOST.supports(node) is None
    assert torch.equal(indices, expected.indices)
    torch.testing.assert_close(values, expected.values, rtol=0, atol=0, equal_nan=True)


GRADIENT = "aten.embedding_dense_backward.default(grad_output=%x, indices=%i)"


@pytest.mark.parametrize(("call", "reason"), [
    (f"{GRADIENT} {{num_weights=6, padding_idx=-1, scale_grad_by_freq=True}}", "by the frequency of an"),
    ("aten.index_add.default(self=%x, index=%i, source=%x) {dim=0, alpha=2}", "takes no alpha=2"),
    ("aten.scatter.value(self=%x, index=%j) {dim=0, value=True}", "takes a real value and nothing else"),
    ("aten.roll.default(self=%x) {shifts=[1]}", "rolls axes, not all elements of f32[6, 5]"),
    ("aten.constant_pad_nd.default(self=%x) {pad=[0, 0], value=True}", "takes a real value"),
    ("aten.pad.default(self=%x) {pad=[0, 1], mode=\"circular\"}", "does not pad by 'circular'"),
    ("aten.full.default() {size=[6, 5], fill_value=True}", "takes a real fill_value"),
    ("aten.arange.start_step() {start=True, end=3}", "takes a real start"),
    ("aten.one_hot.default(self=%i) {num_classes=-1}", "not one that depends on the elements"),
])  # fmt: skip
def test_what_no_op_computes_is_refused(call: str, reason: str) -> None:
    inputs = "input %x: f32[6, 5]\ninput %i: i64[6]\ninput %j: i64[6, 5]"
    (node,) = parse_ir(f"graph g {{\n{inputs}\n%y: f32[6, 5] = {call}\nreturn %y\n}}").nodes

    assert reason in str(HOST.supports(node))


def test_axes_of_indices_that_are_no_neighbours_are_refused() -> None:
    graph = extract_ir(Function(lambda x, i: x[i, :, i]), (CUBE, places(3, 2)))

    assert "an index takes neighbouring axes, not [0, 2]" in str(HOST.supports(node_of(graph)))


def test_an_index_outside_is_an_error_that_names_its_node() -> None:
    graph, (weight, _) = graph_of("embedding")

    with pytest.raises(BackendError, match=r"index 6, at place 0 .* not inside axis 0 of size 6"):
        run(HOST, graph, (weight, torch.full((3, 4), 6)))
