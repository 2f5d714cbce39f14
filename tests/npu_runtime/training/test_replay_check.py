"""The dynamic twin finds what a replay has frozen, and changes nothing."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import parse_ir
from npu_runtime import CompileArtifact, check_replay, compile_and_capture
from tests.support.backends.tiny_backend import TinyBackend
from tests.support.training.full_state import Mlp, state_bits


def artifact_of(
    model: nn.Module | None = None, **options: Any
) -> tuple[CompileArtifact, tuple[torch.Tensor, ...]]:
    model = model or Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    batch = torch.randn(3, 7), torch.randn(3, 5)
    made = compile_and_capture(model, optimizer, nn.functional.mse_loss, batch, passes=None, **options)
    return made, batch


@pytest.mark.parametrize("capture", ["require", "off"])
def test_nothing_is_frozen_and_nothing_has_changed(capture: str) -> None:
    artifact, batch = artifact_of(capture=capture)
    artifact.replay(*batch)
    before, pointers = state_bits(artifact), artifact.pointers()

    report = check_replay(artifact, *batch)

    assert report.violations == ()
    assert state_bits(artifact) == before
    assert artifact.pointers() == pointers
    own = {name: item.data_ptr() for name, item in artifact.weights.items()}
    assert {name: pointers[name] for name in own} == own


def test_a_momentum_that_meets_zeros_is_not_taken_for_frozen() -> None:
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    batch = torch.randn(3, 7), torch.randn(3, 5)
    artifact = compile_and_capture(model, optimizer, nn.functional.mse_loss, batch, passes=None)

    assert check_replay(artifact, *batch).ok
    assert not artifact.state["first.weight.momentum_buffer"].any()


class Allocating(TinyBackend):
    """Makes a workspace in each run of what it has bound."""

    def bind(self, program: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        compute = super().bind(program, inputs, outputs)

        def allocate_and_compute() -> None:
            torch.empty(1000)
            compute()

        return allocate_and_compute


def test_what_a_step_allocates_beside_its_plan_is_seen_by_name() -> None:
    artifact, batch = artifact_of(backend=Allocating())

    report = check_replay(artifact, *batch)

    notes = [str(item) for item in report.notes if "aten.empty.memory_format" in item.message]
    assert report.ok
    assert notes
    assert re.match(
        r"note allocation: tiny\.run allocates f32\[1000\] by aten\.empty\.memory_format in each run, which "
        r"is in no plan\n  at: node '(mm|relu)",
        notes[0],
    )


def test_kernels_over_fixed_memory_allocate_nothing() -> None:
    artifact, batch = artifact_of(backend="host")

    assert check_replay(artifact, *batch).violations == ()


def freeze(artifact: CompileArtifact, *, seed: bool = False, number: int | None = None) -> None:
    """Give an artifact's step a number or a seed that stays what it was."""
    plain = artifact.try_step

    def run(numbers: Sequence[Any] = ()) -> Sequence[Any]:
        if seed:
            torch.manual_seed(1)
        given = list(numbers)
        if number is not None:
            given[number] = 0.02
        return plain(given)

    artifact.try_step = run  # type: ignore[method-assign]


def test_a_learning_rate_that_is_frozen_is_found() -> None:
    artifact, batch = artifact_of()
    freeze(artifact, number=[value.name for value in artifact.graph.inputs].index("group0.lr"))

    (violation,) = check_replay(artifact, *batch).violations

    assert violation.kind == "frozen-number"
    assert "group0.lr has no influence" in violation.message


def test_a_seed_that_is_frozen_is_found() -> None:
    artifact, batch = artifact_of()
    freeze(artifact, seed=True)

    (violation,) = check_replay(artifact, *batch).violations

    assert violation.kind == "frozen-seed"
    assert "draws the same numbers whatever the seed" in violation.message


def test_without_random_numbers_no_seed_is_missed() -> None:
    artifact, batch = artifact_of(Mlp(dropout=0.0))
    freeze(artifact, seed=True)

    assert check_replay(artifact, *batch).ok


def test_a_step_that_is_not_repeatable_is_found() -> None:
    artifact, batch = artifact_of()
    plain, count = artifact.try_step, iter(range(100))

    def run(numbers: Sequence[Any] = ()) -> Sequence[Any]:
        plain(numbers)
        return [torch.tensor(float(next(count)))]

    artifact.try_step = run  # type: ignore[method-assign]

    assert [item.kind for item in check_replay(artifact, *batch).violations] == ["not-repeatable"]


def test_memory_that_was_exchanged_is_found() -> None:
    model = Mlp()
    artifact, batch = artifact_of(model)
    model.second.weight.data = model.second.weight.detach().clone()

    (violation,) = check_replay(artifact, *batch).violations

    assert violation.kind == "moved-pointer"
    assert "'second.weight' was given other memory" in violation.message


def test_a_graph_without_numbers_is_checked_too() -> None:
    weight = torch.ones(3)
    graph = parse_ir(
        'graph "g" {\n  input %x: f32[3]\n  param %w: f32[3]\n'
        "  %y: f32[3] = aten.add.Tensor(%w, %x)\n  update %w = %y\n  return %y\n}\n"
    )
    artifact = compile_and_capture(graph, weights={"w": weight}, passes=None, capture="require")

    assert check_replay(artifact, torch.ones(3)).ok
    assert torch.equal(weight, torch.ones(3))
