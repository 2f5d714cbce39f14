"""What an executor returns and what it takes: structures, weights, wrong arguments, and the program it keeps."""

from __future__ import annotations

import ast
import collections
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import ExecutionError, Graph, TensorType, WeightError, extract_ir, register_executor
from npu_ir.ops import unregister_executor
from npu_runtime import IRExecutor
from tests.npu_ir.corpus.case import Function
from tests.npu_ir.corpus.comparison import assert_same

F32 = torch.float32
Point = collections.namedtuple("Point", ["x", "y"])


def executor_of(function: Callable[..., Any], *args: Any, **options: Any) -> IRExecutor:
    return IRExecutor(extract_ir(Function(function), args), passes=None, **options)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


@pytest.fixture
def counted() -> Iterator[list[str]]:
    """A registered executor that notes each call."""
    calls: list[str] = []

    def double(inputs: list[Any], attrs: Any) -> list[Any]:
        calls.append("double")
        return [inputs[0] * 2]

    register_executor("acme.double.default")(double)
    yield calls
    unregister_executor("acme.double.default")


# Structures.


def test_results_nest_as_those_of_the_model() -> None:
    def function(tree: dict[str, Any], *, pair: Any, nothing: None, count: int) -> Any:
        first = {"sum": tree["a"] + pair[0], "others": [pair.y, (tree["b"],)]}
        return first, None, count, Point(tree["a"] * 2, "text"), [], {}

    args = ({"a": randn(2), "b": randn(3)},)
    kwargs = {"pair": Point(randn(2), randn(1)), "nothing": None, "count": 3}
    model = Function(function)

    executor = IRExecutor(extract_ir(model, args, kwargs))

    assert_same(executor(*args, **kwargs), model(*args, **kwargs), "the result")
    assert_same(
        executor(*args, **dict(reversed(kwargs.items()))), model(*args, **kwargs), "with keywords turned"
    )


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x, id="the-argument"),
        pytest.param(lambda x: (x, x), id="the-argument-twice"),
        pytest.param(lambda x: (), id="nothing"),
        pytest.param(lambda x: None, id="none"),
        pytest.param(lambda x: 3.5, id="a-number"),
        pytest.param(lambda x: (float("nan"), float("-inf"), 1 + 2j, "a'\n", True), id="plain-data"),
        pytest.param(lambda x: [x[0], x.shape[0], x.dtype is F32], id="a-view-and-numbers"),
        pytest.param(lambda x: x[:0], id="no-elements"),
        pytest.param(lambda x: torch.ones(2), id="a-constant"),
        pytest.param(lambda x: (x * 2 if x.dim() else x).sum().item(), id="an-element"),
    ],
)
def test_an_unusual_result_is_that_of_eager(function: Callable[..., Any]) -> None:
    x = randn(3)
    executor = executor_of(function, x)

    assert_same(executor(x), function(x), "the result")


def test_a_graph_without_nodes_and_inputs_runs() -> None:
    graph = Graph("empty")
    graph.set_outputs(())

    executor = IRExecutor(graph)

    assert executor() == ()
    assert executor.run().results == ()
    assert executor.steps == ()
    assert executor.memory_plan().peak_bytes == 0


def test_what_nothing_reads_is_computed_and_dropped() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 2), F32))
    for _ in range(2):
        graph.insert("aten.exp.default", [x], types=x.type, operands=("self",))
    graph.insert(
        "aten.unbind.int", [x], {"dim": 0}, types=[TensorType((2,), F32)] * 2, operands=("self",)
    )
    graph.set_outputs(x)

    given = randn(2, 2)

    assert IRExecutor(graph, passes=None)(given) is given


def test_an_op_with_no_results_at_all_runs() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 0), F32))
    graph.insert("aten.unbind.int", [x], {"dim": 1}, types=[], operands=("self",))
    graph.insert("aten.exp.default", [x], types=x.type, operands=("self",))
    graph.set_outputs(x)

    assert IRExecutor(graph, passes=None)(zeros(2, 0)).shape == (2, 0)


def test_lists_of_tensors_go_in_and_out_of_ops() -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        summed = torch._foreach_add([x, y], 1.0)
        parts = torch.split(summed[0], [1, 2])
        grid = torch.meshgrid(parts[0][:, 0], summed[1].chunk(3)[1][:, 0], indexing="ij")
        return [*parts, *grid, *torch.topk(x, 2), torch.cat([*summed, x]), *summed[1].unbind(1)]

    x, y = randn(3, 3), randn(3, 3)

    assert_same(executor_of(function, x, y)(x, y), function(x, y), "the results")


