"""Models, calls and programs that cannot be captured, and what the errors say."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import ones, randn, tensor
from torch._export.db.case import ExportCase
from torch._export.db.examples import all_examples
from torch.utils.checkpoint import checkpoint

from npu_ir import (
    ConversionError,
    ExecutionError,
    ExportError,
    NpuError,
    convert_exported_program,
    execute_ir,
    extract_ir,
)
from npu_ir.capture.special_calls import _REFUSED, DROPPED, require_convertible
from tests.support.corpus import journey, refused, refused_state
from tests.support.corpus.case import Case, Function, Refusal, call
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


def test_a_refused_model_and_what_it_writes_to_are_as_before() -> None:
    model = refused_state.counting_and_returning_an_object()
    before = copy.deepcopy(model.state_dict())

    for refused_model in (model, Function(refused_state.write_into_a_global)):
        with pytest.raises(
            (ConversionError, ExportError), match="not a known type|changes 'lifted_tensor_0'"
        ):
            extract_ir(refused_model, (randn(4, 3),))

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.held[0] is model.count
    assert model.log == {"calls": []}
    assert torch.equal(refused_state.COUNT, torch.zeros(2))


def test_an_op_that_follows_the_default_dtype_and_cannot_be_cast_is_refused() -> None:
    with (
        float64_default(),
        pytest.raises(ConversionError, match=r"aten.where.Scalar gives torch.float64 here because"),
    ):
        extract_ir(Function(lambda x: torch.where(x > 0, 1.5, 2.5)), (torch.arange(3),))


# Special calls of torch.export: dropped, inlined, or refused by name.


def sized(x: Any) -> Any:
    n = x[0].item()
    torch._check_is_size(n)
    torch._check(n <= 8)
    return ones(n)


def profiled(x: Any) -> Any:
    with torch.profiler.record_function("part"):
        return x * 2


def without_gradients(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return y.sin()


def in_a_branch(x: Any) -> Any:
    return torch.cond(x.sum() > -9, without_gradients, lambda y: y * 1, (x,))


COMPILED_ONCE = torch.compiler.nested_compile_region(lambda y: y.sin() * 2)


@each_row("function, expected", {
    "profiler": (profiled, "mul.Tensor"),
    "gradients": (without_gradients, "mul.Tensor sin.default"),
    "gradients in a branch": (in_a_branch,
        "sum.default gt.Scalar higher_order.cond mul.Tensor sin.default mul.Tensor"),
    "metadata": (lambda x: x.to(torch.float64) + 1, "to.dtype add.Tensor"),
    "a checkpoint": (lambda x: checkpoint(lambda y: y.sin() * 2, x, use_reentrant=False) + 1,
        "sin.default mul.Tensor add.Tensor"),
    "zeros without memory": (lambda x: torch.ops.aten._efficientzerotensor(x.shape) * 1 + x,
        "zeros.default mul.Tensor add.Tensor"),
    "a region compiled once": (lambda x: COMPILED_ONCE(COMPILED_ONCE(x)),
        "sin.default mul.Tensor sin.default mul.Tensor"),
})  # fmt: skip
def test_special_calls_are_dropped_or_what_is_in_them(function: Callable[..., Any], expected: str) -> None:
    x = randn(3, requires_grad=True)

    graph = extract_ir(Function(function), (x,))

    ops = [node.op_type.removeprefix("aten.") for part in graph.graphs() for node in part.nodes]
    assert ops == expected.split()
    assert torch.equal(execute_ir(graph, (x,)), function(x).detach())


def test_a_range_that_is_dropped_is_still_checked() -> None:
    graph = extract_ir(Function(sized), (tensor([3]),))

    assert not {node.op_type for node in graph.nodes} & DROPPED.keys()
    assert str(graph.symbols["u0"]) == "[0, 8]"
    with pytest.raises(ExecutionError, match=r"Runtime assertion failed for expression u0 <= 8"):
        execute_ir(graph, (tensor([9]),))


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

    graphs = [journey.capture_with_weights(case, expected), journey.capture_without_weights(case)]
    loaded = [journey.check_graph(case, graph, tmp_path) for graph in graphs]

    journey.check_execution(case, [*graphs, *graphs, *loaded], expected)


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
