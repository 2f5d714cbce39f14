"""The pool of all buffers of a captured step, which are allocated before the capture begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.core.storage import address_range
from npu_runtime.errors import CaptureError
from npu_runtime.training.capture.capture_state import in_capture, require_outside_capture

_MAX_LISTED = 8


@dataclass(frozen=True, slots=True)
class BufferStats:
    """The size and usage of a pool.

    Attributes:
        planned: The number of buffers of the plan.
        added: The number of buffers allocated later, by name, outside of captures.
        bytes: Bytes of memory; shared memory counts once.
        gets: The number of calls of `BufferPool.get`.
    """

    planned: int
    added: int
    bytes: int
    gets: int

    def to_dict(self) -> dict[str, int]:
        """Return the fields as plain data."""
        return asdict(self)


class BufferPool:
    """Fixed buffers by name; during a capture or a replay the pool allocates none.

    Args:
        planned: The buffers of a plan, by the name of their value.
        device: The device of further buffers.
    """

    def __init__(self, planned: Mapping[str, torch.Tensor], device: torch.device) -> None:
        self.device = device
        self._planned = dict(planned)
        self._added: dict[str, torch.Tensor] = {}
        self._gets = 0

    def get(self, name: str, type: TensorType | None = None) -> torch.Tensor:
        """Return the buffer of this name, the same one each time.

        Args:
            name: The name of a value of the plan, or any other.
            type: The type of the buffer; one that does not exist is allocated with it.

        Raises:
            CaptureError: It does not exist, and either this is a capture or no type is given; or it has
                another type.
        """
        self._gets += 1
        buffer = self._planned.get(name)
        if buffer is None:
            buffer = self._added.get(name)
        if buffer is None:
            return self._allocate(name, type)
        if type is not None and TensorType.of(buffer) != type:
            raise CaptureError(
                f"the buffer {name!r} is {TensorType.of(buffer)}, not {type}",
                where="BufferPool.get",
                fix="buffers never change: use another name for a tensor of another type",
            )
        return buffer

    def _allocate(self, name: str, type: TensorType | None) -> torch.Tensor:
        if in_capture():
            raise CaptureError(
                f"there is no buffer {name!r}, and none is allocated in a capture or a replay",
                where="BufferPool.get",
                fix="run the step once before the capture (warmup_capture_safe), "
                "so that every buffer is there",
            )
        if type is None:
            known = ", ".join(list(self)[:_MAX_LISTED])
            raise CaptureError(
                f"there is no buffer {name!r}",
                where="BufferPool.get",
                fix=f"give its type, to have it allocated; there are {known or 'no buffers'}"
                f"{', ...' if len(self) > _MAX_LISTED else ''}",
            )
        buffer = torch.empty_strided(
            type.static_shape, type.static_strides, dtype=type.dtype, device=self.device
        )
        self._added[name] = buffer
        return buffer

    def reset(self) -> None:
        """Drop the added buffers; those of the plan stay.

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
        """Return the size and usage of the pool."""
        return BufferStats(len(self._planned), len(self._added), self.nbytes, self._gets)

    @property
    def nbytes(self) -> int:
        """The bytes of memory of all buffers; shared memory counts once."""
        spans = sorted(address_range(tensor) for _, tensor in self._items())
        # The length of a union of intervals, in one sweep over them by start: `reached` is the end so far.
        total = reached = 0
        for begin, end in spans:
            total += max(0, end - max(begin, reached))
            reached = max(reached, end)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Return the type of each buffer as plain data, without addresses: the same for every run."""
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
