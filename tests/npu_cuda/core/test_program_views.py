"""Views in programs: slots over the memory of other slots, at no cost, and what is refused of them."""

import json
import re
from typing import Any

import numpy as np
import pytest

from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from tests.support.cuda.programs import refused

RELU, ADD, COPY = OpKind.EltwiseRelu, OpKind.EltwiseAdd, OpKind.Copy
MATRIX = TensorSpec("float32", (3, 4))
TRANSPOSED = TensorSpec("float32", (4, 3), (1, 4))
ROW = TensorSpec("float32", (4,))
COLUMN = TensorSpec("float32", (3,), (4,))


def transposing(*, external: bool) -> _C.Program:
    """Return a final program: y (4 x 3) is twice the transpose of relu(x) (3 x 4)."""
    program = _C.Program("host")
    x, y = program.slot(MATRIX, "x"), program.slot(TensorSpec("float32", (4, 3)), "y")
    between = program.slot(MATRIX, "between", external=external)
    view = program.view(between, TRANSPOSED, name="view")
    program.add(RELU, [x], [between])
    program.add(ADD, [view, view], [y])
    program.finalize()
    return program


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("external", [True, False])
def test_a_view_is_read_in_the_memory_of_its_base(external: bool) -> None:
    program, x, y = transposing(external=external), numbers(3, 4), np.zeros((4, 3), np.float32)
    tensors = [x, y, np.zeros((3, 4), np.float32)][: 2 + external]

    program.call(tensors)

    np.testing.assert_array_equal(y, 2 * np.maximum(x, 0).T)
    assert program.arena_bytes == (0 if external else 256)
    assert len(program.kernels) == 2


@pytest.mark.parametrize("topology", ["dag", "chain"])
def test_a_capture_waits_for_who_wrote_the_base_of_a_view(topology: str) -> None:
    program, x, y = transposing(external=False), numbers(3, 4), np.zeros((4, 3), np.float32)
    for slot, tensor in enumerate((x, y)):
        program.bind(slot, tensor)

    graph = program.capture(topology=topology)
    graph.launch()

    np.testing.assert_array_equal(y, 2 * np.maximum(x, 0).T)
    assert [node["after"] for node in graph.nodes] == [[], [0]]


def test_a_base_lives_as_long_as_its_last_view() -> None:
    program = _C.Program("host")
    x, y = program.slot(MATRIX), program.slot(ROW)
    base, other = program.slot(MATRIX, external=False), program.slot(MATRIX, external=False)
    row = program.view(base, ROW, 16)
    program.add(RELU, [x], [base])
    program.add(ADD, [x, x], [other])
    program.add(RELU, [other], [x])
    program.add(RELU, [row], [y])
    program.finalize()
    memory, result = numbers(3, 4), np.zeros(4, np.float32)
    expected = np.maximum(memory[1], 0)

    program.call([memory, result])

    assert program.arena_bytes == 512
    np.testing.assert_array_equal(result, expected)


def test_binding_a_base_moves_its_views_and_theirs() -> None:
    program = _C.Program("host")
    x, y = program.slot(MATRIX), program.slot(TensorSpec("float32", (2,)))
    row = program.view(x, ROW, 16)
    pair = program.view(row, TensorSpec("float32", (2,)), 8)
    program.add(RELU, [pair], [y])
    program.finalize()

    for matrix in (numbers(3, 4), -numbers(3, 4)):
        result = np.zeros(2, np.float32)
        program.call([matrix, result])
        np.testing.assert_array_equal(result, np.maximum(matrix[1, 2:], 0))


def test_a_view_of_an_external_slot_or_of_what_was_written_can_be_written() -> None:
    program = _C.Program("host")
    x, y = program.slot(MATRIX, "x"), program.slot(MATRIX, "y")
    between = program.slot(MATRIX, external=False)
    program.add(COPY, [x], [between])
    for base in (between, x):
        column = program.view(base, COLUMN, 4)
        program.add(RELU, [column], [column])
    program.add(COPY, [between], [y])
    program.finalize()
    memory, result = -numbers(3, 4), np.zeros((3, 4), np.float32)
    expected = memory.copy()
    expected[:, 1] = np.maximum(expected[:, 1], 0)

    program.call([memory, result])

    np.testing.assert_array_equal(memory, expected)
    np.testing.assert_array_equal(result, expected)


def test_a_view_of_all_of_a_temporary_writes_it() -> None:
    program = _C.Program("host")
    x, y = program.slot(TRANSPOSED), program.slot(MATRIX)
    between = program.slot(MATRIX, external=False)
    program.add(RELU, [x], [program.view(between, TRANSPOSED)])
    program.add(RELU, [between], [y])
    program.finalize()
    memory, result = numbers(3, 4), np.zeros((3, 4), np.float32)

    program.call([memory.T, result])

    np.testing.assert_array_equal(result, np.maximum(memory, 0))


