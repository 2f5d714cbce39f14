"""Every model of the corpus, captured once, gives the same answer through every runner as in eager mode."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import Graph, GraphError, convert_exported_program, execute_ir, extract_ir
from npu_ir.core.node import external_names
from npu_ir.core.structure import unflatten
from npu_passes import PassManager
from npu_runtime import IRExecutor, to_exported_program, to_torch
from npu_runtime.planned import PlannedProgram, plan
from tests.support.corpus import journey
from tests.support.corpus.case import Case, Function
from tests.support.corpus.comparison import assert_same
from tests.support.corpus.observation import changed, copies, input_tensors, tensors_of
from tests.support.corpus.tables import OPERATOR_TABLES, all_cases, cases_of
from tests.support.same_program import described
from tests.support.tiers import thin

CASES = all_cases()
ROUNDING = 1e-4  # of pipelines and kernels that are chosen for speed


@dataclass(frozen=True, slots=True)
class Captured:
    """A model of the corpus, what eager mode did with it, and its graph."""

    case: Case
    expected: journey.Eager
    graph: Graph
    folder: Path

    def check(self, *graphs: Graph, execute: journey.Execute = execute_ir) -> None:
        """Fail unless each graph, run by ``execute``, gives what eager mode gave."""
        journey.check_execution(self.case, list(graphs), self.expected, execute)


def run_interpreter(model: Captured) -> None:
    loaded = journey.check_graph(model.case, model.graph, model.folder)

    model.check(model.graph, model.graph, loaded)


def capture_without_weights(model: Captured) -> None:
    bare = journey.capture_without_weights(model.case)

    if not model.case.unregistered:
        assert journey.text_without_data(bare) == journey.text_without_data(model.graph)
    model.check(journey.check_graph(model.case, bare, model.folder))


def capture_fake_model(model: Captured) -> None:
    model.check(journey.capture_of_fakes(model.case))


def run_passes(model: Captured) -> None:
    model.check(PassManager.of_pipeline("minimal").run(model.graph.clone()).graph)


def run_executor(model: Captured) -> None:
    model.check(model.graph, execute=execute_compiled)


def execute_compiled(
    graph: Graph,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    weights: Mapping[str, torch.Tensor],
    constants: Mapping[str, torch.Tensor],
    return_mutations: bool,
) -> Any:
    """Run a graph as `npu_ir.execute_ir` does, compiled, and once more node by node: both must agree."""
    assert return_mutations
    executor = IRExecutor(graph, weights, constants=constants, passes=None)
    random_state = torch.get_rng_state()
    leaves, mutations = executor.run_flat(args, kwargs)
    executor.reset()
    after = torch.get_rng_state()
    torch.set_rng_state(random_state)
    run = executor.run(args, kwargs)
    assert torch.equal(torch.get_rng_state(), after)
    results = unflatten(graph.results[0], leaves)
    assert_same(run.results, results, "the result node by node")
    assert_same(dict(run.mutations), mutations, "what is updated node by node")
    return results, mutations


def run_fastest_executor(model: Captured) -> None:
    case = dataclasses.replace(model.case, tolerance=max(model.case.tolerance, ROUNDING))
    journey.check_execution(case, [model.graph], model.expected, execute_fastest)


def execute_fastest(graph: Graph, args: Any, kwargs: Any, *, return_mutations: bool, **held: Any) -> Any:
    """Run a graph as `npu_ir.execute_ir` does, by an executor that is told nothing, and may round."""
    assert return_mutations
    leaves, mutations = IRExecutor(graph, **held).run_flat(args, kwargs)
    return unflatten(graph.results[0], leaves), mutations


def run_saved_executor(model: Captured) -> None:
    """Run an executor that was saved and loaded; its results are to be those of the saved one, to the bit."""
    path = model.folder / "executor.npu"

    def execute(graph: Graph, args: Any, kwargs: Any, *, return_mutations: bool, **held: Any) -> Any:
        assert return_mutations
        executor = IRExecutor(graph, **held, max_fixed_sizes=0)  # as loaded ones are
        executor.save(path)
        loaded = IRExecutor.load(path)
        random_state = torch.get_rng_state()
        given = executor.run_flat(args, kwargs)
        torch.set_rng_state(random_state)
        leaves, mutations = loaded.run_flat(args, kwargs)
        assert_same(leaves, given[0], "what the loaded executor returns")
        assert_same(mutations, given[1], "what the loaded executor updates")
        return unflatten(graph.results[0], leaves), mutations

    case = dataclasses.replace(model.case, tolerance=max(model.case.tolerance, ROUNDING))
    journey.check_execution(case, [model.graph], model.expected, execute)


def run_planned_program(model: Captured) -> None:
    if model.graph.symbols:
        with pytest.raises(GraphError, match="memory is planned for fixed sizes only"):
            plan(model.graph)
    if not any(name.startswith("u") for name in model.graph.symbols):  # sizes that depend on data
        model.check(model.graph, execute=execute_planned)


def execute_planned(
    graph: Graph,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    weights: Mapping[str, torch.Tensor],
    constants: Mapping[str, torch.Tensor],
    return_mutations: bool,
) -> Any:
    """Run a graph as `npu_ir.execute_ir` does, twice over planned memory: both runs must agree."""
    assert return_mutations
    given = journey.Call(tuple(args), dict(kwargs))
    graph = journey.specialized_for(graph, given) if graph.symbols else graph
    copied: dict[int, torch.Tensor] = {}
    held = [
        {name: copied.setdefault(id(tensor), _copy(tensor)) for name, tensor in source.items()}
        for source in (weights, constants)
    ]
    program = PlannedProgram(plan(graph), held[0], constants=held[1])
    before = {value: program.tensors[value.name] for value in graph.updates}
    contents = {value: item.clone() for value, item in before.items()}
    random_state = torch.get_rng_state()
    runs = []
    for _ in range(2):
        torch.set_rng_state(random_state)
        for value, item in before.items():
            item.copy_(contents[value])
        leaves = program.run(*program.load(given.args, given.kwargs))
        results = [item.clone() if isinstance(item, torch.Tensor) else item for item in leaves]
        mutations = {name: item.clone() for value, item in before.items() for name in external_names(value)}
        runs.append((unflatten(graph.results[0], results), mutations))
    assert_same(runs[1], runs[0], "the second run")
    return runs[0]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone() if isinstance(tensor, torch.Tensor) else tensor


# The range of a symbol implies the constraint: PyTorch, which sees both, keeps one.
IMPLIED = ("convolution_of_any_size",)


def run_as_torch(model: Captured) -> None:
    case, graph, twin = model.case, model.graph, model.case.make_model()
    before = copies(tensors_of(twin))
    weights = twin.state_dict()
    constants = {name: tensor for name, tensor in twin.named_buffers() if name not in weights}

    program = to_exported_program(graph, weights, constants=constants)

    back, original = described(convert_exported_program(program, name=graph.name)), described(graph)
    if case.id in IMPLIED:
        assert original.pop("constraints") != back.pop("constraints")
    assert back == original
    for number, given in enumerate(case.make_calls()):
        eager = model.expected if number == 0 else journey.run_eagerly(case, given=given)
        module = to_torch(graph, weights, constants=constants)
        taken = case.make_calls()[number]
        torch.manual_seed(journey.RUN_SEED)
        with torch.no_grad():
            result = module(*taken.args, **taken.kwargs)
        assert_same(result, eager.result, "the result", case.tolerance)
        assert_same(input_tensors(taken), eager.inputs, "the inputs", case.tolerance)
        state = {**module.state_dict(), **dict(module.named_buffers(remove_duplicate=False))}
        known = {name: tensor.detach() for name, tensor in eager.state.items() if name in state}
        assert {name for name in eager.changes if isinstance(name, str)} <= known.keys()
        assert_same({name: state[name] for name in known}, known, "the state", case.tolerance)
    assert not changed(before, tensors_of(twin)), "the module changed the weights it was given"


RUNNERS: dict[str, Callable[[Captured], None]] = {
    "the interpreter": run_interpreter,
    "the executor": run_executor,
    "a planned program": run_planned_program,
    "a program of PyTorch": run_as_torch,
    "the fastest executor": run_fastest_executor,
    "a saved executor": run_saved_executor,
    "the minimal pipeline": run_passes,
    "capture of the model without weights": capture_without_weights,
    "capture of a model of FakeTensors": capture_fake_model,
}
USUAL, OTHERS = list(RUNNERS)[:3], list(RUNNERS)[3:]
# PyTorch writes the source of a module with the names of its weights as they are; and returns tuples for
# sizes.
REFUSED_BY_TORCH = ("oddnames", "returns_shape")
# PyTorch cannot build the others of FakeTensors, or it would take too long to try all.
UNBUILT = (
    "transformer",
    "bfloat16_convolution",
    "double_model",
    "half_model",
    "channels_last_model",
    "orthogonal",
)


def takes(runner: str, case: Case) -> bool:
    if runner == "a program of PyTorch":
        return case.id not in REFUSED_BY_TORCH
    return runner != "capture of a model of FakeTensors" or not (case.id in UNBUILT or case.unregistered)


def check(case: Case, runners: Iterable[str], folder: Path) -> None:
    """Capture a model, and run its graph by each of these runners; fail with the names of those that fail."""
    expected = journey.run_eagerly(case)
    model = Captured(case, expected, journey.capture_with_weights(case, expected), folder)
    failures = []
    for runner in runners:
        if takes(runner, case):
            try:
                RUNNERS[runner](model)
            except Exception as error:  # noqa: BLE001 - each runner is tried, and reported
                failures.append((runner, error))
    if failures:
        text = "\n".join(f"{runner}: {type(error).__name__}: {error}" for runner, error in failures)
        raise AssertionError(f"{text}\n\n{model.graph}") from failures[0][1]


def usual_cases() -> list[Any]:
    """Return all models as parameters: 2 of 5 run always; of those that differ in operators only, 1 of 7."""
    of_operators = {case.id for case in cases_of(OPERATOR_TABLES)}
    others = [case for case in CASES if case.id not in of_operators]
    same_capture = [case for case in CASES if case.id in of_operators]
    return [
        *thin(others, len(others) * 2 // 5, lambda case: case.id),
        *thin(same_capture, len(same_capture) // 7, lambda case: case.id),
    ]


# All that run regions, write, or return numbers become programs of PyTorch in every run.
WORDS = ("cond", "while", "scan", "flex", "writing", "item")


@pytest.mark.parametrize("case", usual_cases())
def test_a_model_gives_what_eager_gives_through_the_usual_runners(case: Case, tmp_path: Path) -> None:
    index = CASES.index(case)
    runners = {*USUAL, OTHERS[index % len(OTHERS)]}
    if any(word in case.id for word in WORDS):
        runners.add("a program of PyTorch")
    if case.unregistered:
        runners.add("capture of the model without weights")

    check(case, [runner for runner in RUNNERS if runner in runners], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_a_model_gives_what_eager_gives_through_every_runner(case: Case, tmp_path: Path) -> None:
    check(case, RUNNERS, tmp_path)


def test_keywords_and_keys_may_come_in_another_order() -> None:
    model = Function(lambda tree, *, a, b: tree["x"] - tree["y"] * a / b)
    given = [torch.rand(2) for _ in range(4)]
    graph = extract_ir(model, ({"x": given[0], "y": given[1]},), {"a": given[2], "b": given[3]})

    result = execute_ir(graph, ({"y": given[1], "x": given[0]},), {"b": given[3], "a": given[2]})

    assert torch.equal(result, model({"x": given[0], "y": given[1]}, a=given[2], b=given[3]))


def test_a_weight_may_be_given_by_any_of_its_names() -> None:
    layer = nn.Linear(2, 2)
    graph = extract_ir(nn.Sequential(layer, layer), (torch.rand(1, 2),))
    state, x = layer.state_dict(), torch.rand(1, 2)

    first = execute_ir(graph, (x,), weights={f"0.{key}": tensor for key, tensor in state.items()})
    second = execute_ir(graph, (x,), weights={f"1.{key}": tensor for key, tensor in state.items()})

    assert torch.equal(first, second)


# What the corpus covers, by kind of operator.
EXPECTED = {
    "convolution": "conv1d conv2d conv3d conv_transpose2d convolution",
    "linear": "linear addmm mm bmm matmul einsum",
    "activation": "relu gelu silu sigmoid tanh leaky_relu hardswish",
    "normalization": "batch_norm layer_norm group_norm instance_norm",
    "pooling": "max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d",
    "elementwise": "add sub mul div pow sqrt rsqrt neg abs exp log clamp",
    "shape": "view reshape permute transpose flatten squeeze unsqueeze expand repeat",
    "concatenation": "cat split chunk stack",
    "reduction": "mean sum max min amax amin",
    "attention": "softmax log_softmax scaled_dot_product_attention",
    "indexing": "embedding select slice index gather",
    "comparison": "eq ne lt gt where",
    "casts": "to _to_copy contiguous clone",
    "recurrent": "gru lstm",
    "others": "dropout sort topk lerp addcmul",
}


def test_the_corpus_covers_what_it_should() -> None:
    counts = Counter(case.id for case in CASES)
    covered = {case.op.split(".")[1] for case in CASES if case.op}

    assert len(CASES) > 600
    assert [name for name, count in counts.items() if count > 1] == []
    assert [case.id for case in CASES if bool(case.tolerance) != bool(case.reason)] == []
    missing = {kind: set(ops.split()) - covered for kind, ops in EXPECTED.items()}
    assert not any(missing.values()), missing
