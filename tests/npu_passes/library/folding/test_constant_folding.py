"""Nodes independent of the call are computed once: at once, or when weights are bound."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, Interpreter, ScalarType, TensorType, execute_ir, extract_ir, load_ir, save_ir
from npu_ir.core.tensor_bytes import same_data
from npu_passes import PassManager, PassResult
from npu_passes.library.folding.constant_folding import ConstantFolding
from npu_passes.testing import check_pass
from tests.support.passes.folding_cases import Call, op_types, refusals

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


# Constants


def test_what_reads_nothing_becomes_a_constant() -> None:
    result = fold(Call(lambda self, x: x + torch.arange(12.0).view(3, 4) * 2), X)

    assert op_types(result.graph) == ["aten.add.Tensor"]
    assert prologue_types(result.graph) == []
    assert len(result.graph.constants) == 1


def test_constants_of_the_model_are_folded_and_unread_ones_go_away() -> None:
    table = torch.randn(4)
    result = fold(Call(lambda self, x: x * (table.exp() + torch.tensor(2.0))), X)

    assert op_types(result.graph) == ["aten.mul.Tensor"]
    (constant,) = result.graph.constants.values()
    assert constant.argument is not None
    assert same_data(constant.argument.data, table.exp() + 2)


def test_a_constant_has_the_name_of_what_it_was_computed_by() -> None:
    graph = extract_ir(Call(lambda self, x: x + torch.arange(4.0)), (X,))

    folded = PassManager([ConstantFolding]).run(graph).graph

    assert list(folded.constants) == ["folded.arange"]
    assert folded.constants["folded.arange"].name == "arange"


def test_names_of_constants_do_not_meet_those_of_weights() -> None:
    model = Call(lambda self, x: x + torch.arange(4.0) + self.get_buffer("folded_arange"), folded_arange=X[0])
    graph = extract_ir(model, (X,))
    graph.add_parameter("other", TensorType((4,), F32), aliases=["folded.arange"])

    folded = PassManager([ConstantFolding]).run(graph).graph

    assert list(folded.constants) == ["folded.arange#1"]


def test_ops_with_several_outputs_are_folded() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        values, places = torch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 9.0]]).max(dim=1)
        return x[:2, :2] * values + places

    result = fold(Call(function), X)

    assert not {"aten.max.dim"} & set(op_types(result.graph))
    assert len(result.graph.constants) == 2


def test_outputs_that_nothing_reads_are_not_kept() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x + torch.tensor([[1.0, 5.0], [4.0, 0.0]]).max(dim=1).values.sum()

    assert len(fold(Call(function), X).graph.constants) == 1


def test_what_nothing_reads_is_left_to_others() -> None:
    graph = Graph("dead")
    x, table = graph.add_input("x", TensorType((4,), F32)), graph.add_constant("table", torch.randn(4))
    graph.insert("aten.exp.default", [table], types=x.type)
    graph.set_outputs(x)

    assert PassManager([ConstantFolding]).run(graph).graph == graph


def test_a_constant_without_dimensions_is_folded() -> None:
    result = fold(Call(lambda self, x: x * torch.tensor(3.0).sqrt()), X)

    assert op_types(result.graph) == ["aten.mul.Tensor"]


def test_strides_are_those_of_the_graph() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x @ torch.arange(20.0).view(5, 4).t()

    graph = fold(Call(function), X).graph

    (constant,) = graph.constants.values()
    assert constant.tensor_type.strides == (1, 4)


def test_special_values_stay_to_the_bit() -> None:
    special = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])

    graph = fold(Call(lambda self, x: torch.where(x[0] > 0, special * 1, -special)), X).graph

    assert op_types(graph).count("aten.mul.Tensor") == 0


def test_a_part_of_a_constant_does_not_keep_the_whole_in_memory() -> None:
    table = torch.randn(1000, 4)

    graph = fold(Call(lambda self, x: x + table[5]), X).graph

    (constant,) = graph.constants.values()
    assert constant.argument is not None
    assert constant.argument.data is not None
    assert constant.argument.data.untyped_storage().nbytes() == 16
    assert constant.argument.data.data_ptr() != table[5].data_ptr()


def test_an_expanded_constant_stays_expanded(tmp_path: Path) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x.sum() + torch.arange(7.0).mul(0.1)[:, None, None].expand(7, 3, 50).sum(-1)

    def kept(self: Any, x: Tensor) -> Tensor:
        return torch.cat([x, torch.arange(4.0)[None].expand(3, 4)])

    fold(Call(function), X)
    graph = fold(Call(kept), X).graph

    (constant,) = graph.constants.values()
    assert constant.argument is not None
    assert constant.argument.data is not None
    assert constant.argument.data.untyped_storage().nbytes() == 16
    save_ir(graph, tmp_path / "graph.json")
    loaded = load_ir(tmp_path / "graph.json")
    assert loaded == graph
    assert same_data(execute_ir(loaded, [X]), kept(None, X))


def test_settings_of_the_process_have_no_influence() -> None:
    graph = Graph("default")
    x = graph.add_input("x", TensorType((2,), F32))
    full = graph.insert(
        "aten.full.default", [], {"size": [2], "fill_value": 0.1}, types=TensorType((2,), F32)
    )
    total = graph.insert("aten.add.Tensor", [x, full.outputs[0]], types=TensorType((2,), F32))
    graph.set_outputs(total.outputs[0])

    torch.set_default_dtype(torch.float64)
    try:
        folded = PassManager([ConstantFolding]).run(graph).graph
    finally:
        torch.set_default_dtype(torch.float32)

    (constant,) = folded.constants.values()
    assert constant.argument is not None
    assert same_data(constant.argument.data, torch.full((2,), 0.1))


def test_what_fails_is_left_to_where_weights_are_bound() -> None:
    graph = Graph("fails")
    x = graph.add_input("x", TensorType((1,), F32))
    table = graph.add_constant("table", torch.randn(3))
    index = graph.add_constant("index", torch.tensor([7]))
    made = TensorType((1,), F32)
    select = graph.insert(
        "aten.index_select.default",
        [table, index],
        {"dim": 0},
        types=made,
        operands=["self", "index"],
    )
    graph.set_outputs(graph.insert("aten.add.Tensor", [x, select.outputs[0]], types=made).outputs[0])

    result = PassManager([ConstantFolding]).run(graph)

    assert prologue_types(result.graph) == ["aten.index_select.default"]
    rewrites = [(item.rule, item.nodes) for item in result.journal.rewrites]
    assert rewrites == [("prologue", ("index_select",))]


def test_what_is_made_on_meta_gets_its_device_when_weights_are_bound() -> None:
    graph = Graph("meta")
    x = graph.add_input("x", TensorType((4,), F32))
    attrs = {"end": 4, "dtype": F32, "device": torch.device("meta")}
    arange = graph.insert("aten.arange.default", [], attrs, types=TensorType((4,), F32))
    total = graph.insert("aten.add.Tensor", [x, arange.outputs[0]], types=TensorType((4,), F32))
    graph.set_outputs(total.outputs[0])

    folded = PassManager([ConstantFolding]).run(graph).graph

    assert prologue_types(folded) == ["aten.arange.default"]
    assert torch.equal(execute_ir(folded, [torch.ones(4)]), torch.arange(4.0) + 1)


# Results


def test_every_call_returns_new_memory(subtests: pytest.Subtests) -> None:
    rows = {
        "itself": (lambda self, x: (torch.arange(4), x * 1)),
        "view": (lambda self, x: (torch.arange(4).view(2, 2), x * 1)),
        "views": (lambda self, x: (torch.arange(4).unsqueeze(0).expand(3, 4)[0], x * 1)),
        "dropout": (lambda self, x: (torch.dropout(torch.arange(4.0), 0.5, False), x * 1)),
    }
    for case, function in rows.items():
        with subtests.test(case):
            graph = fold(Call(function), X).graph

            interpreter = Interpreter(graph)
            first = interpreter.run(X)[0]
            expected = first.clone()
            first.fill_(7)

            assert graph.body[0].op_type == "aten.mul.Tensor"
            assert torch.equal(interpreter.run(X)[0], expected)


def test_results_that_depend_on_weights_only_are_computed_once() -> None:
    result = fold(Call(lambda self, x: (self.w * 2, x + 1), w=nn.Parameter(torch.randn(4))), X)

    assert prologue_types(result.graph) == ["aten.mul.Tensor"]


# The prologue


def test_what_depends_on_weights_moves_to_the_prologue() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x * (self.w.exp() + self.b) + x.sum()

    model = Call(function, w=nn.Parameter(torch.randn(4)), b=torch.randn(4))
    result = fold(model, X)

    assert prologue_types(result.graph) == ["aten.exp.default", "aten.add.Tensor"]
    assert op_types(result.graph) == ["aten.mul.Tensor", "aten.sum.default", "aten.add.Tensor"]


def test_what_depends_on_weights_stays_if_these_are_left_out() -> None:
    model = Call(lambda self, x: x + self.get_buffer("b").exp() + torch.arange(4.0).neg(), b=X[0])

    graph = PassManager("constant-folding{weights=false}").run(extract_ir(model, (X,))).graph

    assert prologue_types(graph) == []
    assert op_types(graph) == ["aten.exp.default", "aten.add.Tensor", "aten.add.Tensor"]


def test_new_weights_may_be_bound_to_the_same_graph() -> None:
    model = Call(lambda self, x: x * self.w.exp(), w=nn.Parameter(torch.randn(4)))
    graph = fold(model, X).graph
    with torch.no_grad():
        model.w.mul_(3)

    assert same_data(execute_ir(graph, [X], weights=model.state_dict()), model(X).detach())


def test_what_a_buffer_is_updated_by_stays() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        y = x * (self.count + 1)
        self.count.add_(1)
        return y

    graph = extract_ir(Call(function, count=torch.zeros(4)), (X,))

    result = PassManager([ConstantFolding]).run(graph)

    assert result.graph == graph
    assert prologue_types(result.graph) == []


def test_random_and_uninitialised_values_stay(subtests: pytest.Subtests) -> None:
    rows = {
        "random": (lambda self, x: x + torch.rand(4)),
        "random-like-a-weight": (lambda self, x: x + torch.rand_like(self.w)),
        "dropout": (lambda self, x: x + nn.functional.dropout(self.w, 0.5, True)),
        "bernoulli": (lambda self, x: x + torch.bernoulli(self.w.abs())),
        "empty": (lambda self, x: x + torch.empty(4) * 0),
        "empty-like": (lambda self, x: x + torch.empty_like(self.w) * 0),
        "new-empty": (lambda self, x: x + self.w.new_empty(4) * 0),
    }
    for case, function in rows.items():
        with subtests.test(case):
            graph = extract_ir(Call(function, w=nn.Parameter(torch.rand(4))), (X,))
            before = [node.op_type for node in graph.nodes if "abs" not in node.op_type]

            folded = PassManager([ConstantFolding]).run(graph).graph

            assert op_types(folded) == before
            assert len(folded.constants) == 0


def test_open_sizes_stay() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[0])[:, None] + self.w.expand(x.shape[0], 4)

    model = Call(function, w=nn.Parameter(torch.randn(4)))
    batch = torch.export.Dim("batch", min=2, max=64)

    result = fold(model, X, dynamic_shapes={"inputs": ({0: batch},)})

    assert prologue_types(result.graph) == []
    assert len(result.graph.constants) == 0


def branches(pred: Tensor, x: Tensor) -> Tensor:
    return torch.cond(
        pred, lambda x: x + torch.arange(4.0).exp(), lambda x: x - torch.full((4,), 2.0) * 3, (x,)
    )


def test_regions_get_constants_and_no_prologue() -> None:
    graph = extract_ir(Call(lambda self, pred, x: branches(pred, x)), (torch.tensor(True), X))

    folded = PassManager([ConstantFolding]).run(graph).graph

    parts = [part for part in folded.graphs() if part is not folded]
    assert [op_types(part) for part in parts] == [["aten.add.Tensor"], ["aten.sub.Tensor"]]
    for pred in (torch.tensor(True), torch.tensor(False)):
        assert torch.equal(execute_ir(folded, (pred, X)), branches(pred, X))


def test_numbers_that_weights_tell_move_to_the_prologue() -> None:
    graph = Graph("number")
    x, w = graph.add_input("x", TensorType((4,), F32)), graph.add_parameter("w", TensorType((), F32))
    item = graph.insert("aten._local_scalar_dense.default", [w], types=ScalarType("float"), operands=["self"])
    made = graph.insert("aten.mul.Tensor", [x, item.outputs[0]], types=x.type, operands=["self", "other"])
    graph.set_outputs(made.outputs[0])

    folded = PassManager([ConstantFolding]).run(graph).graph

    assert prologue_types(folded) == ["aten._local_scalar_dense.default"]
    assert torch.equal(
        execute_ir(folded, [torch.ones(4)], weights={"w": torch.tensor(2.5)}), torch.full((4,), 2.5)
    )


# Sizes


def test_a_huge_tensor_is_not_made() -> None:
    graph = Graph("huge")
    huge = TensorType((1_000_000_000,), F32)
    x = graph.add_input("x", huge)
    zeros = graph.insert("aten.zeros.default", [], {"size": [1_000_000_000], "dtype": F32}, types=huge)
    graph.set_outputs(graph.insert("aten.add.Tensor", [x, zeros.outputs[0]], types=huge).outputs[0])

    result = PassManager([ConstantFolding]).run(graph)

    assert result.graph == graph
    assert refusals(result) == ["its results take 4000000000 bytes, more than max_bytes=1048576"]


def test_a_huge_tensor_in_a_region_is_not_made() -> None:
    def function(self: Any, pred: Tensor, x: Tensor) -> Tensor:
        return torch.cond(pred, lambda x: x + torch.zeros(64, 64).sum(), lambda x: x * 1, (x,))

    graph = extract_ir(Call(function), (torch.tensor(True), X))

    result = PassManager([ConstantFolding(max_bytes=1024)]).run(graph)

    assert refusals(result) == ["its results take 16384 bytes, more than max_bytes=1024"]


def test_an_outer_product_is_not_made() -> None:
    model = Call(lambda self, x: x + torch.outer(self.w, self.w).sum(), w=nn.Parameter(torch.randn(64)))

    result = fold(model, X, max_bytes=64)

    assert prologue_types(result.graph) == []
    (reason,) = refusals(result)
    assert reason == (
        "its results take 16384 bytes, more than 8 times the 256 bytes of the weights behind them and than "
        "max_bytes=64"
    )


def test_an_expanded_weight_is_free_but_a_copy_of_it_is_not() -> None:
    free = Call(lambda self, x: x + self.w.expand(1000, 4)[:3], w=nn.Parameter(torch.randn(4)))
    copied = Call(lambda self, x: x + self.w.expand(1000, 4).contiguous()[:3], w=nn.Parameter(torch.randn(4)))

    assert op_types(fold(free, X, max_bytes=16).graph) == ["aten.add.Tensor"]
    assert prologue_types(fold(copied, X, max_bytes=16).graph) == ["aten.expand.default"]


def test_a_large_result_on_the_way_to_a_small_one_is_made() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x * (self.w.double() * 2).to(torch.float32)

    result = fold(Call(function, w=nn.Parameter(torch.randn(4))), X, max_bytes=0)

    assert op_types(result.graph) == ["aten.mul.Tensor"]
    assert refusals(result) == []


def test_a_large_result_that_calls_would_read_is_not_kept() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x + ((self.w * 2).to(torch.float64) * 2).view(2, 2).sum()

    model = Call(function, w=nn.Parameter(torch.randn(4).bfloat16()))

    result = fold(model, X, max_bytes=8)

    # The sum is small; in front of it nothing is kept.
    assert op_types(result.graph) == ["aten.add.Tensor"]

    def kept(self: Any, x: Tensor) -> Tensor:
        return x + ((self.w * 2).to(torch.float64) * 2).view(4)

    result = fold(Call(kept, w=nn.Parameter(torch.randn(4).bfloat16())), X, max_bytes=8)

    assert prologue_types(result.graph) == ["aten.mul.Tensor"]
    assert refusals(result)[0] == (
        "its results take 32 bytes, more than the 8 bytes of the weights behind them and than max_bytes=8"
    )


def test_weights_may_be_put_together() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x @ torch.cat([self.a, self.b, self.c]).t()

    parts = {name: nn.Parameter(torch.randn(4, 4)) for name in "abc"}

    result = fold(Call(function, **parts), X, max_bytes=0)

    assert op_types(result.graph) == ["aten.matmul.default"]


def test_the_same_weight_many_times_is_not_put_together() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x @ torch.cat([self.a * 1, self.a * 2, self.a * 3]).t()

    result = fold(Call(function, a=nn.Parameter(torch.randn(4, 4))), X, max_bytes=0)

    assert "aten.cat.default" in op_types(result.graph)


# Promises


def graphs() -> list[Graph]:
    def mixed(self: Any, x: Tensor) -> Any:
        table = torch.arange(12.0).view(3, 4)
        return x * self.w.exp() + table, self.w.abs(), table + 1, x + torch.outer(self.w, self.w).sum()

    return [
        extract_ir(Call(mixed, w=nn.Parameter(torch.randn(4))), (X,)),
        extract_ir(Call(lambda self, pred, x: branches(pred, x)), (torch.tensor(True), X)),
        extract_ir(Call(lambda self, x: x + 1), (X,)),
    ]


def test_the_pass_keeps_its_promises(subtests: pytest.Subtests) -> None:
    for max_bytes in [0, 20, 1 << 20]:
        with subtests.test(max_bytes=max_bytes):
            assert check_pass(ConstantFolding(max_bytes=max_bytes), graphs()) >= 1


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
