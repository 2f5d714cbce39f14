"""A graph is lowered once: backends make ops of its partitions, which keep the rules, and all read them."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import Graph, extract_ir, parse_ir
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.backend import BackendOp
from npu_runtime import Backend, BackendError, compile_and_capture
from npu_runtime.backends.partition import extract_partition
from npu_runtime.backends.registry import named_backends
from npu_runtime.diagnostics.explain import explain, explain_graph
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.lowering.lowered_graph import LoweredGraph, lower
from npu_runtime.planned import PlannedProgram, plan
from npu_runtime.testing import BackendContract, zoo
from tests.support.backends.thrifty_backend import ThriftyBackend
from tests.support.backends.tiny_backend import TinyBackend, two_layers
from tests.support.corpus.case import Holding


def kinds(lowered: LoweredGraph) -> list[str]:
    return [item.op.kind for item in lowered.ops]


def test_on_aten_each_node_is_one_op() -> None:
    graph = two_layers()

    lowered = lower(graph, named_backends("aten"))

    assert kinds(lowered) == [node.op_type for node in graph.body]
    assert [item.op.nodes for item in lowered.ops] == [(node,) for node in graph.body]
    assert lowered.fallbacks == ()


@pytest.mark.smoke
def test_a_backend_lowers_what_it_takes_and_aten_the_rest() -> None:
    graph = two_layers()
    before = str(graph)

    lowered = lower(graph, named_backends(TinyBackend()))

    assert kinds(lowered) == ["Pack", "Gemm", "Relu", "aten.sigmoid.default", "Pack", "Gemm"]
    assert [item.backend for item in lowered.ops] == ["tiny"] * 3 + ["aten"] + ["tiny"] * 2
    (fallback,) = lowered.fallbacks
    assert fallback.op.kind == "aten.sigmoid.default"
    assert fallback.refusals == {"tiny": "it multiplies and rectifies"}
    assert [item.name for item in lowered.temporaries] == ["h.packed", "y.packed"]
    assert (lowered.count("Gemm"), lowered.count("aten.sigmoid.default"), lowered.count("Conv")) == (2, 1, 0)
    assert str(graph) == before


class Watched(TinyBackend):
    """Counts what it is asked to do, and may lower otherwise."""

    def __init__(self, change: Callable[[list[BackendOp]], Any] = list) -> None:
        self.change = change
        self.lowered: list[Any] = []
        self.prepared: list[Any] = []

    def lower(self, graph: Graph) -> Any:
        self.lowered.append(self.change(list(super().lower(graph))))
        return self.lowered[-1]

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:
        self.prepared.append(ops)
        return super().prepare(graph, ops, device)


def weights() -> dict[str, torch.Tensor]:
    return {"w1": torch.randn(3, 5), "w2": torch.randn(5, 4)}


def compile_plan(backend: Backend) -> LoweredGraph:
    return plan(two_layers(), backend=backend).lowered


def compile_executor(backend: Backend) -> LoweredGraph:
    return IRExecutor(two_layers(), weights(), backend=backend, passes=None).lowered


def compile_step(backend: Backend) -> LoweredGraph:
    return compile_and_capture(two_layers(), weights=weights(), backend=backend, passes=None).lowered


COMPILERS = [compile_plan, compile_executor, compile_step]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_each_partition_is_lowered_once_and_prepared_with_the_very_same_ops(
    compiler: Callable[[Backend], LoweredGraph],
) -> None:
    backend = Watched()

    lowered = compiler(backend)

    assert len(backend.lowered) == len(backend.prepared) == 2
    assert all(ops is prepared for ops, prepared in zip(backend.lowered, backend.prepared, strict=True))
    native = [item.program for item in lowered.partitions if item.program is not None]
    assert [program.ops for program in native] == backend.prepared
    assert str(lowered) == str(lower(two_layers(), named_backends(TinyBackend())))


def test_explaining_dumping_and_running_read_the_same_lowered_graph(tmp_path: Path) -> None:
    backend = Watched()
    artifact = compile_and_capture(two_layers(), weights=weights(), backend=backend, passes=None)
    executor = IRExecutor(two_layers(), weights(), backend=backend, passes=None)
    backend.lowered.clear()

    artifact.dump(tmp_path)
    artifact.assert_trace_matches_lowering()
    explained = explain(executor)

    assert backend.lowered == []
    assert artifact.plan is not None
    assert artifact.lowered is artifact.plan.lowered
    assert json.loads((tmp_path / "30_lowered.json").read_text()) == executor.lowered.to_dict()
    assert (tmp_path / "30_lowered.txt").read_text() == f"{executor.lowered}\n"
    ops = {node.name: item.backend for item in executor.lowered.ops for node in item.op.nodes}
    assert {node.name: node.backend for node in explained.nodes} == ops
    assert {node.name: item.backend for item in executor.instructions for node in item.nodes} == ops


def change_op(index: int, **fields: Any) -> Callable[[list[BackendOp]], list[BackendOp]]:
    return lambda ops: [*ops[:index], replace(ops[index], **fields), *ops[index + 1 :]]


BROKEN = [
    ("fields", "node", "not generator", lambda ops: (op for op in ops)),
    ("fields", "node", "has no kind", change_op(0, kind="")),
    ("nodes", "node", "stands for no node", change_op(0, nodes=())),
    ("order", "node 'h'", "reads %h.packed before anything makes it", lambda ops: ops[1:]),
    ("single assignment", "node 'h'", "makes %h, which is there already", lambda ops: [*ops[:2], ops[1]]),
    ("coverage", "node 'a'", "no op computes node 'a'", lambda ops: ops[:2]),
    ("coverage", "node 'a'", "no op makes the result %a",
        lambda ops: [*ops[:2], replace(ops[2], outputs=())]),
    ("fields", "node", r"overwrites \[\], which is neither", change_op(0, overwrites=([],))),
    ("overwriting", "node 'h'", "%x: f32.* is not among graph.overwritable_inputs|overwrites .*x",
        lambda ops: change_op(1, overwrites=ops[1].inputs[:1])(ops)),
]  # fmt: skip


@pytest.mark.parametrize("compiler", [*COMPILERS, lambda backend: explain_graph(two_layers(), backend)])
def test_a_backend_that_breaks_a_rule_is_refused_before_anything_is_prepared(
    compiler: Callable[[Backend], Any],
) -> None:
    for rule, where, problem, change in BROKEN:

        def break_first(ops: list[BackendOp], change: Any = change) -> Any:
            return change(ops) if ops[-1].kind == "Relu" else ops

        backend = Watched(break_first)
        with pytest.raises(BackendError) as caught:
            compiler(backend)
        text = str(caught.value)
        assert re.search(f"'tiny' does not lower as its interface says: .*({problem})", text), (rule, text)
        assert re.search(f"\n  at: {where}.*; rule '{rule}'; class .*Watched\n  fix: .*Contract", text), text
        assert backend.prepared == []


def test_a_backend_that_changes_the_graph_that_it_lowers_is_refused() -> None:
    def change(ops: list[BackendOp]) -> list[BackendOp]:
        graph = ops[0].nodes[0].graph
        assert graph is not None
        graph.set_outputs(())
        return ops

    with pytest.raises(
        BackendError, match=r"changed the graph .*\n.*rule 'unchanged graph'; class .*Watched"
    ):
        lower(two_layers(), named_backends(Watched(change)))


def test_the_error_names_the_plugin_that_provides_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = plugin_manager.get_plugins()
    monkeypatch.setitem(plugins.backends, "tiny", Watched(lambda ops: ops[:-1]))
    report = plugin_manager.PluginReport("small", "npu-small 1.2", offers={"backends": ["tiny"]})
    monkeypatch.setattr(plugins, "reports", [*plugins.reports, report])

    with pytest.raises(BackendError, match=r"plugin small \(npu-small 1.2\)"):
        lower(two_layers(), named_backends("tiny"))


class Failing(TinyBackend):
    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        raise ValueError("out of registers")


def test_a_backend_that_fails_to_lower_is_named_with_the_nodes() -> None:
    with pytest.raises(
        BackendError, match=r"'tiny' failed to lower 2 nodes .* out of registers(?s:.*)'h' to 'a'"
    ):
        lower(two_layers(), named_backends(Failing()))


# What a partition says of its inputs

FACTS = parse_ir("""
graph facts {
  input %x: f32[4, 4]
  param %w: f32[4, 4]
  buffer %b: f32[4, 4]
  prologue {
    %n: f32[4, 4] = aten.neg.default(%w)
  }
  %s: f32[4, 4] = aten.sin.default(%x)
  %c: f32[4, 4] = aten.cos.default(%x)
  %m: f32[4, 4] = aten.mm.default(%s, %n)
  %a: f32[4, 4] = aten.add.Tensor(%m, %c)
  %k: f32[4, 4] = aten.mul.Tensor(%a, %b)
  %f: f32[16] = aten.view.default(self=%k, size=(16,))
  %e: f32[16] = aten.exp.default(%f)
  %g: f32[4, 4] = aten.mul.Tensor(%c, %w)
  update %b = %g
  return (%e, %g)
}
""")  # fmt: skip


def test_a_partition_knows_its_constants_and_what_nothing_reads_later() -> None:
    backend = ThriftyBackend()

    lowered = lower(FACTS, named_backends(backend))

    assert [item.op.kind for item in lowered.prologue] == ["aten.neg.default"]
    assert "aten.neg.default" not in kinds(lowered)
    first, second = backend.lowered
    assert [value.name for value in first.inputs] == ["s", "n", "c", "b"]
    assert {value.name for value in first.constant_inputs} == {"n"}
    assert {value.name for value in first.overwritable_inputs} == {"s"}
    assert {value.name for value in second.constant_inputs} == {"w"}
    assert {value.name for value in second.overwritable_inputs} == {"c"}
    assert first.clone().constant_inputs == frozenset()


def reuse(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    own = torch.sin(x)  # its memory is free behind the partition
    base = torch.cos(x)
    # The views are dead behind these, and what they are views of is not.
    negated = torch.neg(base.unsqueeze(0))
    first = (own * self.w).view(16) + (base * 2.0 + x).view(16)
    second = torch.mm(first.view(4, 4), self.w) + torch.tanh(base)
    views = torch.neg(x.unsqueeze(0)), torch.neg(self.w.unsqueeze(0))
    return torch.exp(second), negated, torch.neg(torch.sinh(base)), *views


def test_memory_that_others_need_is_not_overwritten() -> None:
    model, x = Holding(reuse, w=nn.Parameter(torch.randn(4, 4))), torch.randn(4, 4)
    graph = extract_ir(model, (x,))
    backend = ThriftyBackend()
    executor = IRExecutor(graph, model.state_dict(), backend=backend, passes=None)
    planned = PlannedProgram(plan(graph, backend=backend), model.state_dict())
    before = x.clone()

    for run in (executor, executor, planned, planned, lambda x: executor.run((x,)).results):
        for actual, expected in zip(run(x), model(x), strict=True):
            torch.testing.assert_close(actual, expected)

    assert torch.equal(x, before)
    assert " overwrites=(" in str(executor.lowered)
    assert any(program.overwritten for program in backend.programs)


def test_an_input_at_its_last_use_is_overwritten_where_it_is() -> None:
    graph = parse_ir("""
    graph own {
      input %x: f32[4]
      %s: f32[4] = aten.sin.default(%x)
      %r: f32[4] = aten.neg.default(%s)
      %v: f32[2, 2] = aten.view.default(self=%r, size=(2, 2))
      return %v
    }
    """)
    backend = ThriftyBackend()
    given: list[int] = []
    executor = IRExecutor(graph, backend=backend, passes=None)

    def watch(function: Any) -> Any:
        def call(*args: Any) -> Any:
            result = function(*args)
            given.extend(item.data_ptr() for item in (result if isinstance(result, list) else [result]))
            return result

        return call

    executor.instrumented(watch)(torch.randn(4))
    in_place = backend.programs[-1].overwritten.copy()
    executor.run((torch.randn(4),))

    assert in_place == given[:1] == given[1:]
    assert len(backend.programs[-1].overwritten) == 2


def test_a_constant_is_packed_once_until_other_weights_are_bound() -> None:
    model, x = nn.Sequential(nn.Tanh(), product(), nn.Tanh()), torch.randn(4, 4)
    backend = ThriftyBackend()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=backend, passes=None)

    results = [executor(x) for _ in range(3)]
    packs = backend.programs[-1].packs
    other = {name: torch.randn_like(item) for name, item in model.state_dict().items()}
    executor.load_state_dict(other)
    executor(x)
    model.load_state_dict(other)

    assert packs == 1
    assert backend.programs[-1].packs == 2
    assert len(results) == 3
    torch.testing.assert_close(executor(x), model(x))


def test_a_weight_that_its_owner_changes_is_not_constant_in_planned_programs_and_steps() -> None:
    model, x = product(), torch.randn(4, 4)
    graph, backend = extract_ir(model, (x,)), ThriftyBackend()
    program = PlannedProgram(plan(graph, backend=backend), model.state_dict())
    step = compile_and_capture(graph, weights=model.state_dict(), backend=backend, passes=None)

    for _ in range(2):
        torch.testing.assert_close(program(x), model(x))
        torch.testing.assert_close(step.step([x], []), model(x))
        with torch.no_grad():
            model.w.mul_(2.0)

    assert all(item.constant_inputs == frozenset() for item in backend.lowered)


def test_an_input_whose_elements_overlap_is_not_overwritable() -> None:
    graph = parse_ir("""
    graph expanded {
      input %x: f32[1, 4]
      %s: f32[1, 4] = aten.sin.default(%x)
      %e: f32[3, 4]@[0, 1] = aten.expand.default(self=%s) {size=[3, 4]}
      %n: f32[3, 4] = aten.neg.default(%e)
      return %n
    }
    """)

    nodes = graph.nodes[2:]
    part, values = extract_partition(nodes, "part", {graph.nodes[1].outputs[0]: nodes[0]})
    own, _ = extract_partition(graph.nodes[1:2], "own", {graph.nodes[0].outputs[0]: graph.nodes[1]})

    assert part.inputs == (values[graph.nodes[1].outputs[0]],)
    assert part.overwritable_inputs == frozenset()
    assert own.overwritable_inputs == {*own.inputs}


def product() -> nn.Module:
    return Holding(lambda self, x: torch.mm(x, self.w), w=nn.Parameter(torch.randn(4, 4)))


def test_a_backend_that_takes_views_and_overwrites_inputs_keeps_the_contract() -> None:
    class Contract(BackendContract):
        backend = ThriftyBackend()
        operators = ("add", "neg", "mm", "view")

        def graphs(self) -> dict[str, Graph]:
            kept = ("aten.add.Tensor on f32[33]", "aten.neg", "aten.mm", "aten.view", "chain", "a value that")
            return {name: graph for name, graph in zoo().items() if name.startswith(kept)}

    for _, promise in Contract.promises():
        promise()
    assert len(Contract().trials()) >= 4
