"""Pipelines: named sequences of passes, and the ordering of passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npu_passes.errors import PassError

if TYPE_CHECKING:
    from npu_passes.core.base import Pass


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named sequence of passes; plugins provide pipelines in the hook ``npu_pipelines``.

    Passes of any plugin join a pipeline by naming it in their ``pipelines``.

    Attributes:
        name: Kebab-case, and unique among all plugins.
        passes: The passes, as text: ``"canonicalize,constant-folding{max_bytes=1024}"``; "" for none.
        doc: What it is for, in a sentence.
    """

    name: str
    passes: str
    doc: str = ""


MINIMAL = "canonicalize,elim-identity,cse,dead-code"
DEFAULT = f"{MINIMAL},conv-bn-folding,conv-add-folding,constant-folding"
_GRADIENTS = f"{MINIMAL},dead-gradients,gather-gradients,narrow-expand"
_CONSTANTS = "hoist-fill,constant-folding"
TRAIN = f"{_GRADIENTS},{_CONSTANTS},fuse-optimizer"
PIPELINES = (
    Pipeline("minimal", MINIMAL, "Exact clean-up: the same ops on the same values, fewer of them."),
    Pipeline("default", DEFAULT, "Clean-up, folding of norms and biases into convolutions, and constants."),
    Pipeline(
        "fuse",
        f"{DEFAULT},fuse-attention,fuse-add-norm,fuse-linear-activation,gather-gradients,fuse-loss-gradient,"
        "fuse-linear-backward",
        "The default, then groups of ops that backends run as one.",
    ),
    Pipeline("train", TRAIN, "Training steps: clean-up, no gradients in vain, one op per optimizer."),
    Pipeline(
        "train-fuse",
        f"{_GRADIENTS},fuse-loss-gradient,fuse-linear-backward,fuse-linear-activation,{_CONSTANTS},"
        "fuse-optimizer",
        "The same, and groups of ops, forward and backward, that backends run as one.",
    ),
    Pipeline(
        "train-device",
        f"{TRAIN},scalars-to-tensors",
        "The train pipeline, then learning rates as tensors: for steps that a device records until betas"
        " change.",
    ),
    Pipeline(
        "train-tensors",
        f"{_GRADIENTS},{_CONSTANTS},scalars-to-tensors",
        "Every number as a tensor, and the ops of the optimizer as they are: for steps that a device"
        " records once.",
    ),
)


def sort_passes(passes: Sequence[Pass], *, fixed: int = 0) -> list[Pass]:
    """Return passes sorted to satisfy their ``before`` and ``after``, and otherwise in the given order.

    Constraints hold for each occurrence of a pass that is listed several times; the occurrences keep
    their order.

    Args:
        passes: The passes.
        fixed: The number of leading passes that keep their relative order.

    Raises:
        PassError: The constraints contradict each other; names the passes of a cycle.
    """
    # Stable topological sort (Kahn's algorithm): of the passes that may run next, the first one given.
    earlier: dict[int, set[int]] = {index: set() for index in range(len(passes))}
    for index, item in enumerate(passes):
        if 0 < index < fixed:
            earlier[index].add(index - 1)
        for other_index, other in enumerate(passes):
            if other.name == item.name:
                continue
            if other.name in item.after or item.name in other.before:
                earlier[index].add(other_index)
    order: list[int] = []
    remaining = dict.fromkeys(range(len(passes)))
    while remaining:
        free = next((index for index in remaining if not earlier[index] & remaining.keys()), None)
        if free is None:
            names = _find_cycle(earlier, remaining, passes)
            raise PassError(
                f"the passes {' -> '.join(names)} must each run before the next",
                fix="remove one of them, or change its before= or after=",
            )
        del remaining[free]
        order.append(free)
    return [passes[index] for index in order]


def _find_cycle(earlier: dict[int, set[int]], among: Iterable[int], passes: Sequence[Pass]) -> list[str]:
    """Return the names on a cycle of constraints, each to come before the next; the first one is repeated."""
    # Every remaining pass waits for a remaining one: following predecessors must come back to a pass.
    among = list(among)
    seen: list[int] = []
    at = among[0]
    while at not in seen:
        seen.append(at)
        at = min(earlier[at] & set(among))
    cycle = seen[seen.index(at) :]
    return [passes[index].name for index in (at, *reversed(cycle))]
