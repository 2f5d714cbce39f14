"""On any graph, the executor returns the bits of the interpreter, in memory of its own or not."""

from typing import Any

import torch
from hypothesis import HealthCheck, event, given, reject
from hypothesis import strategies as st

from npu_ir import ExecutionError, ExportError, Graph, Interpreter, extract_ir
from npu_ir.core.structure import flatten
from npu_ir.interpreter.random_data import random_call, random_weights
from npu_runtime import IRExecutor
from tests.support.corpus.comparison import assert_same
from tests.support.memory_puzzles import check, interpreted, memory, memory_puzzles
from tests.support.random_models import models
from tests.support.random_programs import DYNAMIC_SHAPES, Program, inputs, programs
from tests.support.tiers import examples

CHECKS = list(HealthCheck)
some = examples(25, suppress_health_check=CHECKS)
few = examples(8, suppress_health_check=CHECKS)


@some
@given(models())
def test_a_random_graph_gives_what_the_interpreter_gives(graph: Graph) -> None:
    check(graph)


@few
@given(models(is_open=True), st.integers(2, 5))
def test_a_random_graph_of_open_sizes_gives_what_the_interpreter_gives(graph: Graph, size: int) -> None:
    check(graph, {"s0": size})


@examples(50, suppress_health_check=CHECKS)
@given(memory_puzzles())
def test_views_and_ops_done_in_place_give_what_the_interpreter_gives(graph: Graph) -> None:
    check(graph)


def overwrite(item: Any) -> None:
    """Fill all the memory that a tensor lies in."""
    if memory(item) is not None:
        torch.empty(0, dtype=torch.uint8).set_(item.untyped_storage()).fill_(77)


@some
@given(memory_puzzles(), st.sampled_from([None, "default"]))
def test_a_caller_who_overwrites_all_results_changes_no_later_call(graph: Graph, passes: str | None) -> None:
    weights = random_weights(graph, seed=1)
    args, kwargs = random_call(graph, seed=2)
    outside = {memory(item) for item in [*flatten((args, kwargs))[0], *weights.values()]}
    constants = [value.argument.data.clone() for value in graph.constants.values() if value.argument]
    state = {key: item.clone() for key, item in weights.items()}
    interpreted(graph, state, args, kwargs)
    executor = IRExecutor(graph, weights, passes=passes)

    for call in range(4):
        expected, updates = interpreted(graph, state, args, kwargs)
        observe = (lambda node, outputs: None) if call % 2 else None
        leaves, mutations = executor.run_flat(args, kwargs, observe=observe)
        assert_same(leaves, expected, f"the result of call {call}", 1e-4 if passes else 0.0)
        assert_same(mutations, updates, f"what call {call} updates", 1e-4 if passes else 0.0)
        state.update({key: item.clone() for key, item in updates.items()})
        for item in [*leaves, *mutations.values()]:
            if memory(item) not in outside:
                overwrite(item)

    left = [value.argument.data for value in graph.constants.values() if value.argument]
    assert_same(left, constants, "the constants")


@few
@given(programs, st.sampled_from(sorted(DYNAMIC_SHAPES)))
def test_a_random_program_gives_what_eager_gives_at_other_sizes(steps: list[str], shapes: str) -> None:
    try:
        graph = extract_ir(Program(steps), inputs(6, 5, 4), dynamic_shapes=DYNAMIC_SHAPES[shapes])
        executor = IRExecutor(graph, passes=None)
    except ExportError:
        event("torch.export cannot capture it")
        reject()

    for sizes in ((6, 5, 4), (9, 7, 4), (7, 5, 4)):
        args = inputs(*sizes)
        try:
            expected = Interpreter(graph).run(*args)
        except ExecutionError as error:
            event(f"the graph was not made for it: {str(error)[:20]}")
            continue
        assert_same(executor(*args), expected, f"the result at {sizes}")
        assert_same(executor.run(args).results, expected, f"the result at {sizes}, node by node")
