"""Snapshots of tensors and random generators, to restore them bit by bit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch

from npu_ir.core.storage import may_self_overlap


class Snapshot:
    """The contents of tensors and the states of random generators.

    Args:
        tensors: Strided tensors; memory that several share is saved once per tensor.
        generators: Generators besides the default ones of the CPU and of each device that a tensor is on.
        devices: Further devices whose default generators are saved.
    """

    def __init__(
        self,
        tensors: Iterable[torch.Tensor],
        generators: Sequence[torch.Generator] = (),
        devices: Sequence[torch.device] = (),
    ) -> None:
        tensors = tuple(tensors)
        # PyTorch refuses to write to a tensor whose elements overlap, so a step cannot change one either.
        self._tensors = tuple(
            item.detach() for item in tensors if not may_self_overlap(item.shape, item.stride())
        )
        self._contents = tuple(item.clone() for item in self._tensors)
        keys = {("cpu", 0), *(_generator_key(item.device) for item in tensors), *map(_generator_key, devices)}
        defaults = [_default_generator(key) for key in sorted(keys)]
        self._generators = (*defaults, *generators)
        self._states = tuple(item.get_state() for item in self._generators)

    def restore(self) -> None:
        """Restore contents and states; the tensors keep their memory."""
        with torch.no_grad():
            for tensor, content in zip(self._tensors, self._contents, strict=True):
                tensor.copy_(content)
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)


@contextlib.contextmanager
def preserve_state(
    tensors: Iterable[torch.Tensor], generators: Sequence[torch.Generator] = ()
) -> Iterator[Snapshot]:
    """Restore tensors and random generators after the block, also if it raises."""
    snapshot = Snapshot(tensors, generators)
    try:
        yield snapshot
    finally:
        snapshot.restore()


def _generator_key(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


def _default_generator(place: tuple[str, int]) -> torch.Generator:
    kind, index = place
    if kind == "cuda":
        generator: torch.Generator = torch.cuda.default_generators[index]
        return generator
    return torch.default_generator