def test_an_op_that_leaves_out_results_runs() -> None:
    def function(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return torch.ops.aten.convolution_backward(
            gradient, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False]
        )[0]

    args = randn(1, 2, 4, 4), randn(1, 2, 4, 4), randn(2, 2, 1, 1)

    assert_same(executor_of(function, *args)(*args), function(*args), "the result")


# Weights.


def save_state(folder: Path, state: dict[str, Tensor], form: str) -> Path:
    """Save weights in one of the forms that people have."""
    if form == "pt":
        torch.save(state, folder / "w.pt")
        return folder / "w.pt"
    if form == "safetensors":
        save_file(state, folder / "w.safetensors")
        return folder / "w.safetensors"
    names = list(state)
    files = {"model-1.safetensors": names[:1], "model-2.safetensors": names[1:]}
    for file, keys in files.items():
        save_file({key: state[key] for key in keys}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {key: file for file, keys in files.items() for key in keys}}))
    return folder if form == "folder" else index


@pytest.mark.parametrize("form", ["pt", "safetensors", "index", "folder"])
def test_weights_come_from_files(tmp_path: Path, form: str) -> None:
    model, x = network(), randn(2, 3)
    graph = extract_ir(model, (x,))
    path = save_state(tmp_path, model.state_dict(), form)

    executor = IRExecutor(graph, path)
    other = IRExecutor(graph, {key: zeros(item.shape) for key, item in model.state_dict().items()})
    other.load_state_dict(str(path))

    assert_same(executor(x), model(x).detach(), "the result")
    assert_same(other(x), model(x).detach(), "the result after loading")


WRONG_WEIGHTS = [
    pytest.param(lambda state: {}, "missing: 0.bias", id="none"),
    pytest.param(
        lambda state: {**state, "0.bias": zeros(5)},
        r"misfit: 0.bias is f32\[5\], the graph needs f32\[4\]",
        id="shape",
    ),
    pytest.param(
        lambda state: {**state, "0.bias": zeros(4).double()}, r"misfit: 0.bias is f64\[4\]", id="dtype"
    ),
    pytest.param(lambda state: {**state, "extra": zeros(4)}, "unexpected: extra", id="unexpected"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_WEIGHTS)
def test_wrong_weights_are_refused(change: Callable[[Any], Any], message: str) -> None:
    model = network()
    graph = extract_ir(model, (randn(2, 3),))

    with pytest.raises(WeightError, match=message):
        IRExecutor(graph, change(model.state_dict()))


@pytest.mark.parametrize(("change", "message"), WRONG_WEIGHTS)
def test_wrong_weights_leave_those_that_are_there(change: Callable[[Any], Any], message: str) -> None:
    model, x = network(), randn(2, 3)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    with pytest.raises(WeightError, match=message):
        executor.load_state_dict(change(model.state_dict()))

    assert_same(executor(x), model(x).detach(), "the result")


def test_weights_without_data_are_refused() -> None:
    model, x = network(), randn(2, 3)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())
    empty = {key: item.to("meta") for key, item in model.state_dict().items()}

    with pytest.raises(WeightError, match="meta"):
        executor.load_state_dict(empty)

    assert_same(executor(x), model(x).detach(), "the result")


def test_other_weights_need_no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other, x = network(), network(), randn(2, 3)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())
    steps, source = executor.steps, executor.source

    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("npu_runtime.compiling.source_of", refused)
    monkeypatch.setattr("npu_runtime.probing.Prober.__init__", refused)

    executor.load_state_dict(other.state_dict())

    assert_same(executor(x), other(x).detach(), "the result")
    assert executor.steps is steps
    assert executor.source is source


def test_other_weights_of_another_layout_give_the_right_answer() -> None:
    class Model(nn.Module):
        table: Tensor

        def __init__(self, table: Tensor) -> None:
            super().__init__()
            self.register_buffer("table", table)

        def forward(self, x: Tensor) -> Tensor:
            return (self.table + x).neg().transpose(1, 2).unsqueeze(0).select(1, 1)

    expanded = Model(randn(1, 4, 5).expand(3, 4, 5).transpose(1, 2))
    dense, x = Model(randn(3, 5, 4)), randn(())
    executor = IRExecutor(extract_ir(expanded, (x,)), expanded.state_dict(), passes=None)
    assert_same(executor(x), expanded(x), "the result")

    executor.load_state_dict(dense.state_dict())

    assert_same(executor(x), dense(x), "the result with dense weights")


