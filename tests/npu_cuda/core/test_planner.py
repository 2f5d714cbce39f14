"""Buffer assignment of temporaries in the arena, and dependencies of the ops of a graph."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from tests.support.cuda.programs import relu_chain
from tests.support.emulator.module import needs_emulator
from tests.support.rows import each_row
from tests.support.tiers import examples

BUFFER = 24  # elements
Range = tuple[int, int]
Touch = tuple[list[Range], list[Range]]  # what an op reads, and what it writes


def overlap(first: list[Range], second: list[Range]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a, b in itertools.product(first, second))


def reduced_hazards(touches: list[Touch]) -> list[list[int]]:
    """Return the dependencies that follow from no others, by brute force over all pairs of ops."""
    count = len(touches)
    waits = np.zeros((count, count), bool)
    for later, earlier in itertools.combinations(range(count - 1, -1, -1), 2):
        reads, writes = touches[later]
        old_reads, old_writes = touches[earlier]
        direct = overlap(reads, old_writes) or overlap(writes, old_reads) or overlap(writes, old_writes)
        waits[later, earlier] = direct
    for middle in range(count):
        waits |= np.outer(waits[:, middle], waits[middle])
    indirect = (waits.astype(int) @ waits.astype(int)) > 0
    return [[int(op) for op in np.flatnonzero(row)] for row in waits & ~indirect]


@st.composite
def additions(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Draw ops on one buffer: where a, b and y of an addition begin, and how long they are."""
    ops = []
    for _ in range(draw(st.integers(0, 10))):
        length = draw(st.integers(0, 6))
        begins = st.integers(0, BUFFER - length)
        a, b, y = draw(begins), draw(begins), draw(begins)
        if all(begin == y or abs(begin - y) >= length for begin in (a, b)):
            ops.append((a, b, y, length))
    return ops


def additions_program(ops: list[tuple[int, int, int, int]], buffer: np.ndarray) -> _C.Program:
    program = _C.Program("host")
    for *_, length in ops:
        slots = [program.slot(TensorSpec("float32", (length,))) for _ in range(3)]
        program.add(OpKind.EltwiseAdd, slots[:2], slots[2:])
    program.finalize()
    for index, (*begins, length) in enumerate(ops):
        for offset, begin in enumerate(begins):
            program.bind(3 * index + offset, buffer[begin : begin + length])
    return program


def a_row(count: int) -> list[list[int]]:
    """Return what ops in a row come after."""
    return [[index - 1] if index else [] for index in range(count)]


@examples(150)
@given(additions(), st.integers(1, 3))
def test_the_edges_of_a_graph_are_the_reduced_hazards_of_its_ops(
    ops: list[tuple[int, int, int, int]], rounds: int
) -> None:
    buffer = np.arange(BUFFER, dtype=np.float32)
    expected = buffer.copy()
    for _ in range(rounds):
        for a, b, y, n in ops:
            expected[y : y + n] = expected[a : a + n] + expected[b : b + n]
    program = additions_program(ops, buffer)

    dag, chain = program.capture(topology="dag"), program.capture(topology="chain")
    dag.launch(rounds)

    touches = [([(a, a + n), (b, b + n)] if n else [], [(y, y + n)] if n else []) for a, b, y, n in ops]
    assert [node["after"] for node in dag.nodes] == reduced_hazards(touches)
    assert [node["after"] for node in chain.nodes] == a_row(len(ops))
    np.testing.assert_array_equal(buffer, expected)


@st.composite
def staged_copies(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, bool]]]:
    """Draw sizes of temporaries, and steps that fill one (False) or read it into an output (True)."""
    sizes = draw(st.lists(st.integers(0, 700), min_size=1, max_size=8))
    order = draw(st.permutations([index for index in range(len(sizes)) for _ in range(2)]))
    seen: set[int] = set()
    steps = []
    for index in order:
        steps.append((index, index in seen))
        seen.add(index)
    return sizes, steps


def staged_program(sizes: list[int], steps: list[tuple[int, bool]]) -> _C.Program:
    """Slots 3i, 3i + 1 and 3i + 2: the input, the temporary and the output of size i."""
    program = _C.Program("host")
    for size in sizes:
        for external in (True, False, True):
            program.slot(TensorSpec("float32", (size,)), external=external)
    for index, reads in steps:
        first = 3 * index + reads
        program.add(OpKind.Copy, [first], [first + 1])
    program.finalize()
    return program


@examples(100)
@given(staged_copies())
def test_temporaries_that_live_together_do_not_overlap(
    case: tuple[list[int], list[tuple[int, bool]]],
) -> None:
    sizes, steps = case
    program = staged_program(sizes, steps)
    inputs = [np.arange(size, dtype=np.float32) + 1000 * index for index, size in enumerate(sizes)]
    outputs = [np.zeros(size, np.float32) for size in sizes]
    program.call([tensor for pair in zip(inputs, outputs, strict=True) for tensor in pair])

    for given_values, found in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(found, given_values)
    slots = [slot for slot in json.loads(program.describe("json"))["slots"] if not slot["is_external"]]
    for slot in slots:
        assert slot["arena_offset"] % 256 == 0
        assert slot["arena_offset"] + slot["bytes"] <= program.arena_bytes
    for first, second in itertools.combinations(slots, 2):
        if first["last_op"] < second["first_op"] or second["last_op"] < first["first_op"]:
            continue
        ranges = [[(slot["arena_offset"], slot["arena_offset"] + slot["bytes"])] for slot in (first, second)]
        assert not overlap(*ranges) or 0 in (first["bytes"], second["bytes"])


@pytest.mark.smoke
def test_a_chain_needs_two_temporaries_whatever_its_length() -> None:
    for length in [2, 3, 11, 101]:
        program = relu_chain(TensorSpec("float32", (1024,)), length)

        assert program.arena_bytes == 4096 * min(length - 1, 2)


def test_the_edges_of_ten_thousand_ops_are_found_at_once() -> None:
    program = relu_chain(TensorSpec("float32", (1,)), 10000)
    program.bind(0, np.ones(1, np.float32))
    program.bind(10000, np.ones(1, np.float32))

    nodes = program.capture(topology="dag").nodes

    assert [node["after"] for node in nodes] == a_row(10000)


def two_products(side: int, device: str, *, in_a_row: bool) -> _C.Program:
    """Return a bound program of two products of matrices, into the same memory or into two tensors."""
    shapes = [(side, 4 * side), (4 * side, side), (side, side), (side, side)]
    program = _C.Program(device)
    a, b, c, d = [program.slot(TensorSpec("float32", shape)) for shape in shapes]
    program.add(OpKind.Gemm, [a, b], [c])
    program.add(OpKind.Gemm, [a, b], [c if in_a_row else d])
    program.finalize()
    for slot, shape in enumerate(shapes):
        program.bind(slot, _C.empty(shape, device=device))
    return program


@needs_emulator
@each_row("side, in_a_row, topology", {
    "long and small": (256, False, "dag"),
    "one after the other": (256, True, "chain"),
    "short": (64, False, "chain"),
    "each fills the GPU": (512, False, "chain"),
})  # fmt: skip
def test_a_graph_has_edges_where_long_ops_can_share_the_gpu(side: int, in_a_row: bool, topology: str) -> None:
    graph = two_products(side, "cuda", in_a_row=in_a_row).capture()

    assert graph.topology == topology
    assert graph.nodes[1]["after"] == ([] if topology == "dag" else [0])


def test_graphs_of_the_host_are_chains() -> None:
    assert two_products(256, "host", in_a_row=False).capture().topology == "chain"
