"""Snapshots of tensors and random generators, restored bit by bit; and warm-ups, which leave no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_ir.core.storage import may_self_overlap
from npu_runtime.errors import CaptureError
from npu_runtime.training.capture.capture_state import require_outside_capture


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


class Warmable(Protocol):
    """A program over fixed memory that can be warmed up, such as a `PlannedProgram`."""

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The tensors that a run mutates, by name: parameters, buffers, optimizer state."""

    def run(self, *numbers: Any) -> Any:
        """Run one step on the contents of the inputs."""


def warmup_capture_safe(
    program: Warmable,
    runs: int = 2,
    sync: bool = True,
    *,
    numbers: Sequence[Any] = (),
    generators: Sequence[torch.Generator] = (),
) -> None:
    """Run a program to load kernels and touch memory, then restore its state bit by bit.

    Parameters, buffers, optimizer state and random generators (those of the CPU and of each device with
    state) hold afterwards what they held before, also if a run raises.

    Args:
        program: The program; its inputs must have valid contents.
        runs: The number of runs.
        sync: Wait for the device after each run, so that its errors are raised here.
        numbers: The arguments of ``program.run``, such as learning rates.
        generators: Further generators that the step draws from.

    Raises:
        CaptureError: This thread is capturing or replaying; or ``runs`` is not positive.
    """
    require_outside_capture("a warm-up")
    if type(runs) is not int or runs < 1:
        raise CaptureError(f"a warm-up runs at least once, not {runs!r} times", fix="warmup_runs=2 is usual")
    tensors = list(program.state.values())
    with preserve_state(tensors, generators) as snapshot:
        for index in range(runs):
            if index:
                snapshot.restore()  # each run starts from the same state: repetition must not overflow
            program.run(*numbers)
            if sync:
                synchronize(tensors)


def synchronize(tensors: Sequence[torch.Tensor]) -> None:
    """Wait for each CUDA device that one of these tensors is on."""
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
