"""The dynamic twin: a step is replayed with other learning rates and seeds, to see that nothing is frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.ops.effects import is_random
from npu_runtime.probing.storage import is_same
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.snapshots import unchanged
from npu_runtime.training.checks.allocations import unplanned_allocations
from npu_runtime.training.checks.violations import CaptureReport, Violation

_SEEDS = (20_001, 20_002)
# From where all state is zeros, decays of it would have no influence.
_STEPS_BEFORE = 2


def check_replay(artifact: CompileArtifact, *batch: Any, **named: Any) -> CaptureReport:
    """Replay a step on a snapshot, as it is and with what it reads perturbed; report what does not follow.

    The state is that of two steps further on: where all of it is zeros, a momentum has no influence.

    1. The same replay twice gives the same bits.
    2. With each hyperparameter perturbed, results or updates move.
    3. With another seed they move, where the step draws random numbers.
    4. No step that has been given memory allocates any: notes.
    5. No fixed tensor has moved to another address.
    6. All state holds afterwards, bit by bit, what it held before.

    Args:
        artifact: Captured or not.
        batch: As for `CompileArtifact.replay`. It should be one of training: where all gradients are zero, no learning
            rate moves anything.
        named: As for `CompileArtifact.replay`.
    """
    state = artifact.state
    before = {name: item.clone() for name, item in state.items()}
    pointers = artifact.pointers()
    with unchanged(state.values(), artifact.generators):
        artifact.prepare(batch, named)
        found = list(_frozen(artifact))
        if artifact.program is not None:
            numbers = (
                artifact.example_numbers if artifact.program.numbers else ()
            )  # they may be tensors by now
            found += unplanned_allocations(artifact.program, numbers)
    found += _moved(pointers, artifact.pointers(), artifact.moved())
    found += (
        Violation(
            "not-restored",
            f"the state %{name} is not what it was before",
            f"graph {artifact.graph.name!r}",
            "this is a bug of npu-runtime: please report it",
        )
        for name, item in state.items()
        if not is_same(item, before[name])
    )
    return CaptureReport(artifact.graph.name, tuple(found))


def _frozen(artifact: CompileArtifact) -> Iterator[Violation]:
    numbers = list(artifact.example_numbers)
    for _ in range(_STEPS_BEFORE):
        artifact.run_unshared(numbers)
    names = [value.name for value in artifact.graph.inputs if not isinstance(value.type, TensorType)]
    plain = _outcome(artifact, numbers, _SEEDS[0])
    if not _are_same(plain, _outcome(artifact, numbers, _SEEDS[0])):
        yield Violation(
            "not-repeatable",
            "two replays from the same state, batch and seed differ",
            f"graph {artifact.graph.name!r}",
            "torch.use_deterministic_algorithms(True) names the ops that are not deterministic",
        )
        return
    for index, name in enumerate(names):
        if not any(
            not _are_same(
                plain, _outcome(artifact, [*numbers[:index], other, *numbers[index + 1 :]], _SEEDS[0])
            )
            for other in _perturbed(numbers[index])
        ):
            yield Violation(
                "frozen-number",
                f"{name} has no influence: with {numbers[index]!r} and with other values all comes out the same",
                f"graph {artifact.graph.name!r}",
                "give a batch with gradients that are not zero; if it stays so, the step has frozen it",
            )
    drawing = next((node for node in artifact.graph.nodes if is_random(node)), None)
    if drawing is not None and _are_same(plain, _outcome(artifact, numbers, _SEEDS[1])):
        yield Violation(
            "frozen-seed",
            f"{drawing.op_type} draws the same numbers whatever the seed",
            f"node {drawing.name!r}, {drawing.provenance}",
            "let it draw from PyTorch's generator of the device, or register its own: generators=[...]",
        )


def _perturbed(number: Any) -> Sequence[Any]:
    """Return other numbers: the second one is far off, for those that are added to something large."""
    return (number * 0.5, number + 1.0) if isinstance(number, float) else (number + 1,)


def _outcome(artifact: CompileArtifact, numbers: Sequence[Any], seed: int) -> list[Any]:
    """Return results and new state of one replay; the state is put back."""
    with unchanged(artifact.state.values(), artifact.generators):
        torch.manual_seed(seed)
        for generator in artifact.generators:
            generator.manual_seed(seed)
        results = artifact.run_unshared(numbers)
        kept = [*results, *artifact.state.values()]
        return [item.clone() if isinstance(item, torch.Tensor) else item for item in kept]


def _are_same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return all(map(is_same, left, right))


def _moved(
    before: Mapping[str, int], after: Mapping[str, int], elsewhere: Sequence[str]
) -> Iterator[Violation]:
    moved = [name for name, address in after.items() if before.get(name) != address]
    for name in dict.fromkeys([*elsewhere, *moved]):
        yield Violation(
            "moved-pointer",
            f"{name!r} lies elsewhere than when the step was captured: a replay changes what nobody reads",
            "the model or the optimizer",
            "keep their tensors (copy_() into them, load_state_dict()), or bind the artifact anew: artifact.rebind(...)",
        )
