"""Execution: what comes back, and what the surroundings of the caller do to it."""

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from npu_ir import Interpreter, TensorType, execute_ir
from tests.support.corpus.dtypes import float64_default
from tests.support.rows import each_row
from tests.support.small_programs import ADD, CONSTANTS, CPU, WEIGHTS, program, tensor


@pytest.mark.smoke
def test_a_graph_gives_results_and_mutations_and_changes_nothing_of_the_caller() -> None:
    x, weights, constants = tensor(1, 2), copy.deepcopy(WEIGHTS), copy.deepcopy(CONSTANTS)

    result, mutations = execute_ir(
        program(ADD), (x,), weights=weights, constants=constants, return_mutations=True
    )

    assert repr(result) == repr((tensor(17, 28), {"a": tensor(2, 3), "n": 3}))
    assert repr(mutations) == repr({"s": tensor(2, 3), "x": tensor(4, 5)})
    assert repr(execute_ir(program(ADD), (x,), weights=weights, constants=constants)) == repr(result)
    assert repr((x, weights, constants)) == repr((tensor(1, 2), WEIGHTS, CONSTANTS))


def test_a_tied_parameter_is_updated_under_every_name() -> None:
    graph = program('input %x: f32[2] param %w: f32[2] aliases ["v", "u"] update %w = %x return ()')

    _, mutations = execute_ir(graph, (tensor(1, 2),), weights={"w": tensor(0, 0)}, return_mutations=True)

    assert repr(mutations) == repr(dict.fromkeys("wvu", tensor(1, 2)))


def test_inputs_weights_and_literals_are_results_as_they_are() -> None:
    graph = program(
        "input %x: f32[2] input %n: int param %w: f32[2] call (%x, n=%n) return [%x, %n, %w, None, 1.5]"
    )
    x, w = tensor(1, 2), tensor(3, 4)

    results = execute_ir(graph, (x,), {"n": 7}, weights={"w": w})

    assert results[0] is x
    assert results[2] is w
    assert [results[1], *results[3:]] == [7, None, 1.5]


def test_an_interpreter_runs_again_and_again_and_shows_every_node_with_its_outputs() -> None:
    interpreter, seen = Interpreter(program(ADD), WEIGHTS, CONSTANTS), []

    result = interpreter.run(tensor(1, 2))
    leaves, mutations = interpreter.run_flat(
        (tensor(1, 2),), observe=lambda node, outputs: seen.append((node.name, repr(outputs)))
    )

    assert torch.equal(result[0], tensor(17, 28))
    assert torch.equal(leaves[0], result[0])
    assert list(mutations) == ["s", "x"]
    assert seen[0] == ("a", repr([tensor(2, 3)]))
    assert [name for name, _ in seen] == ["a", "b", "d", "e"]


def test_values_are_forgotten_after_their_last_use() -> None:
    reads = {"a": "x", "unused": "a", "b": "a", "c": "b", "d": "c"}
    nodes = "".join(f"  %{name}: f32[2] = aten.neg.default(%{read})\n" for name, read in reads.items())
    graph = program(f"  input %x: f32[2]\n{nodes}  return (%d, %b)")
    alive: dict[str, weakref.ref[torch.Tensor]] = {}
    history: list[set[str]] = []

    def observe(node: Any, outputs: list[Any]) -> None:
        history.append({name for name, ref in alive.items() if ref() is not None})
        alive[node.name] = weakref.ref(outputs[0])

    Interpreter(graph).run_flat((tensor(1, 2),), observe=observe)

    assert history == [set(), {"a"}, {"a"}, {"b"}, {"b", "c"}]


CREATE = """
  input %x: f32[2, 2]
  %a: f32[2, 2] = aten.full.default() {size=[2, 2], fill_value=2.0, dtype=f32, device=device("meta")}
  %b: f32[2, 2] = aten.mm.default(%x, %a)
  return %b
"""


@each_row("around", {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default_device": lambda: torch.device("meta"),
    "grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "default_dtype": float64_default,
})  # fmt: skip
def test_the_surroundings_of_the_caller_have_no_influence_and_stay(
    around: Callable[[], contextlib.AbstractContextManager[Any]],
) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.125]], requires_grad=True)

    with around():
        before = (torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.empty(1).device)
        result = execute_ir(program(CREATE), (x,))
        after = (torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.empty(1).device)

    assert torch.equal(result, torch.tensor([[6.0, 6.0], [14.25, 14.25]]))
    assert result.device == CPU
    assert not result.requires_grad
    assert before == after


def test_a_graph_runs_on_meta_tensors_to_types() -> None:
    result = execute_ir(program(CREATE), (torch.empty(2, 2, device="meta"),))

    assert result.is_meta
    assert TensorType.of(result) == TensorType((2, 2), torch.float32)


def test_many_threads_may_run_one_interpreter() -> None:
    lines = "\n".join(f"  %v{index + 1}: f32[2] = aten.add.Tensor(%v{index}, %w)" for index in range(50))
    graph = program(f"  input %v0: f32[2]\n  param %w: f32[2]\n{lines}\n  return %v50")
    interpreter, ready = Interpreter(graph, {"w": tensor(1, 1)}), threading.Barrier(8)

    def run(number: int) -> list[torch.Tensor]:
        ready.wait()
        return [interpreter.run(tensor(number, 0)) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(8)))

    for number, found in enumerate(results):
        assert all(torch.equal(result, tensor(number + 50, 50)) for result in found)


def test_an_interpreter_is_shown_with_its_graph() -> None:
    graph = program("input %x: f32[2] %y: f32[2] = aten.relu.default(self=%x) return %y")

    assert repr(Interpreter(graph)) == f"<Interpreter '{graph.name}': 1 nodes>"
