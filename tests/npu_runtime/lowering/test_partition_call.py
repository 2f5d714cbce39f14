"""An executor hands rows of nodes to backends; what it computes does not depend on who runs what."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import ExecutionError, Graph, extract_ir, parse_ir
from npu_ir._torch.tensors import negated_view
from npu_runtime import Backend, BackendError
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.planned import PlannedProgram, plan
from tests.support.backends.broken_backends import Binds, Program, Sound, outputs_as
from tests.support.backends.choosing_backend import Some
from tests.support.backends.thrifty_backend import ThriftyBackend
from tests.support.corpus.case import Function, Holding


@torch.library.custom_op("npu_runtime_tests::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of a matrix, laid out by columns, which it does not tell."""
    return x.t().contiguous().t()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


TURNED = Function(lambda x: torch.relu(turned(x)))


def test_a_backend_gets_tensors_in_the_strides_that_the_graph_states() -> None:
    x, backend = torch.randn(3, 4), Some(ops=["aten.relu.default"])
    executor = IRExecutor(extract_ir(TURNED, (x,)), backend=backend, passes=None)

    results = [executor(item) for item in (x, torch.randn(4, 3).t())]

    assert [item.stride() for (item,) in backend.given] == [(4, 1), (4, 1)]
    assert torch.equal(results[0], x.relu())


def conjugated(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, -x).conj().imag


def test_native_kernels_see_the_values_of_arguments_that_are_negated_lazily() -> None:
    graph, x = relu_graph(), torch.randn(3)
    for lazily in (negated_view, conjugated):
        for run in (PlannedProgram(plan(graph, backend="host")), IRExecutor(graph, backend="host")):
            for item in (lazily(x), x, lazily(x), lazily(x)):
                assert torch.equal(run(item), item.relu())
            assert lazily(x).is_neg()


def test_native_kernels_see_the_values_of_results_that_are_negated_lazily() -> None:
    x = torch.randn(3)
    for lazily in (negated_view, conjugated):
        graph = extract_ir(Function(lambda x, lazily=lazily: lazily(x).relu()), (x,))
        executor = IRExecutor(graph, backend="host", passes=None)

        assert any(item.is_partition for item in executor.instructions)
        for _ in range(3):
            assert torch.equal(executor(x), lazily(x).relu())


def test_a_quick_run_takes_the_place_of_runs_from_the_second_call_on() -> None:
    class Quick(Counting):
        def make_quick_run(self, program: Program) -> Any:
            quick.append(program)
            return lambda inputs: None if inputs[0].stride() != (3, 1) else [inputs[0] + 7]

    quick: list[Program] = []
    model, other, x, backend = nn.Linear(3, 3), nn.Linear(3, 3), torch.randn(4, 3), Quick()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=backend, passes=None)
    (call,) = (item.partition for item in executor.instructions if item.partition is not None)
    weights = [item.detach() for item in model.parameters()]

    with torch.no_grad():
        found = [call([item], weights)[0] for item in (x, x, x, x.t().contiguous().t(), x)]
        (of_other,) = call([x], [item.detach() for item in other.parameters()])

        assert all(torch.equal(found[place], model(x)) for place in (0, 1, 3))
        assert torch.equal(of_other, other(x))
    assert all(torch.equal(found[place], x + 7) for place in (2, 4))
    assert (backend.given, len(quick)) == ([3, 1, 1, 3], 1)


def test_memory_that_others_need_is_not_overwritten_by_quick_runs() -> None:
    class Quick(ThriftyBackend):
        def make_quick_run(self, program: Any) -> Any:
            return lambda inputs: self.run(program, inputs)

    model, x, backend = Function(lambda x: torch.neg(x.unsqueeze(0))), torch.randn(3, 4), Quick()
    executor = IRExecutor(extract_ir(model, (x,)), backend=backend, passes=None)
    before = x.clone()

    for _ in range(3):
        assert torch.equal(executor(x), model(before))

    assert torch.equal(x, before)
    assert len(backend.programs[-1].overwritten) == 3


def read_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    return y.view(12), torch.relu(y)


def test_memory_that_a_backend_returns_a_view_of_is_not_overwritten() -> None:
    x, backend = torch.randn(3, 4), Some(ops=["aten.view.default"])

    results = IRExecutor(extract_ir(Function(read_twice), (x,)), backend=backend, passes=None)(x)

    assert all(map(torch.equal, results, read_twice(x)))


