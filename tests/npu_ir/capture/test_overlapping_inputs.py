"""Inputs that overlap in memory, of models that change one of them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn
from torch.export import Dim

from npu_ir import (
    ConversionError,
    ExecutionError,
    Graph,
    GraphError,
    Interpreter,
    SerializationError,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
    verify_ir,
)
from npu_ir.verify.reference import node_values
from tests.support.corpus.case import Call, Function, Holding, call
from tests.support.corpus.comparison import assert_same
from tests.support.documents import load_changed
from tests.support.rows import each_row


def shifted(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return a + b


def chained(a: Tensor, b: Tensor, c: Tensor) -> Any:
    b.mul_(2)
    a[0] = c.sum()
    return a, b - c


def nested(tree: dict[str, list[Tensor]], *, scale: Tensor, rows: Tensor) -> Any:
    tree["parts"][0].mul_(2)
    rows[:, 0].add_(tree["parts"][1])
    return rows @ rows * scale, tree["parts"][0]


def views_of_one(base: Tensor) -> dict[str, Call]:
    return {
        "the second half": call(base[:4], base[2:6]),
        "in front": call(base[3:7], base[1:5]),
        "every second": call(base[:8:2], base[1:9:2]),
        "the same elements": call(base[:4], base[:4]),
    }


CASES = [
    *(
        pytest.param(shifted, lambda base, key=key: views_of_one(base)[key], id=key)
        for key in views_of_one(torch.zeros(12))
    ),
    pytest.param(
        chained, lambda base: call(base[:4], base[3:7], base[6:10]), id="the first and last do not meet"
    ),
    pytest.param(
        nested,
        lambda base: call(
            {"parts": [base[3:6], base[8:11]]}, scale=base.new_ones(3), rows=base[:9].view(3, 3).t()
        ),
        id="nested and transposed",
    ),
]
cases = pytest.mark.parametrize(("function", "inputs"), CASES)


@cases
def test_a_graph_computes_what_eager_computes_on_inputs_that_overlap_so(
    function: Callable[..., Any], inputs: Callable[[Tensor], Call], tmp_path: Path
) -> None:
    model, given = Function(function), inputs(randn(12))
    graph = extract_ir(model, given.args, given.kwargs)
    save_ir(graph, tmp_path / "graph.json")

    for again in (
        graph,
        parse_ir(str(graph)),
        load_ir(tmp_path / "graph.json"),
        graph.clone(),
        copied(graph),
    ):
        assert again == graph
        base = randn(12)
        mine, eager = inputs(base.clone()), inputs(base.clone())
        result, updates = execute_ir(again, mine.args, mine.kwargs, return_mutations=True)
        assert_same(result, model(*eager.args, **eager.kwargs), "the result")
        expected = dict(zip((value.name for value in graph.inputs), leaves(eager), strict=True))
        assert_same(updates, {name: expected[name] for name in updates}, "the updates")
    assert verify_ir(graph, model, given.args, given.kwargs).ok


def copied(graph: Graph) -> Graph:
    return pickle.loads(pickle.dumps(graph))  # noqa: S301 - our own


def leaves(given: Call) -> list[Tensor]:
    return torch.utils._pytree.tree_leaves(given.tree)


def test_inputs_without_data_overlap_as_others_do() -> None:
    base, empty = randn(6), torch.empty(6, device="meta")

    graph = extract_ir(Function(shifted), (base[:4], base[2:]))

    assert extract_ir(Function(shifted), (empty[:4], empty[2:])) == graph
    assert 'overlaps "args_0" at 2' in str(graph)


BASE = torch.zeros(12)


@each_row("args", {
    "apart": (torch.zeros(4), torch.zeros(4)),
    "another offset": (BASE[:4], BASE[3:7]),
    "the same elements": (BASE[:4], BASE[:4]),
    "other strides of the first": (BASE[:8:2], BASE[2:6]),
    "other strides of the second": (BASE[:4], BASE[2:10:2]),
})  # fmt: skip
def test_inputs_that_overlap_otherwise_are_refused(args: tuple[Tensor, Tensor]) -> None:
    graph = extract_ir(Function(shifted), (BASE[:4], BASE[2:6]))

    with pytest.raises(
        ExecutionError,
        match=r"(?s)for inputs that overlap in memory: %args_0, f32\[4\], and %args_1, f32\[4\], which "
        "begins 2 elements behind it.*pass views of one tensor that overlap so",
    ):
        Interpreter(graph).run(*args)


def test_inputs_that_are_only_read_may_overlap_in_any_way() -> None:
    base = randn(12)

    graph = extract_ir(Function(torch.add), (base[:4], base[2:6]))

    assert "overlaps" not in str(graph)
    assert torch.equal(execute_ir(graph, (base[:4], base[1:5])), base[:4] + base[1:5])


def test_inputs_of_several_dtypes_that_overlap_are_refused() -> None:
    base = randn(4)

    with pytest.raises(
        ConversionError, match=r"(?s)inputs of 2 dtypes share memory, and the model changes.*clone"
    ):
        extract_ir(Function(lambda a, b: a.add_(1) + b), (base, base.view(torch.int32)))


def test_inputs_of_open_sizes_that_overlap_are_refused() -> None:
    class Shifted(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return shifted(a, b)

    base, size = randn(6), Dim("size")

    with pytest.raises(
        ConversionError, match=r"(?s)how they overlap is known for fixed sizes only.*Shifted.*clone"
    ):
        extract_ir(Shifted(), (base[:4], base[2:]), dynamic_shapes=({0: size}, {0: size}))


@each_row("number, entry, problem", {
    "without an offset": (1, ["args_0"], "expected a list of two"),
    "a broken offset": (1, ["args_0", 2.5], r"expected an integer, found 2\.5"),
    "no name": (1, [0, 2], "expected a string, found 0"),
    "an unknown name": (1, ["z", 2], "%args_1 cannot overlap 'z': there is no such input"),
    "a parameter": (2, ["args_0", 2], "only inputs overlap"),
})  # fmt: skip
def test_a_file_states_overlaps_of_inputs(number: int, entry: Any, problem: str, tmp_path: Path) -> None:
    model = Holding(lambda self, a, b: shifted(a, b) * self.scale, scale=nn.Parameter(torch.ones(4)))
    graph = extract_ir(model, (BASE[:4], BASE[2:6]))

    with pytest.raises((SerializationError, GraphError), match=problem):
        load_changed(graph, lambda document: document["arguments"][number].update(overlaps=entry), tmp_path)


def test_a_forward_that_the_model_has_of_its_own_is_kept() -> None:
    usual, model, base = Function(shifted), Function(torch.add), randn(6)
    model.forward = shifted  # type: ignore[method-assign]

    graph = extract_ir(model, (base[:4], base[2:]))
    extract_ir(usual, (base[:4], base[2:]))

    assert "forward" not in vars(usual)
    assert model.forward is shifted
    assert verify_ir(graph, model, (base[:4], base[2:])).ok


def test_a_tensor_may_be_passed_twice_beside_inputs_that_overlap() -> None:
    def both(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Any:
        c.mul_(2)
        return shifted(a, b), c + d

    base, twice = randn(6), randn(3)
    args = base[:4], base[2:], twice, twice

    assert verify_ir(extract_ir(Function(both), args), Function(both), args).ok


def test_nodes_are_compared_with_those_of_the_views() -> None:
    model, base = Function(shifted), randn(6)
    graph = extract_ir(model, (base[:4], base[2:]))

    names = node_values(model, {}, (base[:4], base[2:]), {}).keys()

    assert names == {value.name for node in graph.nodes for value in node.outputs}
