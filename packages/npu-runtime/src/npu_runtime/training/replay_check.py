"""The replay check: replays with other hyperparameters and seeds must compute something else.

A capture can freeze a value that should be an input: replays then succeed, and train wrongly. Static checks
cannot prove that each hyperparameter and the random state have an influence; perturbing them one at a time
shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.core.storage import storage_key
from npu_ir.ops.effects import is_random
from npu_ir.ops.execution import location_of
from npu_runtime._torch.ops import OpOverload
from npu_runtime._torch.state import observe_calls
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.planned import PlannedProgram
from npu_runtime.probing.storage import is_bitwise_equal
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.snapshots import preserve_state
from npu_runtime.training.checks.violations import CaptureReport, Violation

_SEEDS = (20_001, 20_002)
# Steps taken before the perturbed ones: while all state is zeros, decay rates have no influence.
_STEPS_BEFORE = 2


def check_replay(artifact: CompileArtifact, *batch: Any, **named: Any) -> CaptureReport:
    """Replay a step on a snapshot, unchanged and with perturbed inputs; report inputs without influence.

    Two steps are taken first: while all state is zeros, a momentum has no influence.

    1. The same replay twice computes the same bits.
    2. Perturbing a hyperparameter changes results or state.
    3. Another seed changes them, if the step draws random numbers.
    4. No instruction with planned memory allocates any: notes.
    5. No fixed tensor has moved to another address.
    6. All state holds afterwards, bit by bit, what it held before.

    Args:
        artifact: Captured or not.
        batch: As for `CompileArtifact.replay`. Use a batch of the training data: with zero gradients, no
            learning rate has an influence.
        named: As for `CompileArtifact.replay`.
    """
    state = artifact.state
    before = {name: item.clone() for name, item in state.items()}
    pointers = artifact.pointers()
    with preserve_state(state.values(), artifact.generators):
        artifact.prepare(batch, named)
        violations = list(_find_frozen_inputs(artifact))
        if artifact.program is not None:
            violations += find_unplanned_allocations(artifact.program, artifact.program_numbers)
    violations += _moved_pointers(pointers, artifact.pointers(), artifact.moved())
    violations += (
        Violation(
            "not-restored",
            f"the state %{name} is not what it was before",
            f"graph {artifact.graph.name!r}",
            "this is a bug of npu-runtime: please report it",
        )
        for name, item in state.items()
        if not is_bitwise_equal(item, before[name])
    )
    return CaptureReport(artifact.graph.name, tuple(violations))


def _find_frozen_inputs(artifact: CompileArtifact) -> Iterator[Violation]:
    numbers = list(artifact.example_numbers)
    for _ in range(_STEPS_BEFORE):
        artifact.try_step(numbers)
    names = [value.name for value in artifact.graph.inputs if not isinstance(value.type, TensorType)]
    plain = _run_seeded(artifact, numbers, _SEEDS[0])
    if not _are_same(plain, _run_seeded(artifact, numbers, _SEEDS[0])):
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
                plain, _run_seeded(artifact, [*numbers[:index], other, *numbers[index + 1 :]], _SEEDS[0])
            )
            for other in _perturbations(numbers[index])
        ):
            yield Violation(
                "frozen-number",
                f"{name} has no influence: results and state are the same with {numbers[index]!r} "
                "and with other values",
                f"graph {artifact.graph.name!r}",
                "give a batch with gradients that are not zero; if it stays so, the step has frozen it",
            )
    drawing = next((node for node in artifact.graph.nodes if is_random(node)), None)
    if drawing is not None and _are_same(plain, _run_seeded(artifact, numbers, _SEEDS[1])):
        yield Violation(
            "frozen-seed",
            f"{drawing.op_type} draws the same numbers whatever the seed",
            f"node {drawing.name!r}, {drawing.provenance}",
            "let it draw from PyTorch's generator of the device, or register its own: generators=[...]",
        )


def _perturbations(number: Any) -> Sequence[Any]:
    """Return perturbed numbers: the second one is far off, for a number that is added to something large."""
    return (number * 0.5, number + 1.0) if isinstance(number, float) else (number + 1,)


def _run_seeded(artifact: CompileArtifact, numbers: Sequence[Any], seed: int) -> list[Any]:
    """Return copies of the results and the new state of one replay; the state is restored."""
    with preserve_state(artifact.state.values(), artifact.generators):
        torch.manual_seed(seed)
        for generator in artifact.generators:
            generator.manual_seed(seed)
        results = artifact.try_step(numbers)
        outcome = [*results, *artifact.state.values()]
        return [item.clone() if isinstance(item, torch.Tensor) else item for item in outcome]


def _are_same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return all(map(is_bitwise_equal, left, right))


def _moved_pointers(
    before: Mapping[str, int], after: Mapping[str, int], elsewhere: Sequence[str]
) -> Iterator[Violation]:
    moved = [name for name, address in after.items() if before.get(name) != address]
    for name in dict.fromkeys([*elsewhere, *moved]):
        yield Violation(
            "moved-pointer",
            f"{name!r} was given other memory after the step was captured: a replay updates the old one",
            "the model or the optimizer",
            "keep their tensors (copy_() into them, load_state_dict()), "
            "or bind the artifact again: artifact.rebind(...)",
        )


def find_unplanned_allocations(program: PlannedProgram, numbers: Sequence[Any]) -> Iterator[Violation]:
    """Yield a note for each allocation by an instruction whose outputs have planned memory.

    Instructions that allocate their outputs are not reported: the plan lists these allocations.

    Args:
        program: Run once; its state changes.
        numbers: The scalar arguments of the run.
    """
    instructions = {
        id(instruction.function): instruction
        for calls in program.plan.calls.values()
        for instruction in calls
    }
    running: list[Instruction] = []  # the current instruction
    allocations: dict[tuple[Instruction, str], list[torch.Tensor]] = {}

    def begin(function: Callable[..., Any]) -> None:
        running[:] = [instructions[id(function)]]

    def see(op: OpOverload, given: list[Any], results: list[Any]) -> None:
        if running and not running[0].outputs:
            allocated = _new_tensors(given, results)
            if allocated:
                allocations.setdefault((running[0], str(op)), allocated)

    watched = program.with_observer(begin)
    with observe_calls(see):
        watched.run(*numbers)
    for (instruction, op), tensors in allocations.items():
        listed = ", ".join(str(TensorType.of(item)) for item in tensors)
        yield Violation(
            "allocation",
            f"{instruction.kernel} allocates {listed} by {op} in each run, which is in no plan",
            location_of(instruction.node),
            "allocate it once, when the program is prepared or bound, and keep it there",
            is_note=True,
        )


def _new_tensors(given: Sequence[Any], results: Sequence[Any]) -> list[torch.Tensor]:
    memory = {storage_key(item) for item in given if _is_strided(item)}
    return [
        item for item in results if _is_strided(item) and item.numel() and storage_key(item) not in memory
    ]


def _is_strided(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.layout is torch.strided
