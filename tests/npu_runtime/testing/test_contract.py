"""The contract suite finds each broken promise, and says which it was."""

import unittest
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from npu_ir import Graph, extract_ir, parse_ir
from npu_ir.backend import Temporary
from npu_runtime import Backend, BackendError, BackendOp
from npu_runtime.testing import BackendContract, check_backend, lowering_problem, zoo
from npu_runtime.testing.zoo import odd_graphs
from tests.support.backends import broken_backends as broken
from tests.support.backends.broken_backends import Sound, inputs_as, ops_of, outputs_as, running

NAMES = (
    "aten.relu.default on f32[33]",
    "aten.add.Tensor on f32[7, 5]@[1, 7], f32[7, 5]@[1, 7]",
    "aten.clone.default on f32[7, 5]@[1, 7]",
    "aten.transpose.int on f32[5, 7] {'dim0': 0, 'dim1': 1}",
    "aten.full.default on nothing {'size': [2, 3], 'fill_value': 1.5}",
    "chain",
    "a value that is read twice",
)
GRAPHS = {name: graph for name, graph in zoo().items() if name in NAMES}


class ContractOfFewGraphs(BackendContract):
    operators = ()
    random_graphs = 0

    def graphs(self) -> Mapping[str, Graph]:
        return GRAPHS


def failures(backend: Backend) -> dict[str, str]:
    """Return what each test that fails says."""
    found = {}
    for name, _ in BackendContract.promises():
        contract = type("Contract", (ContractOfFewGraphs,), {"backend": backend})
        try:
            getattr(contract(), name)()
        except BackendError as error:
            found[name] = str(error)
    return found


class TestSoundBackend(BackendContract):
    backend = Sound()
    operators = ("abs", "cat", "mm", "sort")


class TestBackendThatBindsConstants(BackendContract):
    backend = broken.Binds()
    operators = ("add", "mul")


def contract_of(backend: type[Backend], operators: tuple[str, ...] = ("neg", "add")) -> BackendContract:
    return type("Contract", (ContractOfFewGraphs,), {"backend": backend(), "operators": operators})()


def test_a_wrong_result_on_a_sample_is_told_with_op_sample_and_fix() -> None:
    contract = contract_of(outputs_as(lambda y: y + 1))

    with pytest.raises(BackendError) as info:
        contract.test_samples_of_operators_give_the_results_of_the_interpreter()

    first, second, *_ = str(info.value).splitlines()
    assert first == "2 of 2 parts fail:"
    assert second.startswith("  aten.neg.default of neg (float32, sample #")
    assert "on f32[20, 20]: %neg: 400 of 400 elements differ" in second
    assert "at: backend 'sound'\n  fix: correct the kernel, have supports() refuse" in str(info.value)


def test_a_wrong_result_on_a_random_graph_is_told_with_its_seed() -> None:
    contract = type("Contract", (BackendContract,), {"backend": outputs_as(lambda y: y + 1)()})()

    with pytest.raises(BackendError, match=r"parts fail:\n  aten\..* of random graph \d+"):
        contract.test_random_graphs_give_the_results_of_the_interpreter()


def test_a_backend_that_runs_none_of_the_samples_is_skipped() -> None:
    contract = contract_of(type("Idle", (Sound,), {"supports": lambda self, node: "it is tired"}))

    with pytest.raises(unittest.SkipTest, match="sound supports no node of these graphs"):
        contract.test_samples_of_operators_give_the_results_of_the_interpreter()


def test_a_backend_may_be_given_by_name() -> None:
    contract = type("Contract", (BackendContract,), {"backend": "aten"})

    assert isinstance(contract.backend, Backend)
    with pytest.raises(BackendError, match="there is no backend 'atem' .did you mean 'aten'"):
        type("Contract", (BackendContract,), {"backend": "atem"})


