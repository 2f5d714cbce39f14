"""Properties of the library's passes on any graph: values, rules of the IR, and their own claims."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from npu_ir import ExecutionError, Graph, Interpreter, NpuError, extract_ir
from npu_ir.core.structure import flatten
from npu_ir.interpreter.random_data import random_call, random_weights
from npu_passes import EXACT, Numerics, Pass, PassManager, passes_of, within
from npu_passes.library import PASSES
from npu_passes.manager.checked_mode import ObservedRun, find_first_difference, find_wrong_origin
from npu_passes.manager.rounds import run_once
from tests.support import random_programs
from tests.support.random_models import models
from tests.support.tiers import examples

MINIMAL = ("canonicalize", "elim-identity", "cse", "dead-code")
ALL = sorted((item() for item in PASSES), key=lambda item: item.name)
UNCHANGING = [item for item in ALL if item.name in MINIMAL]

slow = examples(12, suppress_health_check=list(HealthCheck))


def results(graph: Graph, sizes: dict[str, int] | None = None, seen: ObservedRun | None = None) -> Any:
    """Return what a graph computes on random data, and which of that shares memory with what."""
    weights = random_weights(graph, seed=1)
    args, kwargs = random_call(graph, seed=2, sizes=sizes)
    torch.manual_seed(3)
    observe = None if seen is None else seen.observe
    leaves, updates = Interpreter(graph, weights, observe=observe).run_flat(args, kwargs, observe=observe)
    outside = [*flatten((args, kwargs))[0], *weights.values()]
    outside += [value.argument.data for value in graph.constants.values() if value.argument]
    named = {f"result {index}": leaf for index, leaf in enumerate(leaves)}
    return {**named, **updates}, shared_memory(leaves, outside)


def results_or_nothing(
    graph: Graph, sizes: dict[str, int] | None = None, seen: ObservedRun | None = None
) -> Any:
    """Like `results`; an example that PyTorch cannot run is none."""
    try:
        return results(graph, sizes, seen)
    except ExecutionError:
        assume(False)
        raise


def shared_memory(leaves: list[Any], outside: list[Any]) -> set[tuple[int, int]]:
    """Return pairs of results that share memory; -1 stands for anything from outside."""
    memory = [_memory(leaf) for leaf in leaves]
    pairs = {
        (a, b)
        for a, one in enumerate(memory)
        for b, two in enumerate(memory)
        if a < b and one == two is not None
    }
    from_outside = {_memory(item) for item in outside} - {None}
    return pairs | {(-1, index) for index, one in enumerate(memory) if one in from_outside}


def _memory(item: Any) -> int | None:
    return (item.untyped_storage().data_ptr() or None) if isinstance(item, torch.Tensor) else None


def assert_keeps(item: Pass, graph: Graph, sizes: dict[str, int] | None = None) -> None:
    """Assert what every pass promises, on one graph."""
    seen = ObservedRun(graph)
    expected, shared = results_or_nothing(graph, sizes, seen)
    text = str(graph)
    work = graph.clone()
    work.track_origins()
    answer = run_once(item, work)
    assert answer is (str(work) != text), f"{item} says {answer}:\n{text}\n{work}"
    work.check()
    seen_now = ObservedRun(work)
    found, shared_now = results(work, sizes, seen_now)
    problem = find_first_difference([found], [expected], item.numerics)
    assert problem is None, f"{item}: {problem}\n{text}\n{work}"
    problem = find_wrong_origin(seen, seen_now, item.numerics)
    assert problem is None, f"{item}: {problem}\n{text}\n{work}"
    assert shared_now <= shared, f"{item}: results share memory\n{text}\n{work}"
    if item.is_idempotent:
        assert not run_once(item, work), f"{item} changes it again:\n{text}\n{work}"


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.name)
@given(graph=models())
@slow
def test_a_pass_keeps_what_a_graph_computes(item: Pass, graph: Graph) -> None:
    assert_keeps(item, graph)


@pytest.mark.parametrize("item", UNCHANGING, ids=lambda item: item.name)
@given(graph=models(is_open=True, most_steps=8), size=st.sampled_from([2, 3, 7]))
@slow
def test_a_pass_keeps_what_a_graph_of_open_sizes_computes(item: Pass, graph: Graph, size: int) -> None:
    assert_keeps(item, graph, {"s0": size})


@pytest.mark.parametrize("pipeline", ["minimal", "default"])
@given(graph=models(most_steps=20))
@slow
def test_a_pipeline_keeps_what_a_graph_computes_and_a_second_run_changes_nothing(
    pipeline: str, graph: Graph
) -> None:
    manager = PassManager(passes_of(pipeline))
    expected, shared = results_or_nothing(graph)

    result = manager.run(graph)

    found, shared_now = results(result.graph)
    assert find_first_difference([found], [expected], _loosest(manager.passes)) is None, (
        f"{graph}\n{result.graph}"
    )
    assert shared_now <= shared, f"{graph}\n{result.graph}"
    assert result.converged
    assert str(manager.run(result.graph).graph) == str(result.graph)


@given(names=random_programs.programs, rows=st.integers(2, 5))
@examples(6, suppress_health_check=list(HealthCheck))
def test_the_minimal_pipeline_keeps_programs_with_branches_and_loops(names: list[str], rows: int) -> None:
    program = random_programs.Program(names)
    try:
        graph = extract_ir(
            program, random_programs.inputs(4, 3), dynamic_shapes=random_programs.DYNAMIC_SHAPES["rows"]
        )
        expected = Interpreter(graph).run(*random_programs.inputs(rows, 3))
    except NpuError:  # PyTorch does not export it, or the program takes no such sizes
        assume(False)
        raise

    found = Interpreter(PassManager.of_pipeline("minimal").run(graph).graph).run(
        *random_programs.inputs(rows, 3)
    )

    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]


def _loosest(passes: tuple[Pass, ...]) -> Numerics:
    """Return what holds behind several passes, each of which may have been applied several times."""
    rtol = sum(item.numerics.rtol for item in passes)
    return within(4 * rtol) if rtol else EXACT