def test_the_given_graph_is_neither_edited_nor_run() -> None:
    graph = extract_ir(Function(lambda x: (x + 0) * 1), (randn(2),))
    before = str(graph)

    executor = IRExecutor(graph)
    graph.set_outputs(graph.inputs[0])

    assert executor.graph is not graph
    assert str(extract_ir(Function(lambda x: (x + 0) * 1), (randn(2),))) == before
    assert executor(ones(2)) is not None
    assert_same(executor(ones(2)), ones(2), "the result")


def test_constants_can_be_given_in_place_of_those_of_the_graph() -> None:
    graph = extract_ir(Function(lambda x: x + torch.tensor([1.0, 2.0])), (randn(2),))
    (name,) = (value.argument.target for value in graph.constants.values() if value.argument is not None)

    executor = IRExecutor(graph, constants={name: torch.tensor([10.0, 20.0])})

    assert executor(zeros(2)).tolist() == [10.0, 20.0]


# The prologue.


def test_what_depends_on_weights_alone_is_computed_once(counted: list[str]) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2,), F32))
    weight = graph.add_parameter("w", TensorType((2,), F32))
    node = graph.insert("acme.double.default", [weight], types=weight.type)
    total = graph.insert(
        "aten.add.Tensor", [x, node.outputs[0]], types=x.type, operands=("self", "other")
    )
    graph.set_outputs(total.outputs[0])
    graph.move_to_prologue(node)

    executor = IRExecutor(graph, {"w": ones(2)}, passes=None)
    answers = [executor(zeros(2)).tolist() for _ in range(3)]
    executor.run((zeros(2),))

    assert counted == ["double"]
    assert answers == [[2.0, 2.0]] * 3
    executor.load_state_dict({"w": ones(2) * 5})
    assert counted == ["double"] * 2
    assert executor(zeros(2)).tolist() == [10.0, 10.0]


def test_a_folded_batch_norm_takes_other_weights() -> None:
    def model() -> nn.Module:
        made = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
        made[1].running_mean.normal_()
        made[1].running_var.uniform_(0.5, 2)
        return made

    first, second, x = model(), model(), randn(1, 2, 5, 5)
    executor = IRExecutor(extract_ir(first, (x,)), first.state_dict())
    assert executor.graph.prologue
    torch.testing.assert_close(executor(x), first(x).detach())

    executor.load_state_dict(second.state_dict())

    torch.testing.assert_close(executor(x), second(x).detach())


# Arguments.


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        pytest.param((), {}, "args", id="none"),
        pytest.param((ones(2, 3), ones(2, 3)), {}, "args", id="too-many"),
        pytest.param((ones(3, 3),), {}, r"%x is f32\[3, 3\], the graph needs f32\[2, 3\]", id="shape"),
        pytest.param((ones(2, 3).double(),), {}, r"%x is f64\[2, 3\]", id="dtype"),
        pytest.param((ones(2, 3).to_sparse(),), {}, r"%x is f32\[2, 3\]", id="layout"),
        pytest.param(([ones(2, 3)],), {}, r"args\[0\]", id="nested"),
        pytest.param((1.0,), {}, "%x is float", id="number"),
        pytest.param((None,), {}, "%x is NoneType", id="no-tensor"),
        pytest.param((ones(2, 3),), {"y": None}, "kwargs", id="unknown-keyword"),
        pytest.param(
            (ones(2, 3).to("meta"),),
            {},
            r"%x is on meta, the executor runs on cpu\n  fix: move it \(.to\('cpu'\)\)",
            id="device",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    counted: list[str], args: Any, kwargs: Any, message: str
) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 3), F32))
    graph.set_outputs(graph.insert("acme.double.default", [x], types=x.type).outputs[0])
    graph.set_call((x,))
    executor = IRExecutor(graph, passes=None)

    for run in (lambda: executor(*args, **kwargs), lambda: executor.run(args, kwargs)):
        with pytest.raises(ExecutionError, match=message):
            run()

    assert not counted
    assert executor(ones(2, 3)).tolist() == [[2.0] * 3] * 2