# The backends that break each promise, and what its test says, which alone fails.
BROKEN: dict[str, list[tuple[type[Sound], str]]] = {
    "the_name_is_in_kebab_case": [(broken.Shouts, "the name is 'My_Backend'")],
    "the_devices_are_the_same_each_time": [(broken.ForgetsItsDevice, r"\], then \[device")],
    "an_absence_is_explained": [(broken.SaysNotWhy, r"absence\(\) returns ''")],
    "supports_answers_for_any_node": [
        (broken.Stumbles, "failed: KeyError: 'acme.unknown.default'"),
        (broken.RefusesInSilence, r"returns ' '"),
        (broken.AnswersTrue, "returns True"),
    ],
    "supports_depends_on_nothing_but_the_node": [
        (broken.NamesNodes, "in another graph '%other_transpose is"),
        (broken.NamesNodesOfItsOwn, "in another graph 'other_transpose is too hard'"),
        (broken.LooksAround, "returns 'it is not alone', 'it is not"),
        (broken.CountsQuestions, r"returns 'question \d+', 'question"),
    ],
    "what_competes_has_its_name_and_a_known_pipeline": [
        (broken.CompetesAsAnother,
            r"by_cost\(\) returns .*\n  at: by_cost\n  fix: a backend with the name 'sound', or"),
        (broken.NeedsUnknownPasses,
            r"pipeline\(cpu\) returns 'magic'\n  at: pipeline\n  fix: one of cpu, default"),
        (broken.NeedsUnknownPassesToTrain, r"training_pipeline\(cpu\) returns 'magic'\n  at: training_pipe"),
    ],
    "lowering_and_preparing_leave_the_graph_as_it_is": [
        (broken.Renames, "edited the graph"),
        (broken.TakesOps, "edited the graph or the ops"),
    ],
    "the_ops_cover_the_graph": [(ops_of(lambda ops: ops[:-1]), "no op computes node")],
    "allocate_returns_memory_of_the_type": [
        (broken.AllocatesInRows, r"has strides \[5, 1\], the graph states"),
        (broken.AllocatesOnce, "returns the same memory twice"),
    ],
    "zeros_are_computed_with": [
        (inputs_as(lambda x: torch.where(x == 0, 1.0, x)), "inputs that are zeros of both signs: ")
    ],
    "infinities_are_computed_with": [
        (inputs_as(lambda x: x.clamp(-1e30, 1e30)), "inputs that are infinities: ")
    ],
    "nan_is_computed_with": [(inputs_as(lambda x: torch.where(x.isnan(), 0.0, x)), "inputs that are NaN: ")],
    "tensors_may_start_anywhere_in_their_storage": [
        (inputs_as(lambda x: x.as_strided(x.shape, x.stride(), 0)), "one element behind their storage: ")
    ],
    "one_tensor_may_be_passed_for_several": [
        (running(broken.wants_distinct_tensors), "a tensor is bound twice")
    ],
    "parameters_may_be_passed": [(running(broken.refuses_parameters), "BackendError: a tensor requires")],
    "inputs_stay_as_they_are": [(running(broken.writes_before_inputs), "writes into its inputs, or around")],
    "a_later_call_does_not_write_into_results": [(running(broken.keeps_its_outputs), "a later call changed")],
    "what_is_written_into_results_has_no_influence": [
        (running(broken.remembers_its_inputs), "a call after something was written into results: ")
    ],
    "results_share_memory_only_where_ops_are_views": [
        (running(broken.returns_an_input),
            "output 0 shares memory with input 0, and an op between is not a view")
    ],
    "the_same_inputs_give_the_same_bits": [(running(broken.drifts), "other bits in another run")],
    "programs_of_one_graph_compute_the_same": [(broken.PreparesOtherwise, "give different bits")],
    "programs_have_nothing_in_common": [
        (broken.SharesScratch, "after programs of other graphs, and of the same")
    ],
    "bound_constants_are_read_at_each_run": [(broken.BindsCopies, "after new contents of bound constants: ")],
    "quick_runs_return_what_runs_return": [(broken.RunsIntoOneMemory, "a quick run, after others: ")],
    "many_threads_may_run_a_program_at_once": [(running(broken.has_one_arena), "4 threads at once: ")],
    "a_program_works_after_a_failed_run": [
        (running(broken.stays_broken), "the device is lost"),
        (running(broken.takes_any_number), "run takes 0 inputs, the graph"),
    ],
    "a_capture_has_results_and_memory_of_its_own": [
        (broken.CapturesTheCaller, "capture ties the program to the memory of the caller")
    ],
    "replay_computes_in_fixed_memory": [
        (broken.ReplaysNothing, "replay after new inputs were written: "),
        (broken.Moves, "replay moved an input or output"),
    ],
    "replay_leaves_its_inputs_as_they_are": [(broken.ReplaysInPlace, "replay writes into the inputs")],
    "captures_and_runs_have_nothing_in_common": [
        (broken.CapturesOnce, "a capture, after a run and the replay")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("test", "backend", "text"), [(test, *row) for test, rows in BROKEN.items() for row in rows]
)
def test_a_broken_promise_fails_the_one_test_of_it(test: str, backend: type[Backend], text: str) -> None:
    found = failures(backend())

    assert list(found) == [f"test_{test}"]
    with pytest.raises(BackendError, match=text):
        raise BackendError(*found.values())


@pytest.mark.parametrize(("change", "text"), [
    pytest.param(lambda y: y + 1, "elements differ by more than", id="values"),
    pytest.param(lambda y: y.double(), r"is f64\[33\], the graph states f32\[33\]", id="dtype"),
    pytest.param(lambda y: y[:1], r"is f32\[1\], the graph states f32\[33\]", id="shape"),
    pytest.param(lambda y: torch.cat([y, y])[::2] if y.dim() == 1 else y, "elements differ|has strides",
        id="strides"),
    pytest.param(lambda y: y.to("meta"), "is on meta, not on cpu", id="device"),
    pytest.param(lambda y: None, r"is None, the graph states f32\[33\]", id="nothing"),
])  # fmt: skip
def test_wrong_results_are_told_by_what_is_wrong(change: Any, text: str) -> None:
    contract = type("Contract", (ContractOfFewGraphs,), {"backend": outputs_as(change)()})

    with pytest.raises(BackendError, match=f"inputs that are ordinary numbers: %relu:? ?.*({text})"):
        contract().test_results_are_those_of_the_interpreter()


def test_another_number_of_results_is_told() -> None:
    backend = running(lambda self, program, inputs: broken.sound(self, program, inputs) * 2)()

    with pytest.raises(BackendError, match="2 outputs, the graph has 1"):
        check_backend(backend, GRAPHS)


def test_devices_are_devices() -> None:
    found = failures(broken.HasNamesForDevices())

    assert r"devices() returns ['cpu']" in found["test_the_devices_are_the_same_each_time"]


@pytest.mark.parametrize("method", ["lower", "prepare", "run"])
def test_a_method_that_fails_is_named_with_the_graph(method: str) -> None:
    def fail(self: Any, *args: Any) -> Any:
        raise ValueError("out of luck")

    backend = type("Fails", (Sound,), {method: fail})()

    with pytest.raises(
        BackendError, match=f"{method} failed: ValueError: out of luck\n  at: aten.add.Tensor on"
    ) as info:
        check_backend(backend)

    assert isinstance(info.value.__cause__, ValueError)


def test_a_backend_that_takes_nothing_is_told_to_bring_graphs() -> None:
    backend = type("Idle", (Sound,), {"supports": lambda self, node: "it is tired"})()

    with pytest.raises(
        BackendError, match="it supports no node .*\n  at: supports\n  fix: give some: override graphs"
    ):
        check_backend(backend)


@pytest.mark.smoke
def test_a_backend_without_a_device_is_skipped_with_its_reason() -> None:
    without: dict[str, Any] = {"devices": lambda self: [], "absence": lambda self: "no driver"}
    contract = type("Contract", (BackendContract,), {"backend": type("Absent", (Sound,), without)()})

    with pytest.raises(unittest.SkipTest, match="sound cannot run here: no driver"):
        contract().test_results_are_those_of_the_interpreter()
    contract().test_supports_answers_for_any_node()


def test_nodes_with_regions_and_open_sizes_are_asked_about_elsewhere_too() -> None:
    odd = {graph.name: graph for graph in odd_graphs()}
    graphs = {**GRAPHS, "open": odd["open sizes"], "regions": odd["regions"]}

    assert check_backend(Sound(), graphs) == len(zoo()) + len({"a region"})


def test_the_parts_of_a_model_that_the_backend_takes_are_tested_with_weights_as_inputs() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 2), torch.nn.ReLU()
    )
    graph = extract_ir(model, (torch.randn(5, 3),))

    class NoSigmoid(Sound):
        def supports(self, node: Any) -> str | None:
            return "no kernel" if node.op_type == "aten.sigmoid.default" else super().supports(node)

    class Contract(BackendContract):
        backend = NoSigmoid()

        def graphs(self) -> Mapping[str, Graph]:
            return {"mlp": graph}

    parts = [
        (name, [node.name for node in part.nodes], len(part.inputs)) for name, part in Contract().parts()
    ]

    assert parts == [("mlp: linear", ["linear"], 3), ("mlp: linear_1", ["linear_1", "relu"], 3)]
    assert check_backend(NoSigmoid(), {"mlp": graph}) > 2


