"""Weights: where they come from, what is refused, and what is computed of them once."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import WeightError, extract_ir, parse_ir
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def test_weights_come_from_files(tmp_path: Path) -> None:
    model, x = network(), randn(2, 3)
    graph = extract_ir(model, (x,))
    save_file(model.state_dict(), tmp_path / "w.safetensors")

    executor = IRExecutor(graph, tmp_path / "w.safetensors", passes="default")
    other = IRExecutor(graph, network().state_dict(), passes="default")
    other.load_state_dict(str(tmp_path / "w.safetensors"))

    assert_same(executor(x), model(x).detach(), "the result")
    assert_same(other(x), model(x).detach(), "the result after loading")


@pytest.mark.parametrize(("change", "message"), [
    pytest.param(lambda state: {}, "missing: 0.bias", id="none"),
    pytest.param(lambda state: {**state, "0.bias": zeros(5)},
        r"misfit: 0.bias is f32\[5\], the graph needs f32\[4\]", id="shape"),
    pytest.param(lambda state: {**state, "0.bias": zeros(4).double()}, r"misfit: 0.bias is f64\[4\]",
        id="dtype"),
    pytest.param(lambda state: {**state, "extra": zeros(4)}, "unexpected: extra", id="unexpected"),
    pytest.param(lambda state: {key: item.to("meta") for key, item in state.items()}, "meta", id="no data"),
])  # fmt: skip
def test_wrong_weights_are_refused_and_leave_those_that_are_there(
    change: Callable[[Any], Any], message: str
) -> None:
    model, x = network(), randn(2, 3)
    graph = extract_ir(model, (x,))
    executor = IRExecutor(graph, model.state_dict())

    with pytest.raises(WeightError, match=message):
        executor.load_state_dict(change(model.state_dict()))
    if message != "meta":
        with pytest.raises(WeightError, match=message):
            IRExecutor(graph, change(model.state_dict()))

    assert_same(executor(x), model(x).detach(), "the result")


def test_other_weights_need_no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other, x = network(), network(), randn(2, 3)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes="default")
    instructions, source = executor.instructions, executor.source

    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("npu_runtime.codegen.compiled_function.generate_source", refused)
    monkeypatch.setattr("npu_runtime.probing.op_probe.OpProbe.__init__", refused)

    executor.load_state_dict(other.state_dict())

    assert_same(executor(x), other(x).detach(), "the result")
    assert executor.instructions is instructions
    assert executor.source is source


def test_other_weights_of_another_layout_give_the_right_answer() -> None:
    def model(table: Tensor) -> nn.Module:
        made = Function(lambda x: (made.table + x).neg().transpose(1, 2).unsqueeze(0).select(1, 1))
        made.register_buffer("table", table)
        return made

    expanded = model(randn(1, 4, 5).expand(3, 4, 5).transpose(1, 2))
    dense, x = model(randn(3, 5, 4)), randn(())
    executor = IRExecutor(extract_ir(expanded, (x,)), expanded.state_dict(), passes=None)
    assert_same(executor(x), expanded(x), "the result")

    executor.load_state_dict(dense.state_dict())

    assert_same(executor(x), dense(x), "the result with dense weights")


def test_the_given_graph_is_neither_edited_nor_run() -> None:
    graph = extract_ir(Function(lambda x: (x + 0).exp()), (randn(2),))
    before = str(graph)

    executor = IRExecutor(graph)
    assert str(graph) == before
    graph.set_outputs(graph.inputs[0])

    assert executor.graph is not graph
    assert_same(executor(ones(2)), ones(2).exp(), "the result")


def test_constants_can_be_given_in_place_of_those_of_the_graph() -> None:
    graph = extract_ir(Function(lambda x: x + torch.tensor([1.0, 2.0])), (randn(2),))
    (name,) = (value.argument.target for value in graph.constants.values() if value.argument is not None)

    executor = IRExecutor(graph, constants={name: torch.tensor([10.0, 20.0])})

    assert executor(zeros(2)).tolist() == [10.0, 20.0]


def test_weights_may_begin_with_what_is_no_tensor() -> None:
    model, x = network(), randn(2, 3)

    executor = IRExecutor(
        extract_ir(model, (x,)), {"_extra_state": {"version": 1}, **model.state_dict()}, passes=None
    )

    assert_same(executor(x), model(x).detach(), "the result")


def test_what_depends_on_weights_alone_is_computed_once(register: Any) -> None:
    calls: list[Any] = []
    register("aten.exp.default", lambda inputs, attrs: calls.append(inputs) or [inputs[0] * 2])
    graph = parse_ir(
        "graph g {\n  input %x: f32[2]\n  param %w: f32[2]\n  prologue {\n"
        "    %twice: f32[2] = aten.exp.default(self=%w)\n  }\n"
        "  %sum: f32[2] = aten.add.Tensor(self=%x, other=%twice)\n  return %sum\n}\n"
    )

    executor = IRExecutor(graph, {"w": ones(2)}, passes=None)
    answers = [executor(zeros(2)).tolist() for _ in range(3)]
    executor.run((zeros(2),))

    assert len(calls) == 1
    assert answers == [[2.0, 2.0]] * 3
    executor.load_state_dict({"w": ones(2) * 5})
    assert len(calls) == 2
    assert executor(zeros(2)).tolist() == [10.0, 10.0]


def test_a_folded_batch_norm_takes_other_weights_and_lets_the_old_ones_go() -> None:
    def model() -> nn.Module:
        made = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
        made[1].running_mean.normal_()
        made[1].running_var.uniform_(0.5, 2)
        return made

    first, second, x = model(), model(), randn(1, 2, 5, 5)
    state = {key: item.clone() for key, item in first.state_dict().items()}
    old = [weakref.ref(item) for item in state.values()]
    executor = IRExecutor(extract_ir(first, (x,)), state)
    assert executor.graph.prologue
    torch.testing.assert_close(executor(x), first(x).detach())

    executor.load_state_dict(second.state_dict())
    del state
    gc.collect()

    torch.testing.assert_close(executor(x), second(x).detach())
    assert [item() for item in old] == [None] * len(old)
