"""Tensors and random generators as they are now, to be put back bit by bit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch

from npu_ir.graph.binding import overlap


class Snapshot:
    """What tensors hold, and where random generators stand.

    Args:
        tensors: Strided ones; what several share is kept once per tensor, and put back the same.
        generators: Besides the default generator of each device that a tensor is on, and that of the CPU.
        devices: Further devices whose default generators are kept.
    """

    def __init__(
        self,
        tensors: Iterable[torch.Tensor],
        generators: Sequence[torch.Generator] = (),
        devices: Sequence[torch.device] = (),
    ) -> None:
        given = tuple(tensors)
        # PyTorch writes to no tensor whose elements share memory: those stay as they are by themselves.
        self._tensors = tuple(item.detach() for item in given if not overlap(item.shape, item.stride()))
        self._contents = tuple(item.clone() for item in self._tensors)
        places = {("cpu", 0), *(_place(item.device) for item in given), *map(_place, devices)}
        defaults = [_default_generator(device) for device in sorted(places)]
        self._generators = (*defaults, *generators)
        self._states = tuple(item.get_state() for item in self._generators)

    def restore(self) -> None:
        """Put everything back; the tensors keep their memory."""
        with torch.no_grad():
            for tensor, content in zip(self._tensors, self._contents, strict=True):
                tensor.copy_(content)
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)


@contextlib.contextmanager
def unchanged(
    tensors: Iterable[torch.Tensor], generators: Sequence[torch.Generator] = ()
) -> Iterator[Snapshot]:
    """Give tensors and random generators back what they held, whatever happens inside, errors included."""
    snapshot = Snapshot(tensors, generators)
    try:
        yield snapshot
    finally:
        snapshot.restore()


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


def _default_generator(place: tuple[str, int]) -> torch.Generator:
    kind, index = place
    if kind == "cuda":
        generator: torch.Generator = torch.cuda.default_generators[index]
        return generator
    return torch.default_generator
