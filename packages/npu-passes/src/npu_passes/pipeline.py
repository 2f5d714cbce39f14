"""Named sequences of passes, and the order of passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npu_passes.errors import PassError

if TYPE_CHECKING:
    from npu_passes.base import Pass


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named sequence of passes; a plugin offers some in its hook ``npu_pipelines``.

    Passes of any plugin join it that name it in their ``pipelines``.

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
PIPELINES = (
    Pipeline("minimal", MINIMAL, "Exact clean-up: the same ops on the same values, fewer of them."),
    Pipeline("default", DEFAULT, "Clean-up, folding of norms and biases into convolutions, and constants."),
    Pipeline(
        "fuse",
        f"{DEFAULT},fuse-attention,fuse-add-norm,fuse-linear-activation",
        "The default, then groups of ops that backends run as one.",
    ),
)


def ordered(passes: Sequence[Pass]) -> list[Pass]:
    """Return passes in an order that keeps to all their ``before`` and ``after``.

    They stay as given, but for what has to come earlier: that moves in front of the pass that wants it there. A pass
    that is there several times keeps its places: constraints hold for each of them.

    Raises:
        PassError: The constraints contradict each other; names the passes of a cycle.
    """
    earlier = [
        [
            index
            for index, other in enumerate(passes)
            if other.name != item.name and (other.name in item.after or item.name in other.before)
        ]
        for item in passes
    ]
    order: dict[int, None] = {}
    for index in range(len(passes)):
        _place(index, passes, earlier, order, ())
    return [passes[index] for index in order]


def _place(
    index: int,
    passes: Sequence[Pass],
    earlier: Sequence[Sequence[int]],
    order: dict[int, None],
    waiting: tuple[int, ...],
) -> None:
    """Put a pass behind those that have to come earlier; ``waiting`` are those that it has to come earlier than."""
    if index in order:
        return
    if index in waiting:
        cycle = (*waiting[waiting.index(index) :], index)
        raise PassError(
            f"the passes {' -> '.join(passes[at].name for at in reversed(cycle))} each want to come before the next",
            fix="take one of them out, or change its before= or after=",
        )
    for other in earlier[index]:
        _place(other, passes, earlier, order, (*waiting, index))
    order[index] = None
