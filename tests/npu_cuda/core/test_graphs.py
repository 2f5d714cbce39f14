"""Graphs of programs: the same bits as runs, at fixed places, and updates to other places."""

import gc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npu_cuda import _C
from npu_cuda._C import OpKind
from tests.support.cuda.programs import VECTOR, one_op, refused, relu_chain
from tests.support.cuda.random_programs import RandomProgram, random_programs
from tests.support.tiers import examples


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


@examples(100)
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


def test_a_graph_sees_new_data_at_the_place_where_it_was_captured() -> None:
    program, x = doubling()
    graph = program.capture()
    x[:] = [1, 2, 3]
    program.bind(0, np.zeros(3, np.float32))

    graph.launch(2)

    np.testing.assert_array_equal(x, np.float32([4, 8, 12]))


def test_a_graph_outlives_its_program_and_the_tensors() -> None:
    program, result = relu_chain(), np.zeros(3, np.float32)
    program.call([np.float32([1, -2, 3]), result])
    graph = program.capture()
    del program
    gc.collect()
    result[:] = 0

    graph.launch()

    np.testing.assert_array_equal(result, np.float32([1, 0, 3]))


def test_an_update_moves_the_graph_to_other_tensors() -> None:
    (program, x), (other, other_x) = doubling(), doubling()
    graph = program.capture()

    graph.update(other)
    graph.launch()

    np.testing.assert_array_equal(x, np.ones(3, np.float32))
    np.testing.assert_array_equal(other_x, np.full(3, 2, np.float32))
    new = np.full(3, 5, np.float32)
    other.bind(0, new)
    graph.update(other)  # other bindings of the same program
    graph.launch()
    np.testing.assert_array_equal(new, np.full(3, 10, np.float32))


def test_an_update_to_other_ops_is_refused() -> None:
    program, x = doubling()
    graph = program.capture()
    unbound = one_op(OpKind.EltwiseAdd, VECTOR, VECTOR, VECTOR)
    unbound.finalize()
    by_relu = "EltwiseAdd by add.f32.host, of the program it is EltwiseRelu by relu.f32.host"

    for other, text in (
        (doubling(())[0], "update: the graph has 1 ops, the program has 0"),
        (doubling((OpKind.EltwiseAdd,) * 2)[0], "update: the graph has 1 ops, the program has 2"),
        (doubling((OpKind.EltwiseRelu,))[0], f"update: op 0 of the graph is {by_relu}"),
        (unbound, "slot 0 is not bound"),
    ):
        with refused(text):
            graph.update(other)

    graph.launch()
    np.testing.assert_array_equal(x, np.full(3, 2, np.float32))


def test_nodes_and_dot_show_ops_and_their_order() -> None:
    graph = doubling((OpKind.EltwiseAdd, OpKind.EltwiseRelu))[0].capture(topology="dag")

    assert graph.nodes == [
        {"op": "EltwiseAdd", "kernel_id": "add.f32.host", "after": []},
        {"op": "EltwiseRelu", "kernel_id": "relu.f32.host", "after": [0]},
    ]
    assert graph.topology == "dag"
    assert "n0 -> n1;" in graph.dot()
    assert "EltwiseRelu\\nrelu.f32.host" in graph.dot()


def test_captures_and_launches_say_what_is_possible() -> None:
    program, _ = doubling()
    graph = program.capture()
    cases = [
        (lambda: program.capture(mode="quiet"), "'quiet'; possible are 'thread_local', 'global'"),
        (lambda: program.capture(topology="tree"), "'tree'; possible are 'auto', 'dag' and 'chain'"),
        (lambda: graph.launch(-1), "launch: n is -1"),
        (lambda: graph.launch(1, 12345), r"host: there is no such stream \(12345\)"),
    ]
    for call, text in cases:
        with refused(text):
            call()
