"""`PlanMemo`: results of planning that take long to compute, to be used again for the same graph."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_runtime.planned.arena import Span, assign_offsets


@dataclass(frozen=True, slots=True)
class PlanMemo:
    """Results of planning by the content that they follow from; planning extends it.

    They hold for the versions and the machine that they come from, and contain plain data only.

    Attributes:
        traits: Records of call traits, by the digest of a call; None where none could be observed.
        offsets: The offsets in an arena and its size, by the digest of its spans.
    """

    traits: dict[str, Any] = field(default_factory=dict)
    offsets: dict[str, list[Any]] = field(default_factory=dict)

    def assign_offsets(self, spans: Sequence[Span]) -> tuple[list[int], int]:
        """Return what `assign_offsets` of the arena does, which is computed once."""
        text = repr([(span.bytes, span.first, span.last) for span in spans])
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in self.offsets:
            self.offsets[digest] = list(assign_offsets(spans))
        offsets, size = self.offsets[digest]
        return offsets, size
