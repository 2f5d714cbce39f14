"""Programs: slots, ops, the choice of kernels, bindings and runs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from npu_cuda.description import draw_graph
from tests.support.cuda.programs import VECTOR, bound_program, one_op, refused, relu_chain, relu_program
from tests.support.cuda.random_programs import RandomProgram, random_programs
from tests.support.tiers import examples


@examples(100)
@given(random_programs(), st.integers(1, 3))
def test_a_program_computes_what_numpy_does(case: RandomProgram, rounds: int) -> None:
    program, values = case.build(), case.values()
    expected = values
    for slot, value in enumerate(values):
        program.bind(slot, value)

    for _ in range(rounds):
        expected = case.expected(expected)
        program.run()

    for found, wanted in zip(values, expected, strict=True):
        # Terms of products may cancel: the error of a sum is relative to the largest numbers.
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max(initial=0))


def test_a_slot_can_be_bound_again() -> None:
    program, _, y = bound_program()
    program.run()
    program.bind(0, np.float32([7, 8, -9]))

    program.run()

    np.testing.assert_array_equal(y, np.float32([7, 8, 0]))


def test_two_slots_may_share_memory_if_no_op_has_both() -> None:
    program, x = relu_program(), np.array([-1, 0, 2], np.float32)

    program.call([x, x])

    np.testing.assert_array_equal(x, np.float32([0, 0, 2]))


def test_a_temporary_that_nobody_reads_does_no_harm() -> None:
    program = _C.Program("host")
    x, unread, unused = (program.slot(VECTOR, external=index == 0) for index in range(3))
    program.add(OpKind.EltwiseRelu, [x], [unread])
    program.finalize()

    program.call([np.ones(3, np.float32)])

    assert program.arena_bytes == 256
    assert f"slot {unused}: temporary float32[3], not used" in program.describe()


def test_programs_without_ops_or_elements_run() -> None:
    nothing, empty = _C.Program("host"), relu_chain(TensorSpec("float32", (0, 4)))
    nothing.finalize()

    nothing.run()
    empty.call([np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)])

    assert nothing.kernels == []
    assert nothing.arena_bytes == empty.arena_bytes == 0


def test_strides_of_axes_of_one_element_do_not_matter() -> None:
    x, y = np.float32([[1], [-2], [3]]), np.zeros((3, 1), np.float32)
    program = relu_chain(TensorSpec("float32", (3, 1)))

    program.call([np.lib.stride_tricks.as_strided(x, (3, 1), (4, 400)), y])

    np.testing.assert_array_equal(y, np.float32([[1], [0], [3]]))


def test_the_arena_is_memory_of_the_allocator_wherever_it_begins() -> None:
    asked = []

    def allocate(nbytes: int) -> np.ndarray:
        asked.append(np.full(nbytes + 1, 0xFF, np.uint8)[1:])
        return asked[-1]

    program = relu_chain(alloc=allocate)
    program.call([np.ones(3, np.float32), np.zeros(3, np.float32)])

    (memory,) = asked
    start = -memory.ctypes.data % 256
    assert program.arena_bytes == 256
    np.testing.assert_array_equal(memory[start : start + 12].view(np.float32), np.ones(3, np.float32))


@pytest.mark.smoke
def test_a_description_has_the_same_facts_in_all_formats() -> None:
    program, *_ = bound_program()

    facts = json.loads(program.describe("json"))

    assert [slot["name"] for slot in facts["slots"]] == ["x", "y", ""]
    assert [op["kernel_id"] for op in facts["ops"]] == program.kernels == ["relu.f32.host"] * 2
    assert [op["is_pinned"] for op in facts["ops"]] == [False, True]
    assert (facts["arena_bytes"], facts["temporary_bytes"]) == (256, 12)
    assert (facts["bytes"], facts["flops"]) == program.cost()
    assert facts["bytes"] == 48
    assert "slot 0 'x': external float32[3], alignment 4, bound" in program.describe("text")
    assert "op 1: EltwiseRelu(2) -> (1) by relu.f32.host, pinned, 24 bytes" in program.describe("text")
    assert "s2 -> o1;" in program.describe("dot")


def test_names_are_escaped() -> None:
    program = _C.Program("host")
    program.slot(VECTOR, 'a "b" \\ \n é')

    assert json.loads(program.describe("json"))["slots"][0]["name"] == 'a "b" \\ \n é'
    assert r"a \"b\" \\" in program.describe("dot")
    assert r'n0 [label="0 a\"b\nk\\"];' in draw_graph([{"op": 'a"b', "kernel_id": "k\\", "after": []}])


def test_a_call_before_finalize_changes_nothing_for_those_after_it() -> None:
    program = one_op(OpKind.EltwiseRelu, VECTOR, VECTOR)
    x, y = np.array([-1, 2, -3], np.float32), np.empty(3, np.float32)
    with refused("not final"):
        program.call([x, y], keep=False)
    program.finalize()

    program.call([x, y], keep=False)

    assert y.tolist() == [0.0, 2.0, 0.0]
