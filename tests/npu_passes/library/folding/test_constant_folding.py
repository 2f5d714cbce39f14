"""Nodes independent of the call are computed once: at once, or when weights are bound."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, Interpreter, TensorType, execute_ir, extract_ir
from npu_ir.core.tensor_bytes import same_data
from npu_passes import PassManager, PassResult
from npu_passes.library.folding.constant_folding import ConstantFolding
from tests.support.corpus.case import Holding
from tests.support.corpus.dtypes import float64_default
from tests.support.passes.folding_cases import op_types, refusals
from tests.support.rows import each_row
from tests.support.small_programs import program

F32 = torch.float32


def fold(model: nn.Module, *inputs: Any, max_bytes: int = 1 << 20, **options: Any) -> PassResult:
    """Return what the pass makes of a model, having asserted that results are those of eager to the bit."""
    graph = extract_ir(model, inputs, **options)
    result = PassManager([ConstantFolding(max_bytes=max_bytes)]).run(graph)
    found = execute_ir(result.graph, inputs, weights=model.state_dict())
    expected = model(*inputs)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    assert all(same_data(one, other.detach()) for one, other in pairs)
    return result


def prologue_types(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.prologue]


X = torch.randn(3, 4)


def test_what_reads_nothing_becomes_a_constant() -> None:
    result = fold(Holding(lambda self, x: x + torch.arange(12.0).view(3, 4) * 2), X)

    assert op_types(result.graph) == ["aten.add.Tensor"]
    assert prologue_types(result.graph) == []
    assert len(result.graph.constants) == 1


def test_names_of_constants_do_not_meet_those_of_weights() -> None:
    graph = extract_ir(Holding(lambda self, x: x + torch.arange(4.0)), (X,))
    taken = graph.clone()
    taken.add_parameter("other", TensorType((4,), F32), aliases=["folded.arange"])

    folded = [PassManager([ConstantFolding]).run(item).graph for item in (graph, taken)]

    assert [list(item.constants) for item in folded] == [["folded.arange"], ["folded.arange#1"]]
    assert folded[0].constants["folded.arange"].name == "arange"


@each_row("both", (True, False))
def test_only_outputs_that_are_read_are_kept(both: bool) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        values, places = torch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 9.0]]).max(dim=1)
        return x[:2, :2] * values + (places if self.both else 0)

    graph = fold(Holding(function, both=both), X).graph

    assert "aten.max.dim" not in op_types(graph)
    assert len(graph.constants) == 1 + both


def test_what_nothing_reads_is_left_to_others() -> None:
    graph = extract_ir(Holding(lambda self, x: x + 1), (X,))
    table = graph.add_constant("table", torch.randn(4))
    graph.insert("aten.exp.default", [table], types=table.type)

    assert PassManager([ConstantFolding]).run(graph).graph == graph


def test_strides_are_those_of_the_graph() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x @ torch.arange(20.0).view(5, 4).t()

    graph = fold(Holding(function), X).graph

    (constant,) = graph.constants.values()
    assert constant.tensor_type.strides == (1, 4)


def test_a_part_of_a_constant_does_not_keep_the_whole_in_memory() -> None:
    table = torch.randn(1000, 4)

    graph = fold(Holding(lambda self, x: x + table[5]), X).graph

    (constant,) = graph.constants.values()
    assert constant.argument.data.untyped_storage().nbytes() == 16
    assert constant.argument.data.data_ptr() != table[5].data_ptr()


def adding(line: str, *arguments: str) -> Graph:
    """Return a graph that adds ``%y``, which a line computes, to its input of 4 numbers."""
    declared = "\n".join(arguments)
    return program(f"""
        input %x: f32[4]
        {declared}
        {line}
        %sum: f32[4] = aten.add.Tensor(self=%x, other=%y)
        return %sum
    """)


def test_settings_of_the_process_have_no_influence() -> None:
    graph = adding("%y: f32[4] = aten.full.default() {size=[4], fill_value=0.1}")

    with float64_default():
        folded = PassManager([ConstantFolding]).run(graph).graph

    (constant,) = folded.constants.values()
    assert same_data(constant.argument.data, torch.full((4,), 0.1))


def test_what_cannot_be_computed_now_is_left_to_where_weights_are_bound(subtests: pytest.Subtests) -> None:
    select = "%y: f32[1] = aten.index_select.default(self=%table, index=%index) {dim=0}"
    constants = ("const %table: f32[3] = [0.0, 1.0, 2.0]", "const %index: i64[1] = [7]")
    meta = '%y: f32[4] = aten.arange.default() {end=4, dtype=f32, device=device("meta")}'
    number = "%y: float = aten._local_scalar_dense.default(self=%w)"
    rows = {
        "it fails": (adding(select, *constants), "aten.index_select.default", None),
        "it is on meta": (adding(meta), "aten.arange.default", torch.tensor([1.0, 2, 3, 4])),
        "a number": (adding(number, "param %w: f32[]"), "aten._local_scalar_dense.default",
            torch.full((4,), 3.5)),
    }  # fmt: skip
    for case, (graph, op_type, expected) in rows.items():
        with subtests.test(case):
            folded = PassManager([ConstantFolding]).run(graph).graph

            assert prologue_types(folded) == [op_type]
            weights = {name: torch.tensor(2.5) for name in folded.parameters}
            if expected is not None:
                assert torch.equal(execute_ir(folded, [torch.ones(4)], weights=weights), expected)


@each_row("function", {
    "itself": (lambda self, x: (torch.arange(4), x * 1)),
    "view": (lambda self, x: (torch.arange(4).view(2, 2), x * 1)),
    "views": (lambda self, x: (torch.arange(4).unsqueeze(0).expand(3, 4)[0], x * 1)),
    "dropout": (lambda self, x: (torch.dropout(torch.arange(4.0), 0.5, False), x * 1)),
})  # fmt: skip
def test_every_call_returns_new_memory(function: Any) -> None:
    graph = fold(Holding(function), X).graph

    interpreter = Interpreter(graph)
    first = interpreter.run(X)[0]
    expected = first.clone()
    first.fill_(7)

    assert graph.body[0].op_type == "aten.mul.Tensor"
    assert torch.equal(interpreter.run(X)[0], expected)


def test_what_depends_on_weights_moves_to_the_prologue() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x * (self.w.exp() + self.b) + x.sum()

    model = Holding(function, w=nn.Parameter(torch.randn(4)), b=torch.randn(4))
    result = fold(model, X)

    assert prologue_types(result.graph) == ["aten.exp.default", "aten.add.Tensor"]
    assert op_types(result.graph) == ["aten.mul.Tensor", "aten.sum.default", "aten.add.Tensor"]


def test_what_depends_on_weights_stays_if_these_are_left_out() -> None:
    model = Holding(lambda self, x: x + self.get_buffer("b").exp() + torch.arange(4.0).neg(), b=X[0])

    graph = PassManager("constant-folding{weights=false}").run(extract_ir(model, (X,))).graph

    assert prologue_types(graph) == []
    assert op_types(graph) == ["aten.exp.default", "aten.add.Tensor", "aten.add.Tensor"]


def test_what_a_buffer_is_updated_by_stays() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        y = x * (self.count + 1)
        self.count.add_(1)
        return y

    graph = extract_ir(Holding(function, count=torch.zeros(4)), (X,))

    result = PassManager([ConstantFolding]).run(graph)

    assert result.graph == graph
    assert prologue_types(result.graph) == []


@each_row("function", {
    "random": (lambda self, x: x + torch.rand(4)),
    "random-like-a-weight": (lambda self, x: x + torch.rand_like(self.w)),
    "dropout": (lambda self, x: x + nn.functional.dropout(self.w, 0.5, True)),
    "bernoulli": (lambda self, x: x + torch.bernoulli(self.w.abs())),
    "empty": (lambda self, x: x + torch.empty(4) * 0),
    "empty-like": (lambda self, x: x + torch.empty_like(self.w) * 0),
    "new-empty": (lambda self, x: x + self.w.new_empty(4) * 0),
})  # fmt: skip
def test_random_and_uninitialised_values_stay(function: Any) -> None:
    graph = extract_ir(Holding(function, w=nn.Parameter(torch.rand(4))), (X,))
    before = [node.op_type for node in graph.nodes if "abs" not in node.op_type]

    folded = PassManager([ConstantFolding]).run(graph).graph

    assert op_types(folded) == before
    assert len(folded.constants) == 0


def test_open_sizes_stay() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[0])[:, None] + self.w.expand(x.shape[0], 4)

    model = Holding(function, w=nn.Parameter(torch.randn(4)))
    batch = torch.export.Dim("batch", min=2, max=64)

    result = fold(model, X, dynamic_shapes={"args": ({0: batch},)})

    assert prologue_types(result.graph) == []
    assert len(result.graph.constants) == 0


def branches(pred: Tensor, x: Tensor) -> Tensor:
    return torch.cond(
        pred, lambda x: x + torch.arange(4.0).exp(), lambda x: x - torch.full((4,), 2.0) * 3, (x,)
    )


def test_regions_get_constants_and_no_prologue() -> None:
    graph = extract_ir(Holding(lambda self, pred, x: branches(pred, x)), (torch.tensor(True), X))

    folded = PassManager([ConstantFolding]).run(graph).graph

    parts = [part for part in folded.graphs() if part is not folded]
    assert [op_types(part) for part in parts] == [["aten.add.Tensor"], ["aten.sub.Tensor"]]
    for pred in (torch.tensor(True), torch.tensor(False)):
        assert torch.equal(execute_ir(folded, (pred, X)), branches(pred, X))


def test_what_takes_too_much_memory_is_not_made(subtests: pytest.Subtests) -> None:
    def region(self: Any, pred: Tensor, x: Tensor) -> Tensor:
        return torch.cond(pred, lambda x: x + torch.zeros(64, 64).sum(), lambda x: x * 1, (x,))

    outer = Holding(lambda self, x: x + torch.outer(self.w, self.w).sum(), w=nn.Parameter(torch.randn(64)))
    huge = adding(
        "%all: f32[1000000000] = aten.zeros.default() {size=[1000000000]}\n"
        "%y: f32[4] = aten.slice.Tensor(self=%all) {end=4}"
    )
    kept = "its results take {} bytes, more than {} bytes of the weights behind them and than max_bytes={}"
    rows = [
        (huge, 1 << 20, "its results take 4000000000 bytes, more than max_bytes=1048576"),
        (extract_ir(Holding(region), (torch.tensor(True), X)), 1024,
            "its results take 16384 bytes, more than max_bytes=1024"),
        (extract_ir(outer, (X,)), 64, kept.format(16384, "8 times the 256", 64)),
        (extract_ir(sum_of_wide_weights((4,)), (X,)), 8, kept.format(32, "the 8", 8)),
    ]  # fmt: skip
    for graph, max_bytes, reason in rows:
        with subtests.test(reason):
            result = PassManager([ConstantFolding(max_bytes=max_bytes)]).run(graph)

            assert refusals(result)[0] == reason


def sum_of_wide_weights(shape: tuple[int, ...], reduce: bool = False) -> nn.Module:
    def function(self: Any, x: Tensor) -> Tensor:
        wide = ((self.w * 2).to(torch.float64) * 2).view(shape)
        return x + (wide.sum() if reduce else wide)

    return Holding(function, w=nn.Parameter(torch.randn(4).bfloat16()))


def test_what_calls_read_is_kept_as_far_as_it_takes_no_more_than_the_weights(
    subtests: pytest.Subtests,
) -> None:
    w = nn.Parameter(torch.randn(4))
    parts = {name: nn.Parameter(torch.randn(4, 4)) for name in "abc"}
    rows = {
        "large on the way": (Holding(lambda self, x: x * (self.w.double() * 2).to(torch.float32), w=w), 0,
            ["aten.mul.Tensor"]),
        "a small sum": (sum_of_wide_weights((2, 2), reduce=True), 8, ["aten.add.Tensor"]),
        "expanded": (Holding(lambda self, x: x + self.w.expand(1000, 4)[:3], w=w), 16, ["aten.add.Tensor"]),
        "an expanded copy": (Holding(lambda self, x: x + self.w.expand(1000, 4).contiguous()[:3], w=w), 16,
            ["aten.contiguous.default", "aten.slice.Tensor", "aten.add.Tensor"]),
        "put together": (Holding(lambda self, x: x @ torch.cat([self.a, self.b, self.c]).t(), **parts), 0,
            ["aten.matmul.default"]),
        "the same many times": (
            Holding(lambda self, x: x @ torch.cat([self.w * 1, self.w * 2, self.w * 3])[:4], w=w),
            0,
            ["aten.cat.default", "aten.slice.Tensor", "aten.matmul.default"],
        ),
    }  # fmt: skip
    for case, (model, max_bytes, body) in rows.items():
        with subtests.test(case):
            assert op_types(fold(model, X, max_bytes=max_bytes).graph) == body


def test_what_reads_a_result_that_is_too_large_stays_with_it() -> None:
    def distances(self: Any, x: Tensor) -> Tensor:
        book = self.book.float()
        return ((book + self.other.float()).pow(2).sum(1) - 2 * x @ book.t()).argmin(1)

    parts = {name: nn.Parameter(torch.randn(256, 4).bfloat16()) for name in ("book", "other")}
    model = Holding(distances, **parts)

    folded = fold(model, X, max_bytes=0).graph

    # What stays reads the other one, too, whose limit is then that of the first.
    assert [node.op_type for node in folded.prologue] == []
    assert torch.equal(Interpreter(folded, model.state_dict()).run(X), model(X))


@pytest.mark.exhaustive
def test_the_time_per_node_does_not_grow_with_a_chain() -> None:
    def seconds(count: int) -> float:
        graph, vector = Graph("chain"), TensorType((4,), F32)
        value = graph.add_parameter("w", vector)
        for _ in range(count):
            value = graph.insert("aten.neg.default", [value], types=vector).outputs[0]
        graph.set_outputs(value)
        start = time.perf_counter()
        assert ConstantFolding().run(graph)
        assert len(graph.prologue) == count
        return time.perf_counter() - start

    seconds(100)
    assert seconds(8000) / 8 < 4 * min(seconds(1000) for _ in range(3))
