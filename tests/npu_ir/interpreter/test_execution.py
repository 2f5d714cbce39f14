"""Execution: what comes back, and what the surroundings of the caller do to it."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from npu_ir import (
    ExecutionError,
    Interpreter,
    TensorType,
    execute_ir,
    extract_ir,
    list_registered_ops,
    parse_ir,
)
from npu_ir.ops import register_executor, unregister_executor
from npu_ir.ops.schema import resolve
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.small_programs import ADD, CONSTANTS, CPU, WEIGHTS, program, tensor


@pytest.mark.smoke
def test_a_graph_gives_its_results_in_their_structure() -> None:
    result = execute_ir(program(ADD), (tensor(1, 2),), weights=WEIGHTS, constants=CONSTANTS)

    assert repr(result) == repr((tensor(17, 28), {"a": tensor(2, 3), "n": 3}))


def test_what_the_model_would_change_comes_back_by_name() -> None:
    result, mutations = execute_ir(
        program(ADD), (tensor(1, 2),), weights=WEIGHTS, constants=CONSTANTS, return_mutations=True
    )

    assert repr(mutations) == repr({"s": tensor(2, 3), "x": tensor(4, 5)})
    assert torch.equal(result[0], tensor(17, 28))


def test_nothing_of_the_caller_is_changed() -> None:
    x, weights, constants = (
        tensor(1, 2),
        {key: value.clone() for key, value in WEIGHTS.items()},
        {"m": tensor(3, 3)},
    )

    execute_ir(program(ADD), (x,), weights=weights, constants=constants)

    assert torch.equal(x, tensor(1, 2))
    assert repr(weights) == repr(WEIGHTS)
    assert repr(constants) == repr(CONSTANTS)
    assert list(weights) == ["w", "s"]


def test_a_tied_parameter_is_updated_under_every_name() -> None:
    graph = program(
        '  input %x: f32[2]\n  param %w: f32[2] aliases ["v", "u"]\n  update %w = %x\n  return ()'
    )

    _, mutations = execute_ir(graph, (tensor(1, 2),), weights={"w": tensor(0, 0)}, return_mutations=True)

    assert list(mutations) == ["w", "v", "u"]
    assert all(torch.equal(value, tensor(1, 2)) for value in mutations.values())


def test_inputs_weights_and_literals_are_results_as_they_are() -> None:
    graph = program(
        "  input %x: f32[2]\n  input %n: int\n  param %w: f32[2]\n  call (%x, n=%n)\n"
        "  return [%x, %x, %n, %w, None, 1.5]"
    )
    x, w = tensor(1, 2), tensor(3, 4)

    results = execute_ir(graph, (x,), {"n": 7}, weights={"w": w})

    assert results[0] is x
    assert results[1] is x
    assert results[3] is w
    assert results[2:3] + results[4:] == [7, None, 1.5]


def test_an_interpreter_runs_again_and_again() -> None:
    interpreter = Interpreter(program(ADD), WEIGHTS, CONSTANTS)

    assert torch.equal(interpreter.run(tensor(1, 2))[0], interpreter.run(tensor(1, 2))[0])
    leaves, mutations = interpreter.run_flat((tensor(0, 0),))
    assert torch.equal(leaves[0], tensor(16, 26))
    assert leaves[2] == 3
    assert list(mutations) == ["s", "x"]


def test_every_node_is_shown_with_its_outputs() -> None:
    seen: list[tuple[str, str]] = []

    Interpreter(program(ADD), WEIGHTS, CONSTANTS).run_flat(
        (tensor(1, 2),), observe=lambda node, outputs: seen.append((node.name, repr(outputs)))
    )

    assert seen[0] == ("a", repr([tensor(2, 3)]))
    assert [name for name, _ in seen] == ["a", "b", "d", "e"]


def test_values_are_forgotten_after_their_last_use() -> None:
    graph = program(
        "  input %x: f32[2]\n"
        "  %a: f32[2] = aten.neg.default(%x)\n"
        "  %unused: f32[2] = aten.neg.default(%a)\n"
        "  %b: f32[2] = aten.add.Tensor(%a, %a)\n"
        "  %c: f32[2] = aten.neg.default(%b)\n"
        "  %d: f32[2] = aten.neg.default(%c)\n"
        "  return (%d, %b)"
    )
    alive: dict[str, weakref.ref[torch.Tensor]] = {}
    history: list[set[str]] = []

    def observe(node: Any, outputs: list[Any]) -> None:
        history.append({name for name, ref in alive.items() if ref() is not None})
        alive[node.name] = weakref.ref(outputs[0])

    Interpreter(graph).run_flat((tensor(1, 2),), observe=observe)

    assert history == [set(), {"a"}, {"a"}, {"b"}, {"b", "c"}]


# The surroundings of the caller

CREATE = """
  input %x: f32[2, 2]
  %a: f32[2, 2] = aten.full.default() {size=[2, 2], fill_value=2.0, dtype=f32, device=device("meta")}
  %b: f32[2, 2] = aten.mm.default(%x, %a)
  return %b
