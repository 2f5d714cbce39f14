"""State is changed in its own memory, behind all that can fail; results are not torn by it."""

import contextlib
import itertools
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import ExecutionError, WeightError, execute_ir, parse_ir
from npu_runtime import TrainStep
from npu_runtime.planned import PlannedProgram, plan
from tests.support.corpus.comparison import assert_same

MOMENTUM = """
graph momentum {
  input %lr: float
  input %x: f32[3, 2]
  param %w: f32[3, 2]
  state %w.momentum: f32[3, 2]
  %kept: f32[3, 2] = aten.mul.Scalar(self=%w.momentum) {other=0.9}
  %moved: f32[3, 2] = aten.add.Tensor(self=%kept, other=%x)
  %scaled: f32[3, 2] = aten.mul.Scalar(self=%moved, other=%lr)
  %new: f32[3, 2] = aten.sub.Tensor(self=%w, other=%scaled)
  %norm: f32[1, 2] = aten.sum.dim_IntList(self=%w) {dim=[0], keepdim=True}
  update %w = %new
  update %w.momentum = %moved
  return (%norm,)
}
"""
SWAP = """
graph swap {
  buffer %a: f32[3]
  buffer %b: f32[3]
  update %a = %b
  update %b = %a
  return (%a, %b)
}
"""
LATE_FAILURE = """
graph "fails behind an update" {
  input %x: f32[3]
  input %index: i64[3]
  buffer %a: f32[4]
  %new: f32[4] = aten.add.Scalar(self=%a) {other=1}
  %found: f32[3] = aten.gather.default(self=%x, index=%index) {dim=0}
  update %a = %new
  return (%found,)
}
"""