class SplitsLinear(Sound):
    """Makes two ops of a linear layer with a bias."""

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        ops = []
        for op in super().lower(graph):
            if op.kind == "aten.linear.default" and len(op.inputs) == 3:
                between = Temporary("product", op.nodes[0].outputs[0].tensor_type)
                gemm = replace(op, kind="gemm", inputs=op.inputs[:2], outputs=(between,))
                ops += [gemm, replace(op, kind="bias", inputs=(between, op.inputs[2]))]
            else:
                ops.append(op)
        return ops


class FusesAll(Sound):
    """Makes one op of a whole graph, and no value in between."""

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return [BackendOp("all", graph.inputs, tuple(dict.fromkeys(graph.outputs)), graph.nodes)]


@pytest.mark.parametrize("backend", [SplitsLinear(), FusesAll()], ids=lambda item: type(item).__name__)
def test_a_node_may_become_several_ops_and_several_nodes_one(backend: Backend) -> None:
    assert failures(backend) == {}


GRAPH = parse_ir("""
graph g {
  input %x: f32[3]
  %neg: f32[3] = aten.neg.default(self=%x)
  %relu: f32[3] = aten.relu.default(self=%neg)
  return %relu
}
""")
NEG, RELU = GRAPH.nodes
FIRST = BackendOp("neg", NEG.inputs, NEG.outputs, (NEG,))
SECOND = BackendOp("relu", RELU.inputs, RELU.outputs, (RELU,))
OTHER = Temporary("t", GRAPH.inputs[0].tensor_type)


