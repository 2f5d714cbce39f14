"""Models, calls and programs that cannot be captured, and what the errors say."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, ones, randn, tensor
from torch._export.db.case import ExportCase
from torch._export.db.examples import all_examples
from torch.utils.checkpoint import checkpoint

from npu_ir import (
    ConversionError,
    ExecutionError,
    ExportError,
    Graph,
    NpuError,
    TensorType,
    WeightError,
    convert_exported_program,
    execute_ir,
    extract_ir,
    parse_ir,
)
from npu_ir.capture.special_calls import _REFUSED, DROPPED, require_convertible
from tests.support.corpus import journey, refused, refused_state
from tests.support.corpus.case import Call, Case, Function, Refusal, call
from tests.support.corpus.dtypes import float64_default
from tests.support.corpus.observation import process_state
from tests.support.rows import each_row

# Models that cannot be captured are refused with the reason, the location, and a fix.


REFUSED = [*refused.REFUSED, *refused_state.REFUSED]


@each_row("refusal", [pytest.param(refusal, id=refusal.id) for refusal in REFUSED])
def test_a_model_without_a_graph_is_refused_with_the_reason(refusal: Refusal) -> None:
    model, given = refusal.make_model(), refusal.inputs()
    process = process_state()

    with pytest.raises(refusal.error, match=refusal.match) as caught:
        extract_ir(model, given.args, given.kwargs)

    assert isinstance(caught.value, NpuError)
    assert caught.value.fix
    assert process_state() == process


def test_a_tensor_that_the_model_does_not_hold_keeps_its_content() -> None:
    with pytest.raises(
        ConversionError, match="changes 'lifted_tensor_0', which is not a parameter or buffer"
    ):
        extract_ir(refused_state.WritesIntoAGlobal(), (randn(4, 3),))

    assert torch.equal(refused_state.COUNT, torch.zeros(2))


def test_a_model_that_returns_an_object_is_as_before_when_it_is_refused() -> None:
    model = refused_state.CountsAndReturnsAnObject()
    before = copy.deepcopy(model.state_dict())

    with pytest.raises(ExportError, match="not a known type"):
        extract_ir(model, (randn(4, 3),))

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.held[0] is model.count
    assert model.log == {"calls": []}


def test_an_op_that_follows_the_default_dtype_and_cannot_be_cast_is_refused() -> None:
    with (
        float64_default(),
        pytest.raises(ConversionError, match=r"aten.where.Scalar gives torch.float64 here because"),
    ):
        extract_ir(Function(lambda x: torch.where(x > 0, 1.5, 2.5)), (torch.arange(3),))


def test_a_function_is_refused() -> None:
    with pytest.raises(
        NpuError, match=r"expected a torch.nn.Module, got function[\s\S]*wrap the function in a module"
    ):
        extract_ir(lambda x: x, (randn(2),))  # type: ignore[arg-type]


# A call or weights that do not fit a graph are refused before anything runs; a failing node is named.


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


# Special calls of torch.export: dropped, inlined, or refused by name.


def captured(function: Callable[..., Any], *args: Any) -> Graph:
    return extract_ir(Function(function), args)


def ops(graph: Graph) -> list[str]:
    return [node.op_type for part in graph.graphs() for node in part.nodes]


# Dropped


def sized(x: Any) -> Any:
    n = x[0].item()
    torch._check_is_size(n)
    torch._check(n <= 8)
    return ones(n)


def marked(x: Any) -> Any:
    with torch.profiler.record_function("part"):
        return x * 2


def switched(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return y.sin()


def cast(x: Any) -> Any:
    return x.to(torch.float64) + 1


@each_row(
    "function, argument",
    {
        "ranges": (sized, tensor([3])),
        "profiler": (marked, randn(3)),
        "gradients": (switched, randn(3, requires_grad=True)),
        "metadata": (cast, randn(3)),
    },
)
def test_what_means_nothing_at_run_time_is_dropped(function: Callable[..., Any], argument: Any) -> None:
    graph = captured(function, argument)

    assert not {*ops(graph)} & DROPPED.keys()
    assert not any("profiler" in op or "grad" in op for op in ops(graph))
    assert torch.equal(execute_ir(graph, (argument,)), function(argument).detach())


def test_what_is_dropped_has_a_reason() -> None:
    assert all(reason for reason in DROPPED.values())


def test_a_range_that_is_dropped_is_still_checked() -> None:
    graph = captured(sized, tensor([3]))

    assert str(graph.symbols["u0"]) == "[0, 8]"
    with pytest.raises(ExecutionError, match=r"Runtime assertion failed for expression u0 <= 8"):
        execute_ir(graph, (tensor([9]),))


# Taken apart


def test_a_checkpoint_is_what_is_in_it() -> None:
    function = lambda x: checkpoint(lambda y: y.sin() * 2, x, use_reentrant=False) + 1  # noqa: E731
    graph = captured(function, randn(3))
    x = randn(3)

    assert ops(graph) == ["aten.sin.default", "aten.mul.Tensor", "aten.add.Tensor"]
    assert torch.equal(execute_ir(graph, (x,)), function(x))


def test_a_region_compiled_once_is_what_is_in_it_every_time() -> None:
    part = torch.compiler.nested_compile_region(lambda y: y.sin() * 2)
    graph = captured(lambda x: part(part(x)), randn(3))
    x = randn(3)

    assert ops(graph) == ["aten.sin.default", "aten.mul.Tensor"] * 2
    assert torch.equal(execute_ir(graph, (x,)), (x.sin() * 2).sin() * 2)


def test_gradient_modes_inside_a_branch_are_taken_apart() -> None:
    def branch(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y + x

    graph = captured(lambda x: torch.cond(x.sum() > 0, branch, lambda y: y * 1, (x,)), randn(3))
    x = ones(3)

    assert not any("grad" in op for op in ops(graph))
    assert torch.equal(execute_ir(graph, (x,)), x * 3)


# Refused


def fx_node() -> torch.fx.Node:
    return torch.fx.Graph().call_function(torch.sin, ())


@each_row("name", sorted(_REFUSED))
def test_what_has_no_place_is_refused_by_name(name: str) -> None:
    short = name.rpartition(".")[2]

    with pytest.raises(ConversionError, match=rf"{short}[\s\S]*at: node 'sin'[\s\S]*fix: ") as caught:
        require_convertible(fx_node(), name)
    assert caught.value.fix


def test_a_function_that_is_no_operator_is_refused_with_how_to_convert_it() -> None:
    program = torch.export.export(Function(lambda x: x.sin()), (randn(3),))
    node = next(node for node in program.graph.nodes if node.op == "call_function")
    node.target = torch.special.sinc

    with pytest.raises(
        ConversionError,
        match=(
            r"sinc is not an operator of torch.ops, nor a function of numbers\n"
            r"  at: node 'sin'[\s\S]*fix: register_conversion\('.*sinc'\)"
        ),
    ):
        convert_exported_program(program)


# PyTorch's own examples of what torch.export supports, through the same checks as our corpus.


EXAMPLES: dict[str, ExportCase] = all_examples()

examples = pytest.mark.parametrize("name", sorted(EXAMPLES))

# By example with dynamic shapes: further arguments of other sizes.
MORE_INPUTS = {
    "cond_operands": [(randn(5, 2), randn(2)), (randn(9, 2), randn(2))],
    "dynamic_shape_round": [(randn(5, 2),), (randn(8, 2),)],
    "scalar_output": [(randn(3, 5),), (randn(3, 9),)],
}


def case_of(example: ExportCase) -> Case:
    return Case(
        example.name,
        lambda: copy.deepcopy(example.model),
        lambda: call(*copy.deepcopy(example.example_args), **copy.deepcopy(example.example_kwargs)),
        meta_by_moving=True,
    )


@examples
def test_an_example_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    case = case_of(EXAMPLES[name])
    expected = journey.run_eagerly(case)

    graph = journey.capture_with_weights(case, expected)
    loaded = journey.check_graph(case, graph, tmp_path)

    journey.check_execution(case, [graph, graph, loaded], expected)


@examples
def test_an_example_on_meta_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    case = case_of(EXAMPLES[name])
    expected = journey.run_eagerly(case)

    graph = journey.capture_without_weights(case)
    loaded = journey.check_graph(case, graph, tmp_path)

    journey.check_execution(case, [graph, loaded], expected)


def test_examples_come_with_the_dynamic_shapes_that_are_known_here() -> None:
    dynamic = {name for name, example in EXAMPLES.items() if example.dynamic_shapes is not None}

    assert dynamic == {*MORE_INPUTS}


@each_row("name", list(MORE_INPUTS))
def test_an_example_with_dynamic_shapes_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    case = dataclasses.replace(
        case_of(example),
        dynamic_shapes=example.dynamic_shapes,
        more_inputs=lambda: [call(*copy.deepcopy(args)) for args in MORE_INPUTS[name]],
    )
    expected = journey.run_eagerly(case)

    graph = journey.capture_with_weights(case, expected)
    loaded = journey.check_graph(case, graph, tmp_path)

    assert graph.symbols
    journey.check_execution(case, [graph, graph, loaded], expected)
