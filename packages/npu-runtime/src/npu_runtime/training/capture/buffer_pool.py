"""The owner of all memory that a captured step works on: everything is there before the capture begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from npu_ir import TensorType
from npu_runtime.errors import CaptureError
from npu_runtime.probing.storage import extent
from npu_runtime.training.capture.capture_state import in_capture, require_outside_capture

_LISTED = 8


@dataclass(frozen=True, slots=True)
class BufferStats:
    """What a pool holds, and how it was used.

    Attributes:
        planned: Buffers that the plan put there.
        added: Buffers that were allocated later, by name, outside of any capture.
        bytes: Of distinct memory; buffers that share memory count once.
        gets: How often a buffer was asked for.
    """

    planned: int
    added: int
    bytes: int
    gets: int

    def to_dict(self) -> dict[str, int]:
        """Return them as plain data."""
        return asdict(self)


class BufferPool:
    """Fixed buffers by name. In a capture or a replay it hands out what there is, and allocates nothing.

    Args:
        planned: The buffers of a plan, by the name of their value.
        device: Where further buffers are allocated.
    """

    def __init__(self, planned: Mapping[str, torch.Tensor], device: torch.device) -> None:
        self.device = device
        self._planned = dict(planned)
        self._added: dict[str, torch.Tensor] = {}
        self._gets = 0

    def get(self, name: str, type: TensorType | None = None) -> torch.Tensor:
        """Return the buffer of this name, the same one each time.

        Args:
            name: Of a value of the plan, or any other.
            type: What a buffer that is not there yet is to be; it is allocated.

        Raises:
            CaptureError: There is none, and either this is a capture or no type is given; or it is of another type.
        """
        self._gets += 1
        found = self._planned.get(name)
        if found is None:
            found = self._added.get(name)
        if found is None:
            return self._allocated(name, type)
        if type is not None and TensorType.of(found) != type:
            raise CaptureError(
                f"the buffer {name!r} is {TensorType.of(found)}, not {type}",
                where="BufferPool.get",
                fix="buffers never change: use another name for a tensor of another type",
            )
        return found

    def _allocated(self, name: str, type: TensorType | None) -> torch.Tensor:
        if in_capture():
            raise CaptureError(
                f"there is no buffer {name!r}, and none is allocated in a capture or a replay",
                where="BufferPool.get",
                fix="run the step once before the capture (warmup_capture_safe), so that every buffer is there",
            )
        if type is None:
            known = ", ".join(list(self)[:_LISTED])
            raise CaptureError(
                f"there is no buffer {name!r}",
                where="BufferPool.get",
                fix=f"give its type, to have it allocated; there are {known or 'no buffers'}"
                f"{', ...' if len(self) > _LISTED else ''}",
            )
        made = torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device=self.device)
        self._added[name] = made
        return made

    def reset(self) -> None:
        """Forget the buffers that were added; those of the plan stay.

        Raises:
            CaptureError: This thread is capturing or replaying.
        """
        require_outside_capture("BufferPool.reset()")
        self._added.clear()
        self._gets = 0

    def pointers(self) -> dict[str, int]:
        """Return the address of each buffer."""
        return {name: tensor.data_ptr() for name, tensor in self._items()}

    def stats(self) -> BufferStats:
        """Return what is held, and how often it was asked for."""
        return BufferStats(len(self._planned), len(self._added), self.nbytes, self._gets)

    @property
    def nbytes(self) -> int:
        """How many bytes the buffers lie in; memory that several share counts once."""
        spans = sorted(
            (tensor.data_ptr(), tensor.data_ptr() + extent(tensor) * tensor.element_size())
            for _, tensor in self._items()
        )
        total = reached = 0
        for begin, end in spans:
            total += max(0, end - max(begin, reached))
            reached = max(reached, end)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Return what is held as plain data, without addresses: the same for every run."""
        return {name: str(TensorType.of(tensor)) for name, tensor in self._items()}

    def __contains__(self, name: object) -> bool:
        return name in self._planned or name in self._added

    def __iter__(self) -> Iterator[str]:
        yield from self._planned
        yield from self._added

    def __len__(self) -> int:
        return len(self._planned) + len(self._added)

    def _items(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._planned.items()
        yield from self._added.items()
