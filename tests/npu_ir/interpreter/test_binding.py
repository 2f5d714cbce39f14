"""Arguments and weights: what is checked before the first op runs, and how memory is laid out."""

import math
from typing import Any

import pytest
import torch

from npu_ir import ExecutionError, Graph, Interpreter, TensorType, WeightError, execute_ir
from npu_ir.core.tensor_bytes import same_data
from tests.support.rows import each_row
from tests.support.small_programs import ADD, CONSTANTS, F32, WEIGHTS, program, tensor


@each_row("args, kwargs, message", [
    ((), {},
        r"expected a tuple of 1, got a tuple of 0\n  at: args\n  fix: pass what the model was captured with"),
    ((tensor(1, 2),), {"y": 1}, r"expected keys \[\], got \['y'\]\n  at: kwargs"),
    (([tensor(1, 2)],), {}, r"input %x is list, the graph needs f32\[2\]\n  at: args\[0\]"),
    ((5,), {},
        r"%x is int, the graph needs f32\[2\]\n  at: args\[0\]\n  fix: pass a tensor of this shape"),
    ((tensor(1, 2, 3),), {}, r"input %x is f32\[3\], the graph needs f32\[2\]"),
    ((tensor(1, 2).double(),), {}, r"input %x is f64\[2\], the graph needs f32\[2\]"),
    ((tensor(1, 2).to_sparse(),), {}, r"input %x is f32\[2\]@sparse_coo, the graph needs f32\[2\]\n"),
    ((None,), {}, "input %x is NoneType, the graph needs"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused_before_anything_runs(
    args: Any, kwargs: Any, message: str, ran: list[str]
) -> None:
    interpreter = Interpreter(program(ADD), WEIGHTS, CONSTANTS)

    with pytest.raises(ExecutionError, match=message):
        interpreter.run_flat(args, kwargs)
    assert ran == []


@each_row("value, message", [
    (1.0, "the graph was made for 2.0 here, not 1.0"),
    (2, "the graph was made for 2.0 here, not 2"),
    (torch.tensor(2.0), r"the graph was made for 2.0 here, not tensor\(2.\)"),
    (list(range(1000)), r"expected|the graph was made for 2.0 here, not \[0, 1"),
])  # fmt: skip
def test_another_constant_than_the_graph_was_made_for_is_refused(value: Any, message: str) -> None:
    graph = program("input %x: f32[2] call (%x, nan, scale=2.0) return %x")

    assert torch.equal(execute_ir(graph, (tensor(1, 2), math.nan), {"scale": 2.0}), tensor(1, 2))
    with pytest.raises(ExecutionError, match=message) as caught:
        execute_ir(graph, (tensor(1, 2), math.nan), {"scale": value})
    assert len(caught.value.message) <= 200


def test_an_input_in_two_places_is_the_same_tensor_or_number_twice() -> None:
    graph = program("input %x: f32[2] input %n: int call (%x, %n, [%x, %n]) return ()")
    x = tensor(1, 2)

    assert execute_ir(graph, (x, 10**6, [x.view(2), int("1000000")])) == ()
    for name, index, second in (("x", 0, [x.clone(), 5]), ("n", 1, [x, 6])):
        message = f"input %{name} is passed in two places: both must be the same tensor or number"
        with pytest.raises(
            ExecutionError, match=rf"{message}\n  at: args\[2\]\[{index}\]\n  fix: pass one tensor"
        ):
            execute_ir(graph, (x, 5, second))


def test_inputs_that_share_memory_with_one_that_changes_are_refused() -> None:
    inputs, both = "input %x: f32[2] input %y: f32[2]", tensor(1, 2, 3, 4)

    assert execute_ir(program(f"{inputs} return ()"), (both[:2], both[1:3])) == ()
    message = "inputs %x and %y share memory, and the model changes %x in place\n  fix: pass a copy"
    with pytest.raises(ExecutionError, match=message):
        execute_ir(program(f"{inputs} update %x = %y return ()"), (both[:2], both[1:3]))


def test_everything_wrong_with_the_weights_is_listed_at_once(ran: list[str]) -> None:
    weights = {"w": tensor(1), "extra": tensor(1)}
    constants = {"c": tensor(1, 2).int(), "other": tensor(1)}

    with pytest.raises(WeightError) as caught:
        execute_ir(program(ADD), (tensor(1, 2),), weights=weights, constants=constants)

    assert caught.value.message.splitlines() == [
        "the weights do not fit graph 'g':",
        "  misfit: w is f32[1], the graph needs f32[2]",
        "  missing: s, f32[2]",
        "  missing: m, f32[2] (not in the state_dict: pass it in constants=)",
        "  misfit: c is i32[2], the graph needs f32[2]",
        "  unexpected: extra",
        "  unexpected: other",
    ]
    assert "model.state_dict()" in caught.value.fix
    assert ran == []


def test_weights_in_place_of_keyword_arguments_are_told() -> None:
    with pytest.raises(
        ExecutionError, match=r"(?s)these keyword arguments are weights: w, s\n.*fix: pass weights="
    ):
        execute_ir(program(ADD), (tensor(1, 2),), {"w": tensor(1, 2), "s": tensor(1, 2)})


def test_a_long_list_of_wrong_weights_is_cut() -> None:
    graph = Graph("g")
    for index in range(50):
        graph.add_parameter(f"w{index}", F32)

    with pytest.raises(WeightError, match=r"missing: w19, f32\[2\]\n  ... and 30 more\n  fix") as caught:
        execute_ir(graph)
    assert "w20" not in str(caught.value)


@each_row("given, message", [
    ({"w": 1.0}, "misfit: w is float, the graph needs"),
    ({"w": tensor(1, 1).to_sparse()}, r"misfit: w is f32\[2\]@sparse_coo, the graph needs f32\[2\]"),
    ({"w": tensor(1, 1), "v": tensor(1, 2)}, "misfit: v and w are tied in the model but differ"),
    ({"v": tensor(1)}, r"misfit: v is f32\[1\]"),
    ({}, "missing: w"),
])  # fmt: skip
def test_weights_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightError, match=message):
        Interpreter(program('  param %w: f32[2] aliases ["v"]\n  return %w'), given)


def test_constants_and_non_persistent_buffers_can_be_given_anew() -> None:
    graph = program(
        "buffer %m: f32[2] non_persistent = [1.0, 2.0] const %c: f32[2] = [3.0, 4.0] return (%m, %c)"
    )

    assert repr(execute_ir(graph)) == repr((tensor(1, 2), tensor(3, 4)))
    assert repr(execute_ir(graph, constants={"c": tensor(5, 6)})) == repr((tensor(1, 2), tensor(5, 6)))
    assert repr(execute_ir(graph, weights={"m": tensor(7, 8)})) == repr((tensor(7, 8), tensor(3, 4)))


def test_tensors_are_laid_out_as_the_graph_states() -> None:
    graph = program(
        "  input %x: f32[2, 3]@[1, 2]\n  param %w: f32[3, 2]\n"
        "  %a: f32[6] = aten.as_strided.default(%x) {size=[6], stride=[1]}\n"
        "  %b: f32[6] = aten.view.default(%w) {size=[6]}\n"
        "  return (%a, %b)"
    )
    x, w = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3).t()

    a, b = execute_ir(graph, (x,), weights={"w": w})

    assert torch.equal(a, x.t().reshape(-1))
    assert torch.equal(b, w.reshape(-1))


@each_row("strides", ["[1, 1]", "[0, 1]", "[1, 0]", "[0, 0]", "[2, 1]"])
def test_elements_that_need_not_be_equal_are_never_laid_over_each_other(strides: str) -> None:
    graph = program(f"input %x: f32[4, 3]@{strides} input %y: f32[1, 3]@[1, 1] return (%x, %y)")
    x, y = torch.arange(12.0).view(4, 3), torch.arange(3.0).view(1, 3)

    same, itself = execute_ir(graph, (x, y))

    assert torch.equal(same, x)
    assert itself is y  # strides of axes of size one are no layout


@each_row("dtype", [torch.uint4, torch.float8_e5m2, torch.complex64, torch.bool])
def test_tensors_of_any_dtype_are_laid_out(dtype: torch.dtype) -> None:
    graph = Graph()
    graph.set_outputs(graph.add_input("x", TensorType((2, 3), dtype, (1, 2))))
    x = (torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % 2).view(dtype).view(2, 3)

    result = execute_ir(graph, (x,))

    assert result.stride() == (1, 2)
    assert same_data(result, x)