def test_views_without_elements_have_no_memory() -> None:
    program = _C.Program("host")
    empty = TensorSpec("float32", (0, 4))
    x, y = program.slot(empty), program.slot(TensorSpec("float32", (4, 0)))
    program.add(RELU, [program.view(x, TensorSpec("float32", (4, 0)))], [y])
    program.finalize()

    program.call([np.zeros((0, 4), np.float32), np.zeros((4, 0), np.float32)])


def test_the_alignment_of_a_view_follows_from_base_and_offset() -> None:
    program = _C.Program("host")
    base = program.slot(TensorSpec("float32", (64,), alignment=64))
    four = TensorSpec("float32", (4,), alignment=256)
    views = [program.view(base, four, offset) for offset in (0, 4, 8, 16, 128)]
    views.append(program.view(views[3], TensorSpec("float32", (2,)), 8))

    slots = json.loads(program.describe("json"))["slots"]

    assert [slots[view]["alignment"] for view in views] == [64, 4, 8, 16, 64, 8]


def test_a_description_says_what_is_a_view_of_what() -> None:
    program = transposing(external=False)

    facts = json.loads(program.describe("json"))

    assert [slot["base"] for slot in facts["slots"]] == [None, None, None, 2]
    assert facts["temporary_bytes"] == 48
    assert facts["slots"][3]["arena_offset"] == facts["slots"][2]["arena_offset"] == 0
    assert "slot 3 'view': view float32[4, 3] strides [1, 4], of slot 2 from byte 0 on" in program.describe()
    assert "s2 -> s3 [style=dashed];" in program.describe("dot")


def test_a_view_that_leaves_its_base_is_refused() -> None:
    program = _C.Program("host")
    x = program.slot(MATRIX, "x")
    row = program.view(x, ROW, 16)
    cases = [
        (x, ROW, 36, "a view of slot 0 ('x'): float32[4] from byte 36 on has 16 bytes, slot 0 ('x') has 48"),
        (x, TensorSpec("float32", (2, 3), (8, 2)), 0, "has 52 bytes, slot 0 ('x') has 48: a view resides in"),
        (x, TensorSpec("float32", (0,)), 52, "from byte 52 on has 0 bytes, slot 0 ('x') has 48"),
        (row, ROW, 4, "a view of slot 1: float32[4] from byte 4 on has 16 bytes, slot 1 has 16"),
        (x, ROW, 6, "it begins at byte 6 of slot 0 ('x'), which is not a multiple of its item size, 4"),
        (7, ROW, 0, "there is no slot 7: the program has 2"),
    ]
    for base, spec, offset, text in cases:
        with refused(re.escape(text)):
            program.view(base, spec, offset)


def test_ops_on_views_that_share_memory_are_refused() -> None:
    program = _C.Program("host")
    x, t = program.slot(MATRIX, "x"), program.slot(MATRIX, "t", external=False)
    first, same, second = (program.view(x, ROW, offset) for offset in (0, 0, 16))
    late = program.view(x, ROW, 8)
    part = program.view(t, ROW, 16, "part")
    cases = [
        (RELU, [first], [late], "output 0 is slot 5, which shares memory with input 0"),
        (COPY, [first], [same], "output 0 is slot 3, which is input 0, too: this op does not work in place"),
        (RELU, [part], [first], "input 0 is slot 6 ('part'), a temporary that no op before this one writes"),
        (RELU, [first], [part], "output 0 is slot 6 ('part'), a part of slot 1 ('t'), a temporary"),
    ]
    for op, inputs, outputs, text in cases:
        with refused(re.escape(text)):
            program.add(op, inputs, outputs)

    program.add(RELU, [first], [same])
    program.add(RELU, [first], [second])
    program.finalize()
    memory = -numbers(3, 4)
    program.call([memory])
    np.testing.assert_array_equal(memory[0], memory[1])


def test_a_view_is_bound_with_its_base() -> None:
    program = _C.Program("host")
    x = program.slot(MATRIX, "x")
    view = program.view(x, ROW, 16, "row")
    program.add(RELU, [view], [view])
    program.finalize()

    with refused(re.escape("slot 1 ('row') is a view of slot 0 ('x'): its memory is that of its base")):
        program.bind(view, np.zeros(4, np.float32))
    with refused(re.escape("slot 0 ('x') is not bound: bind() a tensor to it")):
        program.run()
    with refused("add_view: this program is final; make another one"):
        program.view(x, ROW)