def test_another_constant_than_the_graph_was_made_for_is_refused() -> None:
    executor = executor_of(lambda x, n: x + n, ones(2), 3)

    with pytest.raises(ExecutionError, match=r"made for 3 here, not 4\n  at: args\[1\]"):
        executor(ones(2), 4)

    assert executor(ones(2), 3).tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda x: x.transpose(0, 2).contiguous().transpose(0, 2), id="transposed"),
        pytest.param(lambda x: x[..., None].expand(2, 3, 4, 2)[..., 0], id="with-gaps"),
        pytest.param(lambda x: torch.cat([x, x])[2:], id="with-an-offset"),
        pytest.param(lambda x: x[:1].expand(2, 3, 4), id="expanded"),
        pytest.param(lambda x: torch.complex(x, -x).conj().imag, id="negated-lazily"),
        pytest.param(nn.Parameter, id="parameter"),
    ],
)
def test_an_input_may_be_laid_out_otherwise(given: Callable[[Tensor], Tensor]) -> None:
    def function(x: Tensor) -> Any:
        return (x + 1).view(-1), x.transpose(1, 2).reshape(2, -1).relu(), x.view(6, 4)[1]

    x = randn(2, 3, 4)
    item = given(x)

    actual = executor_of(function, x)(item)

    assert_same(actual, function(item.detach().contiguous()), "the result")


def test_an_input_captured_expanded_may_be_dense() -> None:
    def function(x: Tensor) -> Tensor:
        return x.relu().neg().transpose(1, 2).unsqueeze(0).select(1, 1)

    expanded, dense = randn(1, 4, 5).expand(3, 4, 5).transpose(1, 2), randn(3, 5, 4)
    executor = executor_of(function, expanded)

    assert_same(executor(expanded), function(expanded), "the result")
    assert_same(executor(dense), function(dense), "the result on dense data")


def test_an_image_may_be_in_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    x = randn(2, 3, 8, 8)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    torch.testing.assert_close(
        executor(x.contiguous(memory_format=torch.channels_last)), model(x).detach()
    )


def test_complex_views_are_those_of_eager() -> None:
    def function(x: Tensor) -> Any:
        product = x * x
        turned = product.conj()
        return turned.resolve_conj(), turned.imag.resolve_neg(), torch.view_as_real(product)[..., 1], turned * 2

    x = randn(3, dtype=torch.complex64)

    assert_same(executor_of(function, x)(x), function(x), "the results")


def test_threads_are_a_number() -> None:
    graph = extract_ir(Function(torch.relu), (ones(2),))

    for wrong in (0, -1, True, 1.0, "2"):
        with pytest.raises(ExecutionError, match=f"at least one thread, not {wrong!r}"):
            IRExecutor(graph, threads=wrong)  # type: ignore[arg-type]


# Sizes left open.


def test_open_sizes_take_any_size() -> None:
    def function(x: Tensor) -> Any:
        return x.relu().view(-1)[: x.shape[0]], torch.cat([x, x]).sum(0), x.shape[0] * 2

    graph = extract_ir(
        Function(function), (randn(4, 3),), dynamic_shapes=(({0: torch.export.Dim.AUTO},),)
    )
    executor = IRExecutor(graph)

    for rows in (2, 4, 9):
        x = randn(rows, 3)
        assert_same(executor(x), function(x), f"the result for {rows} rows")
    with pytest.raises(ExecutionError, match="%args_0"):
        executor(randn(4, 4))


def test_sizes_that_depend_on_data_are_those_of_the_data() -> None:
    def function(x: Tensor) -> Any:
        chosen = x[x > 0]
        return chosen * 2, (x > 0).nonzero(), chosen.exp().sum()

    x = torch.tensor([1.0, -1.0, 2.0])
    executor = executor_of(function, x)

    for given in (x, -x, zeros(3), ones(3)):
        assert_same(executor(given), function(given), "the result")


def test_branches_and_loops_are_those_of_eager() -> None:
    from torch._higher_order_ops import scan, while_loop

    def function(x: Tensor) -> Any:
        branch = torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a - 1, (x,))
        loop = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.tanh() + x), (torch.tensor(0), x * 1))
        return branch, loop[1], scan(lambda carry, row: (carry * 0.5 + row, carry * 1), x[0] * 0, x)

    x = randn(3, 2)
    executor = executor_of(function, x)

    for given in (x, -x, x * 3):
        assert_same(executor(given), function(given), "the result")


# The program.


def test_the_program_is_the_same_in_every_process() -> None:
    program = """if True:
        import torch
        from torch import nn
        from npu_ir import extract_ir
        from npu_runtime import IRExecutor
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)).eval()
        graph = extract_ir(model, (torch.ones(1, 2, 5, 5),))
        print(IRExecutor(graph, model.state_dict()).source)
    """
    sources = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**_environment(), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    (source,) = sources
    ast.parse(source, feature_version=(3, 10))


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