@pytest.mark.parametrize(("ops", "problem"), [
    pytest.param([FIRST, SECOND], None, id="right"),
    pytest.param(iter([FIRST, SECOND]), "lower returns a sequence of BackendOp, not list_iterator",
        id="iterator"),
    pytest.param([FIRST], "no op computes node 'relu'", id="a node is left out"),
    pytest.param([FIRST, replace(SECOND, outputs=())], "no op makes the result %relu",
        id="a result is left out"),
    pytest.param([SECOND, FIRST], "op 0 (relu) reads %neg before anything makes it", id="order"),
    pytest.param([FIRST, FIRST, SECOND], "op 1 (neg) makes %neg, which is there already",
        id="made twice"),
    pytest.param([FIRST, replace(SECOND, inputs=(OTHER,))], "op 1 (relu) reads %t before anything",
        id="unmade temporary"),
    pytest.param([replace(FIRST, outputs=(*NEG.outputs, *RELU.outputs))],
        "op 0 (neg) makes %relu, which none of its nodes does", id="a value of another node"),
    pytest.param([replace(FIRST, nodes=())], "op 0 (neg) stands for no node", id="no node"),
    pytest.param([replace(FIRST, nodes=GRAPH.clone().nodes)], "which is not a node of the graph",
        id="a node of another graph"),
    pytest.param([replace(FIRST, kind="")], "has no kind", id="no kind"),
    pytest.param([replace(FIRST, attrs="{}")], "has attrs of type str: it is bytes", id="attrs"),
    pytest.param([replace(FIRST, inputs=["x"])], "has inputs of type list: it is tuple", id="a list"),
    pytest.param([replace(FIRST, inputs=("x",))], "reads or makes 'x', which is neither", id="a name"),
    pytest.param([replace(FIRST, outputs=(Temporary("t", None),))], "has a temporary 't' of type None",
        id="temporary"),
    pytest.param(["neg"], "op 0 (neg) is not a BackendOp", id="no op"),
])  # fmt: skip
def test_ops_that_break_a_rule_are_told(ops: Any, problem: str | None) -> None:
    found = lowering_problem(GRAPH, ops)

    assert found is None if problem is None else problem in str(found)
