"""Graphs that are puzzles of memory, and the check that the executor gives what the interpreter gives."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import assume
from hypothesis import strategies as st

from npu_ir import ExecutionError, Graph, GraphError, Interpreter, TensorType
from npu_ir.core.structure import flatten
from npu_ir.interpreter.random_data import random_call, random_weights
from npu_ir.testing.random_steps import GraphGrowth
from npu_runtime import Backend, IRExecutor
from tests.support.corpus.comparison import assert_same


def memory(item: Any) -> int | None:
    if not isinstance(item, torch.Tensor) or item.layout is not torch.strided or not item.numel():
        return None
    return item.untyped_storage().data_ptr()


def sharing(leaves: list[Any], outside: list[Any]) -> set[tuple[int, int]]:
    """Return pairs of results that share memory; -1 stands for anything from outside."""
    places = [memory(leaf) for leaf in leaves]
    given = {memory(item) for item in outside} - {None}
    pairs = {
        (one, two)
        for two, place in enumerate(places)
        for one in range(two)
        if place is not None and place == places[one]
    }
    return pairs | {(-1, index) for index, place in enumerate(places) if place in given}


def interpreted(
    graph: Graph, weights: Mapping[str, Any], args: Any, kwargs: Any
) -> tuple[list[Any], dict[str, Any]]:
    torch.manual_seed(3)
    try:
        return Interpreter(graph, weights).run_flat(args, kwargs)
    except ExecutionError:
        assume(False)
        raise


def check(
    graph: Graph,
    sizes: dict[str, int] | None = None,
    backend: str | Backend | Sequence[Backend] = "aten",
    tolerance: float = 0.0,
    *,
    any_nan: bool = False,
) -> None:
    """Compare three calls, and one node by node, with the interpreter; nothing that was given may change."""
    weights = random_weights(graph, seed=1)
    args, kwargs = random_call(graph, seed=2, sizes=sizes)
    outside = [*flatten((args, kwargs))[0], *weights.values()]
    before = [item.clone() if isinstance(item, torch.Tensor) else item for item in outside]
    expected, updates = interpreted(graph, weights, args, kwargs)
    shared = sharing(expected, outside)

    executor = IRExecutor(graph, weights, passes=None, backend=backend)
    for attempt in range(3):
        torch.manual_seed(3)
        leaves, mutations = executor.run_flat(args, kwargs)
        assert_same(leaves, expected, f"the result of call {attempt}", tolerance, any_nan=any_nan)
        assert_same(mutations, updates, f"what call {attempt} updates", tolerance, any_nan=any_nan)
        assert sharing(leaves, outside) <= shared
        executor.reset()
    torch.manual_seed(3)
    observed, mutations = executor.run_flat(args, kwargs, observe=lambda node, outputs: None)
    assert_same(observed, expected, "the result node by node", tolerance, any_nan=any_nan)
    assert_same(mutations, updates, "what a run node by node updates", tolerance, any_nan=any_nan)
    assert_same(outside, before, "what was given")


POINTWISE = ("relu", "neg", "sin", "abs", "tanh", "sigmoid", "exp", "square", "erf", "clone", "conj_physical")
VIEWS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("transpose.int", (0, -1)),
    ("transpose.int", (-1, -2)),
    ("permute.default", ([1, 2, 0],)),
    ("slice.Tensor", (0, 1, 9)),
    ("slice.Tensor", (-1, 0, 9, 2)),
    ("select.int", (0, -1)),
    ("unsqueeze.default", (1,)),
    ("squeeze.default", ()),
    ("expand.default", ([2, -1, -1, -1],)),
    ("diagonal.default", (0, 0, 1)),
    ("unfold.default", (-1, 2, 1)),
    ("view.default", ([-1],)),
    ("reshape.default", ([-1],)),
    ("reshape.default", ([2, -1],)),
    ("contiguous.default", ()),
    ("_conj.default", ()),
    ("_neg_view.default", ()),
    ("resolve_conj.default", ()),
    ("resolve_neg.default", ()),
    ("view_as_real.default", ()),
    ("detach.default", ()),
    ("alias.default", ()),
    ("split.Tensor", (1, 0)),
    ("chunk.default", (2, -1)),
    ("unbind.int", (0,)),
    ("real.default", ()),
    ("imag.default", ()),
)


@st.composite
def memory_puzzles(draw: st.DrawFn) -> Graph:
    """Return a graph of views, and of ops that could be done in place."""
    growing = GraphGrowth(lambda items: draw(st.sampled_from(items)))
    dtype = draw(st.sampled_from((torch.float32, torch.float32, torch.complex64)))
    strides = draw(st.sampled_from((None, (1, 3, 6), (0, 3, 1), (24, 6, 2))))
    growing.values.append(growing.graph.add_input("x", TensorType((3, 2, 3), dtype, strides)))
    growing.values.append(growing.weight((3,), dtype))
    state = growing.graph.add_buffer("state", TensorType((3, 2, 3), dtype))
    growing.values.append(state)
    growing.values.append(growing.constant(torch.arange(6.0).to(dtype).view(2, 3)))
    for _ in range(draw(st.integers(2, 16))):
        try:
            _grow(growing)
        except GraphError:
            continue
    graph = growing.graph
    latest = st.sampled_from([*growing.values, *growing.values[-6:]])
    graph.set_outputs(draw(st.lists(latest, min_size=1, max_size=4)))
    contents = [value for value in growing.values[3:] if value.type == state.type and value is not state]
    if contents and draw(st.booleans()):
        graph.set_update(state, draw(st.sampled_from(contents)))
    graph.check()
    return graph


def _grow(growing: GraphGrowth) -> None:
    recent = growing.choose(growing.values[-5:])
    kind = growing.pick("pointwise", "pointwise", "view", "view", "binary", "number", "reduction", "matmul")
    if kind == "pointwise":
        growing.call(f"aten.{growing.pick(*POINTWISE)}.default", recent)
    elif kind == "view":
        for _ in range(growing.pick(1, 2, 3)):
            name, args = growing.pick(*VIEWS)
            made = growing.call(f"aten.{name}", recent, *args)
            if not made:
                return  # nothing is taken apart into no parts
            recent = made[-1]
    elif kind == "binary":
        growing.call(f"aten.{growing.pick('add', 'mul', 'sub')}.Tensor", recent, growing.tensor())
    elif kind == "number":
        growing.call("aten.mul.Tensor", recent, 2)
    elif kind == "reduction":
        growing.call("aten.cumsum.default", recent, 0)
    else:
        growing.call("aten.matmul.default", recent, growing.tensor())