@pytest.mark.parametrize("op", ["aten.contiguous.default", "aten.t.default"])
def test_a_backend_gets_nothing_but_tensors_with_data(op: str) -> None:
    x, backend = torch.randn(3, 4), Some(ops=[op])
    model = Function(lambda x: x.sin().t().contiguous().view(-1))

    executor = IRExecutor(extract_ir(model, (x,)), backend=backend, passes=None)

    assert torch.equal(executor(x), model(x))
    assert [item.device for (item,) in backend.given] == [x.device]


def test_a_backend_that_fails_while_it_runs_is_told_with_the_node_and_what_it_was_given() -> None:
    class Fails(Some):
        def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
            error = ValueError("out of luck")
            error.__notes__ = ["in the kernel acme.relu"]  # type: ignore[attr-defined, unused-ignore]
            raise error

    x = torch.randn(3, 4)
    executor = IRExecutor(extract_ir(TURNED, (x,)), backend=Fails(ops=["aten.relu.default"]), passes=None)

    with pytest.raises(
        ExecutionError,
        match=r"backend 'some' failed: ValueError: out of luck, in the kernel acme.relu\n"
        r"  at: node 'relu'.*\n  fix: it was called on f32\[.*; backend='aten' runs it on ATen",
    ):
        executor(x)


def test_what_a_backend_returns_is_checked() -> None:
    for wrong, message in (
        ([torch.zeros(7, dtype=torch.int64)], r"returned i64\[7\] in place of f32\[3\]"),
        ([], r"returned nothing in place of f32\[3\]"),
    ):
        backend = type("Wrong", (Some,), {"run": lambda self, *_, wrong=wrong: wrong})
        executor = IRExecutor(relu_graph(), backend=backend(ops=["aten.relu.default"]), passes=None)

        with pytest.raises(ExecutionError, match=message):
            executor(torch.randn(3))


def relu_graph() -> Graph:
    return extract_ir(nn.ReLU(), (torch.randn(3),))


def test_what_is_of_no_use_as_a_backend_is_refused_when_the_executor_is_made() -> None:
    failed = ".*division by zero\n  at: node"
    useless: list[tuple[dict[str, Any], str]] = [
        ({"supports": lambda self, node: ""},
            "'sound' answers '' where it should say why .*\n  at: node 'relu' .*\n  fix: supports"),
        ({"supports": lambda self, node: 1 / 0}, "'sound' raised an error where it was asked about a node"),
        ({"lower": lambda self, graph: 1 / 0}, f"'sound' failed to lower 1 nodes that it supports: {failed}"),
        ({"prepare": lambda self, graph, ops, device: 1 / 0},
            f"'sound' failed to prepare 1 nodes that it supports: {failed}"),
        ({"devices": lambda self: [], "absence": lambda self: "no driver"},
            "the backend 'sound' cannot run here: no driver"),
    ]  # fmt: skip
    given: list[tuple[Any, str]] = [
        ("nowhere", "there is no backend 'nowhere'\n  fix: there are aten"),
        (Sound, "is not a backend\n  fix: give a name or an instance of npu_runtime.Backend"),
    ]
    given += [(type("Useless", (Sound,), methods)(), message) for methods, message in useless]
    for backend, message in given:
        with pytest.raises(BackendError, match=message):
            IRExecutor(relu_graph(), backend=[backend])


class OnMeta(Sound):
    """Says that it runs on a device that no weights are on, and keeps where it was told to prepare."""

    def devices(self) -> Sequence[torch.device]:
        return [torch.device("meta"), torch.device("cpu", 7)]

    def prepare(self, graph: Graph, ops: Any, device: torch.device) -> Program:
        self.prepared = device
        return super().prepare(graph, ops, device)


def test_a_backend_chooses_the_device_unless_it_runs_where_the_weights_are() -> None:
    backend, model = OnMeta(), nn.PReLU()
    graph = extract_ir(model, (torch.randn(3),))

    executor = IRExecutor(graph, model.state_dict(), backend=backend)

    assert executor.device == backend.prepared == torch.device("meta")
    assert IRExecutor(graph, model.state_dict(), backend=Sound()).device == torch.device("cpu")


def test_a_device_that_a_backend_does_not_have_is_refused() -> None:
    for backends, device, message in (
        ([OnMeta()], "cpu", "'sound' does not run on cpu\n  fix: device= is one of meta, cpu:7"),
        ([OnMeta(), Some()], None, "'some' does not run on meta\n  fix: device= is one of cpu"),
    ):
        with pytest.raises(BackendError, match=message):
            IRExecutor(relu_graph(), backend=backends, device=device)


def test_the_interface_has_defaults_where_pytorch_has_devices() -> None:
    backend: Backend = Sound()

    assert backend.absence() == "it finds no device"
    assert backend.allocate(relu_graph().inputs[0].tensor_type, torch.device("cpu")).shape == (3,)


