"""Graphs of programs: the same bits as runs, at fixed places, and updates to other places."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from tests.support.cuda.random_programs import RandomProgram, random_programs
from tests.support.cuda.refusals import refused

VECTOR = TensorSpec("float32", (3,))


def bound(case: RandomProgram, values: list[np.ndarray]) -> _C.Program:
    program = case.build()
    for slot, value in enumerate(values):
        program.bind(slot, value)
    return program


def doubling(kinds: tuple[OpKind, ...] = (OpKind.EltwiseAdd,)) -> tuple[_C.Program, np.ndarray]:
    """Return a program that doubles x in place, once per kind, and x."""
    program, x = _C.Program("host"), np.ones(3, np.float32)
    slot = program.slot(VECTOR, "x")
    for kind in kinds:
        program.add(kind, [slot] * (2 if kind == OpKind.EltwiseAdd else 1), [slot])
    program.finalize()
    program.bind(slot, x)
    return program, x


@settings(max_examples=100, deadline=None)
@given(random_programs(), st.integers(0, 4), st.sampled_from(["dag", "chain"]))
def test_launches_give_the_bits_of_runs(case: RandomProgram, rounds: int, topology: str) -> None:
    run_values, graph_values = case.values(), case.values()
    program = bound(case, run_values)
    graph = bound(case, graph_values).capture(topology=topology)
    for _ in range(rounds):
        program.run()

    graph.launch(rounds)

    for by_graph, by_run in zip(graph_values, run_values, strict=True):
        np.testing.assert_array_equal(by_graph, by_run)


def test_a_capture_runs_nothing() -> None:
    program, x = doubling()

    program.capture()

    np.testing.assert_array_equal(x, np.ones(3, np.float32))


def test_a_graph_sees_new_data_at_the_old_place() -> None:
    program, x = doubling()
    graph = program.capture()
    x[:] = [1, 2, 3]

    graph.launch()

    np.testing.assert_array_equal(x, np.float32([2, 4, 6]))


def test_a_graph_stays_where_it_was_captured() -> None:
    program, x = doubling()
    graph = program.capture()
    program.bind(0, np.zeros(3, np.float32))

    graph.launch(2)

    np.testing.assert_array_equal(x, np.full(3, 4, np.float32))


def test_a_graph_outlives_its_program_and_the_tensors() -> None:
    case = RandomProgram(1, 2, ())
    program = _C.Program("host")
    x, t, y = (program.slot(VECTOR, external=index != 1) for index in range(3))
    program.add(OpKind.EltwiseRelu, [x], [t])
    program.add(OpKind.EltwiseRelu, [t], [y])
    program.finalize()
    result = np.zeros(3, np.float32)
    program.bind(x, np.float32([1, -2, 3]))
    program.bind(y, result)
    graph = program.capture()
    del program, case
    gc.collect()

    graph.launch()

    np.testing.assert_array_equal(result, np.float32([1, 0, 3]))


def test_an_update_moves_the_graph_to_other_tensors() -> None:
    (program, x), (other, other_x) = doubling(), doubling()
    graph = program.capture()

    graph.update(other)
    graph.launch()

    np.testing.assert_array_equal(x, np.ones(3, np.float32))
    np.testing.assert_array_equal(other_x, np.full(3, 2, np.float32))


def test_an_update_takes_new_bindings_of_the_same_program() -> None:
    program, _ = doubling()
    graph = program.capture()
    new = np.full(3, 5, np.float32)
    program.bind(0, new)

    graph.update(program)
    graph.launch()

    np.testing.assert_array_equal(new, np.full(3, 10, np.float32))


UPDATES = {
    "fewer ops": ((), "update: the graph has 1 ops, the program has 0"),
    "more ops": ((OpKind.EltwiseAdd,) * 2, "update: the graph has 1 ops, the program has 2"),
    "another op": (
        (OpKind.EltwiseRelu,),
        (
            "update: op 0 of the graph is EltwiseAdd by add.f32.host, of the program it is "
            "EltwiseRelu by relu.f32.host"
        ),
    ),
}


@pytest.mark.parametrize("case", UPDATES)
def test_an_update_to_other_ops_is_refused(case: str) -> None:
    kinds, text = UPDATES[case]
    program, x = doubling()
    graph = program.capture()

    with refused(text):
        graph.update(doubling(kinds)[0])

    graph.launch()
    np.testing.assert_array_equal(x, np.full(3, 2, np.float32))


def test_an_update_to_a_program_that_is_not_bound_is_refused() -> None:
    graph = doubling()[0].capture()
    program = _C.Program("host")
    slot = program.slot(VECTOR, "x")
    program.add(OpKind.EltwiseAdd, [slot, slot], [slot])
    program.finalize()

    with refused(r"slot 0 \('x'\) is not bound"):
        graph.update(program)


def test_nodes_and_dot_show_ops_and_their_order() -> None:
    graph = doubling((OpKind.EltwiseAdd, OpKind.EltwiseRelu))[0].capture(topology="dag")

    assert graph.nodes == [
        {"op": "EltwiseAdd", "kernel_id": "add.f32.host", "after": []},
        {"op": "EltwiseRelu", "kernel_id": "relu.f32.host", "after": [0]},
    ]
    assert graph.topology == "dag"
    assert "n0 -> n1;" in graph.dot()
    assert "EltwiseRelu\\nrelu.f32.host" in graph.dot()


def test_a_graph_without_ops_launches() -> None:
    program = _C.Program("host")
    program.finalize()

    graph = program.capture()
    graph.launch(3)

    assert graph.nodes == []


def test_a_negative_number_of_launches_is_refused() -> None:
    with refused("launch: n is -1"):
        doubling()[0].capture().launch(-1)


def test_a_stream_that_is_not_there_is_refused() -> None:
    with refused(r"host: there is no such stream \(12345\)"):
        doubling()[0].capture().launch(1, 12345)


@pytest.mark.parametrize(("name", "value"), [("mode", "quiet"), ("topology", "tree")])
def test_capture_says_which_settings_there_are(name: str, value: str) -> None:
    with refused(f"{value}"):
        doubling()[0].capture(**{name: value})