@pytest.fixture
def python_handler() -> Iterator[None]:
    """The handler of Python for SIGINT, which a process in the background of a shell ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"w": torch.randn(3, 2), "w.momentum": torch.randn(3, 2)}


def test_state_advances_in_the_memory_that_was_given_as_the_interpreter_says() -> None:
    graph, held, expected = parse_ir(MOMENTUM), weights(), weights()
    program = PlannedProgram(plan(graph), held)
    places = {name: tensor.data_ptr() for name, tensor in held.items()}

    for step in range(4):
        x, lr = torch.randn(3, 2), 0.1 * (step + 1)
        results = program(lr, x)
        wanted, changes = execute_ir(graph, (lr, x), weights=expected, return_mutations=True)
        expected.update(changes)

        assert_same([item.clone() for item in results], list(wanted), "the results")
        assert_same(dict(held), expected, "the state")
    assert places == {name: tensor.data_ptr() for name, tensor in held.items()}


def test_state_is_written_by_the_ops_that_compute_it() -> None:
    planned = plan(parse_ir(MOMENTUM))

    assert [instruction.node.op_type for instruction in planned.calls["commit"]] == [
        "aten.mul.Scalar",
        "aten.add.Tensor",
        "aten.mul.Scalar",
        "aten.sub.Tensor",
    ]
    assert planned.made_bytes == 0


def test_computing_alone_changes_no_state() -> None:
    held = weights()
    program = PlannedProgram(plan(parse_ir(MOMENTUM)), held)
    before = {name: tensor.clone() for name, tensor in held.items()}
    numbers = program.load((0.5, torch.randn(3, 2)))

    computed = program._compute(program._symbols, *numbers)

    assert_same(dict(held), before, "the state")
    program._commit(program._symbols, *numbers, *computed)
    assert not torch.equal(held["w"], before["w"])


@pytest.mark.usefixtures("python_handler")
def test_ctrl_c_ends_a_run_before_it_changes_state_or_after_that() -> None:
    x, after, steps = torch.randn(3, 2), weights(), []
    seen: list[object] = []
    PlannedProgram(plan(parse_ir(MOMENTUM)), after).with_observer(seen.append)(0.5, x)

    for chosen in range(len(seen)):
        held, calls = weights(), itertools.count()
        program = PlannedProgram(plan(parse_ir(MOMENTUM)), held).with_observer(
            partial(lambda calls, chosen, _: interrupt() if next(calls) == chosen else None, calls, chosen)
        )
        numbers = program.load((0.5, x))
        with pytest.raises(KeyboardInterrupt, match="^$"):
            program.run(*numbers)
        steps.append(program.steps)
        assert_same(dict(held), after if program.steps else weights(), "the state")

    assert steps == sorted(steps)
    assert set(steps) == {0, 1}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("python_handler")
@pytest.mark.parametrize("backend", ["aten", "host"])
def test_ctrl_c_while_a_step_changes_its_state_leaves_the_generator_behind_its_draws(backend: str) -> None:
    def trained(is_interrupted: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = TrainStep(model, optimizer, nn.functional.mse_loss, backend=backend)
        batch = torch.randn(5, 3), torch.randn(5, 2)
        step(*batch)
        program = step.artifact.program
        assert program is not None
        commit: Any = program._commit
        if is_interrupted:
            write = commit._function
            commit._function = lambda *args: (interrupt(), write(*args))[1]
        with pytest.raises(KeyboardInterrupt, match="^$") if is_interrupted else contextlib.nullcontext():
            step(*batch)
        return [*model.parameters(), torch.get_rng_state()]

    assert all(map(torch.equal, trained(True), trained(False)))


def test_a_run_that_fails_changes_no_state_and_names_the_node() -> None:
    held = {"a": torch.zeros(4)}
    program = PlannedProgram(plan(parse_ir(LATE_FAILURE)), held)

    with pytest.raises(ExecutionError, match=r"(?s)aten.gather.default failed.*node 'found'"):
        program(torch.ones(3), torch.tensor([0, 1, 7]))

    assert torch.equal(held["a"], torch.zeros(4))
    program(torch.ones(3), torch.tensor([0, 1, 2]))
    assert torch.equal(held["a"], torch.ones(4))


def test_buffers_can_be_swapped_and_results_are_what_was_there_before() -> None:
    held = {"a": torch.zeros(3), "b": torch.ones(3)}
    program = PlannedProgram(plan(parse_ir(SWAP)), held)

    a, b = program()

    assert_same([a, b], [torch.zeros(3), torch.ones(3)], "the results")
    assert_same(dict(held), {"a": torch.ones(3), "b": torch.zeros(3)}, "the buffers")


def test_an_input_may_be_a_tensor_of_the_state() -> None:
    held = weights()
    expected = execute_ir(
        parse_ir(MOMENTUM), (0.5, held["w"].clone()), weights=weights(), return_mutations=True
    )[1]
    program = PlannedProgram(plan(parse_ir(MOMENTUM)), held)

    program(0.5, held["w"])

    assert_same(dict(held), expected, "the state")


def test_state_that_cannot_be_changed_where_it_is_is_refused() -> None:
    planned = plan(parse_ir(MOMENTUM))
    transposed = {**weights(), "w": torch.randn(2, 3).t()}

    with pytest.raises(WeightError, match=r"changes 'w' in its own memory, but it has the strides \(1, 3\)"):
        PlannedProgram(planned, transposed)


def test_state_in_shared_memory_is_refused() -> None:
    shared = torch.randn(3, 2)

    with pytest.raises(WeightError, match="share memory, and the program changes"):
        PlannedProgram(plan(parse_ir(MOMENTUM)), {"w": shared, "w.momentum": shared})


def test_another_number_of_numbers_is_refused() -> None:
    program = PlannedProgram(plan(parse_ir(MOMENTUM)), weights())

    with pytest.raises(ExecutionError, match="2 numbers were given, the program takes 1"):
        program.run(0.1, 0.2)


@pytest.mark.usefixtures("python_handler")
def test_a_thread_beside_the_main_one_leaves_handlers_alone() -> None:
    held = weights()
    handlers: list[object] = []
    program = PlannedProgram(plan(parse_ir(MOMENTUM)), held).with_observer(
        lambda _: handlers.append(signal.getsignal(signal.SIGINT))
    )
    numbers = program.load((0.5, torch.randn(3, 2)))

    thread = threading.Thread(target=program.run, args=numbers)
    thread.start()
    thread.join()

    assert program.steps == 1
    assert set(handlers) == {signal.default_int_handler}