"""


def surroundings() -> list[Any]:
    return [
        pytest.param(lambda: torch.autocast("cpu", dtype=torch.bfloat16), id="autocast"),
        pytest.param(lambda: torch.device("meta"), id="default_device"),
        pytest.param(torch.enable_grad, id="grad"),
        pytest.param(torch.inference_mode, id="inference_mode"),
        pytest.param(lambda: default_dtype(torch.float64), id="default_dtype"),
    ]


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(old)


@each_row("around", surroundings())
def test_the_surroundings_of_the_caller_have_no_influence(
    around: Callable[[], contextlib.AbstractContextManager[Any]],
) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.125]], requires_grad=True)

    with around():
        result = execute_ir(program(CREATE), (x,))

    assert torch.equal(result, torch.tensor([[6.0, 6.0], [14.25, 14.25]]))
    assert result.device == CPU
    assert not result.requires_grad


def test_the_surroundings_of_the_caller_are_as_before() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), torch.enable_grad():
        execute_ir(program(CREATE), (torch.ones(2, 2, device="cpu"),))
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_grad_enabled()
        assert torch.empty(1).is_meta


def test_a_graph_runs_on_meta_tensors_to_types() -> None:
    result = execute_ir(program(CREATE), (torch.empty(2, 2, device="meta"),))

    assert result.is_meta
    assert TensorType.of(result) == TensorType((2, 2), torch.float32)


def test_many_threads_may_run_one_interpreter() -> None:
    lines = "\n".join(f"  %v{index + 1}: f32[2] = aten.add.Tensor(%v{index}, %w)" for index in range(50))
    interpreter = Interpreter(
        program(f"  input %v0: f32[2]\n  param %w: f32[2]\n{lines}\n  return %v50"), {"w": tensor(1, 1)}
    )
    results: dict[int, torch.Tensor] = {}
    ready = threading.Barrier(8)

    def run(number: int) -> None:
        ready.wait()
        for _ in range(5):
            results[number] = interpreter.run(tensor(number, 0))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(torch.equal(results[number], tensor(number + 50, 50)) for number in range(8))


def test_custom_operators_run_by_their_schema() -> None:
    library = torch.library.Library("test_execution", "DEF")
    library.define("scaled(Tensor[] xs, *, float by=2.0, Tensor? bias=None) -> (Tensor, int)")
    library.impl(
        "scaled",
        lambda xs, by=2.0, bias=None: (sum(xs) * by + (0 if bias is None else bias), len(xs)),
        "CompositeExplicitAutograd",
    )
    try:
        graph = program(
            "  input %x: f32[2]\n  input %b: f32[2]\n"
            "  %y: f32[2], %n: int = test_execution.scaled.default(xs=[%x, %x], bias=%b) {by=0.5}\n"
            "  return (%y, %n)"
        )

        result = execute_ir(graph, (tensor(1, 2), tensor(10, 10)))

        assert repr(result) == repr((tensor(11, 12), 2))
        assert resolve("test_execution.scaled.default") is not None
    finally:
        library._destroy()


@pytest.fixture
def zero_for_scalars() -> Iterator[None]:
    register_executor("aten.add.Scalar")(lambda inputs, attrs: [torch.zeros_like(inputs[0])])
    yield
    unregister_executor("aten.add.Scalar")


@pytest.mark.usefixtures("zero_for_scalars")
def test_an_executor_runs_no_other_overload_than_it_names() -> None:
    graph = extract_ir(Function(torch.add), (torch.ones(2), torch.ones(2)))

    assert Interpreter(graph).run(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    assert "aten.add.Scalar" in list_registered_ops()["execution"]


def test_an_unknown_overload_does_not_become_the_default_one() -> None:
    text = "graph g {\n  input %x: f32[2]\n\n  %y: f32[2] = aten.relu.unheard_of(self=%x)\n\n  return %y\n}\n"

    with pytest.raises(ExecutionError, match=r"there is no operator aten.relu.unheard_of"):
        Interpreter(parse_ir(text)).run(torch.randn(2))


def test_values_know_their_strides() -> None:
    graph = extract_ir(Function(lambda x: x.permute(0, 2, 1) * 1), (torch.randn(2, 3, 4),))

    assert [str(value.type) for value in graph.values] == [
        "f32[2, 3, 4]",
        "f32[2, 4, 3]@[12, 1, 4]",
        "f32[2, 4, 3]@[12, 1, 4]",
    ]


def test_results_of_none_do_not_shift_the_others() -> None:
    def backward(x: Any, gradient: Any) -> Any:
        mask = [False, True, True]
        return torch.ops.aten.convolution_backward(
            gradient, x, torch.ones(1, 1, 2), [1], [1], [0], [1], False, [0], 1, mask
        )[1:]

    x, gradient = torch.randn(1, 1, 4), torch.randn(1, 1, 3)

    result = Interpreter(extract_ir(Function(backward), (x, gradient))).run(x, gradient)

    assert all(torch.equal(left, right) for left, right in zip(result, backward(x, gradient), strict=True))