def test_an_output_in_other_strides_is_the_same_in_a_planned_program() -> None:
    x, backend = torch.randn(2, 3), outputs_as(lambda item: item.t().contiguous().t())()
    program = PlannedProgram(plan(extract_ir(nn.ReLU(), (x,)), backend=backend))

    assert torch.equal(program(x), x.relu())


@pytest.mark.parametrize(("change", "text"), [
    pytest.param(lambda item: item.reshape(-1)[:1], "returned f32.1. in place of f32.2, 3.", id="shape"),
    pytest.param(torch.Tensor.int, "returned i32.2, 3. in place of f32.2, 3.", id="dtype"),
    pytest.param(lambda _: 1.0, "returned float in place of f32.2, 3.", id="number"),
])  # fmt: skip
def test_an_output_of_another_type_fails_in_a_planned_program(change: Any, text: str) -> None:
    x = torch.randn(2, 3)
    program = PlannedProgram(plan(extract_ir(nn.ReLU(), (x,)), backend=outputs_as(change)()))

    with pytest.raises(ExecutionError, match=text):
        program(x)


def test_results_share_memory_with_inputs_and_each_other_through_views_alone() -> None:
    graph = parse_ir("""
    graph g {
      input %x: f32[2, 3]
      input %y: f32[2, 3]
      %flat: f32[6] = aten.view.default(self=%x) {size=[6]}
      %row: f32[3] = aten.select.int(self=%y) {dim=0, index=1}
      %relu: f32[3] = aten.relu.default(self=%row)
      %add: f32[3] = aten.add.Tensor(self=%relu, other=%row)
      %part: f32[2] = aten.slice.Tensor(self=%add) {dim=0, start=1}
      return (%flat, %relu, %add, %part)
    }
    """)

    (step,) = IRExecutor(graph, backend=Sound(), passes=None).instructions

    # The last two share memory with each other: as if they had that of every input.
    assert list(step.shares) == [frozenset([0]), frozenset(), frozenset([0, 1]), frozenset([0, 1])]


class Counting(Binds):
    """Counts what its runs are given."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.bound = 0

    def bind_constants(self, program: Program, constants: Mapping[int, Any]) -> Program:
        self.bound += 1
        return super().bind_constants(program, constants)

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        self.given.append(len(inputs))
        return super().run(program, inputs)


def test_weights_are_bound_at_the_second_call_and_read_at_each() -> None:
    model, x, backend = nn.Linear(3, 2), torch.randn(4, 3), Counting()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=backend)

    for factor in (1, 2, 3):
        with torch.no_grad():
            model.weight.mul_(factor)
        assert torch.equal(executor(x), model(x).detach())

    assert (backend.given, backend.bound) == ([3, 1, 1], 1)


def test_other_weights_are_bound_anew() -> None:
    model, other, x, backend = nn.Linear(3, 2), nn.Linear(3, 2), torch.randn(4, 3), Counting()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=backend)

    for each in (model, other, model):
        executor.load_state_dict(each.state_dict())
        for _ in range(3):
            assert torch.equal(executor(x), each(x).detach())

    assert (backend.given, backend.bound) == ([3, 1, 1] * 3, 3)


def test_constants_of_another_list_are_those_that_are_computed_with() -> None:
    model, other, x, backend = nn.Linear(3, 2), nn.Linear(3, 2), torch.randn(4, 3), Counting()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=backend)
    (call,) = (item.partition for item in executor.instructions if item.partition is not None)
    lists = {each: [item.detach() for item in each.parameters()] for each in (model, other)}

    with torch.no_grad():
        for each in (model, model, model, other, model):
            assert torch.equal(call([x], lists[each])[0], each(x))

    assert backend.given == [3, 1, 1, 3, 3]


def test_weights_that_are_replaced_are_let_go_at_once() -> None:
    model, x, backend = nn.Linear(3, 2), torch.randn(4, 3), Counting()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=backend)
    for _ in range(3):
        executor(x)
    (call,) = (item.partition for item in executor.instructions if item.partition is not None)
    weights = list(map(weakref.ref, call._last[0].given or ()))

    executor.load_state_dict(nn.Linear(3, 2).state_dict())
    gc.collect()

    assert [weight() for weight in weights] == [None, None]


def test_constants_in_other_strides_are_copied_in_each_call() -> None:
    model = Holding(lambda self, x: x + turned(self.weight), weight=nn.Parameter(torch.randn(3, 4)))
    x, backend = torch.randn(3, 4), Counting()
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=backend)

    for _ in range(3):
        assert torch.equal(executor(x), (x + model.weight).detach())

    assert (backend.given, backend.bound) == ([2, 2, 2], 0)
