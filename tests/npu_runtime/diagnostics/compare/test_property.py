"""Of random models no pipeline gives cause for a false alarm, and an error in any node is named there."""

import itertools
import random
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from npu_ir import Graph, NpuError, TensorType, Value, extract_ir, parse_ir
from npu_passes import PassManager, passes_of
from npu_runtime import IRExecutor
from npu_runtime.cpu import pack_convolution
from npu_runtime.diagnostics.compare import Comparison, compare
from tests.npu_runtime.diagnostics.compare.cases import random_model
from tests.support import random_programs
from tests.support.tiers import examples, thin

PIPELINES = {name: ",".join(map(str, passes_of(name))) for name in ("minimal", "default", "fuse", "cpu")}
PIPELINES["taken apart"] = (
    "canonicalize,conv-bn-folding,decompose,cse,channels-last,pack-convolution,dead-code"
)
SEEDS = range(5)
CASES = list(itertools.product(SEEDS, PIPELINES))


@cache
def captured(seed: int) -> tuple[nn.Module, Graph, Tensor]:
    model, x = random_model(seed)
    return model, extract_ir(model, (x,)), x


@pytest.fixture(autouse=True)
def eager_to_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the passes for the CPU rewrite whatever they can, however small it is."""
    monkeypatch.setattr("npu_runtime.cpu.channels_last.seconds_saved", lambda item: 1.0)
    monkeypatch.setattr(pack_convolution, "packing_pays", lambda item: True)


def aligned(found: Comparison) -> int:
    return len({row.name for row in found.values})


@pytest.mark.parametrize("case", thin(CASES, 8, str))
def test_what_passes_make_of_a_model_agrees_with_it(case: tuple[int, str]) -> None:
    seed, passes = case[0], PIPELINES[case[1]]
    model, graph, x = captured(seed)
    executor = IRExecutor(graph, model.state_dict(), passes=passes)

    found = compare(graph, executor, (x,), weights=model.state_dict())

    assert found.ok, str(found)
    assert aligned(found) >= 0.75 * found.values_a, str(found)


@pytest.mark.parametrize("seed", thin(SEEDS[:3], 1))
def test_text_of_what_passes_make_of_a_model_agrees_with_it(seed: int) -> None:
    model, graph, x = captured(seed)
    changed = PassManager(PIPELINES["cpu"]).run(graph).graph
    constants = {name: value.argument.data for name, value in changed.constants.items() if value.argument}
    text = parse_ir(str(changed), constants=constants)

    found = compare(graph, text, (x,), weights=model.state_dict())

    assert found.ok, str(found)


def with_error(graph: Graph, pick: random.Random) -> tuple[Graph, Value, Value]:
    """Return a graph copy with one node off by a hundredth, its output, and the input it replaces."""
    changed = graph.clone()
    outputs = [value for node in changed.body for value in node.outputs if value.use_count and value.origins]
    floats = [
        value
        for value in outputs
        if isinstance(value.type, TensorType) and value.type.dtype.is_floating_point
    ]
    right = pick.choice(floats)
    assert right.producer is not None
    options = {"types": right.type, "operands": ["self"], "after": right.producer}
    (wrong,) = changed.insert("aten.mul.Tensor", [right], {"other": 1.01}, **options).outputs  # type: ignore[arg-type]
    changed.replace_all_uses(right, wrong)
    assert wrong.producer is not None
    changed.set_input(wrong.producer, 0, right)
    return changed, right, wrong


@pytest.mark.parametrize("case", thin(CASES, 8, str))
def test_an_error_is_named_at_its_node(case: tuple[int, str]) -> None:
    seed, passes = case[0], PIPELINES[case[1]]
    model, graph, x = captured(seed)
    changed, right, wrong = with_error(PassManager(passes).run(graph).graph, random.Random(seed))

    first = compare(graph, changed, (x,), weights=model.state_dict()).first_divergence

    assert first is not None
    assert first.name in {origin.name for origin in right.origins}
    assert first.counterpart == wrong.name


def test_an_error_where_nothing_original_is_computed_is_named_behind_it() -> None:
    model, x = random_model(4)
    graph = extract_ir(model, (x,))
    changed = PassManager(PIPELINES["cpu"]).run(graph).graph
    packed = next(node for node in changed.body if node.op_type.startswith("mkldnn."))
    options = {"types": packed.inputs[0].type, "operands": ["self"], "before": packed}
    (wrong,) = changed.insert("aten.mul.Tensor", packed.inputs[:1], {"other": 1.01}, **options).outputs  # type: ignore[arg-type]
    changed.set_input(packed, 0, wrong)
    assert wrong.origins == ()

    first = compare(graph, changed, (x,), weights=model.state_dict()).first_divergence

    assert first is not None
    assert first.counterpart == packed.name


@given(names=random_programs.programs, rows=st.integers(2, 5))
@examples(5, suppress_health_check=list(HealthCheck))
def test_programs_with_branches_and_loops_agree_with_what_passes_make_of_them(
    names: list[str], rows: int
) -> None:
    program = random_programs.Program(names)
    inputs = random_programs.inputs(rows, 3)
    try:
        graph = extract_ir(
            program, random_programs.inputs(4, 3), dynamic_shapes=random_programs.DYNAMIC_SHAPES["rows"]
        )
        compare(graph, graph, inputs)
    except NpuError:  # PyTorch does not export it, or the program takes no such sizes
        assume(False)

    found = compare(graph, IRExecutor(graph, passes=PIPELINES["fuse"]), inputs)

    assert found.ok, str(found)
