"""Programs bound to fixed memory, and loops that run them again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from npu_cuda import _C
from npu_cuda.backend.program import PreparedProgram, ProgramInstance
from npu_cuda.errors import NpuCudaError
from npu_ir import BackendError

if TYPE_CHECKING:
    from npu_cuda.backend.native import NativeBackend


class BoundProgram:
    """A program bound to fixed memory: what `Backend.bind` returns.

    Attributes:
        native: The native program.
        copies: Pairs of an output that no op of it writes, and what is copied there after each run.
    """

    def __init__(
        self,
        backend: NativeBackend,
        program: PreparedProgram,
        instance: ProgramInstance,
        inputs: Sequence[Any],
        copies: Sequence[tuple[Any, Any]],
    ) -> None:
        self._backend, self._program = backend, program
        self._instance, self._inputs = instance, inputs
        self.native = instance.native
        self.copies = copies

    def __call__(self) -> None:
        backend, device = self._backend, self._program.device
        try:
            self.native.run(backend.stream(device))
            backend.finish(device)
        except NpuCudaError as error:
            raise self.error_of(error) from error
        for output, source in self.copies:
            copy_elements(source, output)

    @property
    def writes_in_place(self) -> bool:
        """True if a run overwrites rows of inputs."""
        return bool(self._program.updates)

    def begin(self) -> None:
        """Note that it is about to write to its inputs."""
        self._program.begin(self._instance, self._inputs)

    def undo(self) -> None:
        """Restore the inputs, if the last run since `begin` has written to them."""
        self._program.undo(self._inputs)

    def error_of(self, error: NpuCudaError) -> BackendError:
        """Return an error of the native program as one that names the nodes."""
        return self._backend.backend_error(error, self._program.ops)


class BoundRowLoop:
    """A loop over programs of the CPU: what `Backend.make_row_loop` returns.

    Args:
        runs: The programs.
        inputs: As for `Backend.make_row_loop`, like the next two.
        results: Likewise.
        stop: Likewise.
    """

    def __init__(
        self,
        runs: Sequence[BoundProgram],
        inputs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        results: Sequence[tuple[torch.Tensor, torch.Tensor]],
        stop: tuple[Sequence[int], torch.Tensor] | None,
    ) -> None:
        fixed, given = [item[0] for item in inputs], [item[1] for item in inputs]
        left, kept = [item[0] for item in results], [item[1] for item in results]
        numbers, ended = (None, None) if stop is None else (list(stop[0]), stop[1])
        programs = [run.native for run in runs]
        self._runs = runs
        self._writing = [run for run in runs if run.writes_in_place]
        self._native = _C.RowLoop(programs, fixed, given, left, kept, len(kept[0]), numbers, ended)

    @property
    def steps_taken(self) -> int:
        """The number of steps that all calls of `run` have taken."""
        return self._native.steps_taken

    def run(self, limit: int, seconds: float) -> bool:
        """Take steps, as `npu_ir.plugins.backend.RowLoop` says."""
        use_threads_of_pytorch()
        for run in self._writing:
            run.begin()
        try:
            return self._native.run(limit, seconds)
        except BaseException as error:  # kernels in Python raise errors of their own
            failed = self._native.failed_program
            if failed is None:  # an interrupt after a step
                raise
            for run in reversed(self._writing):
                run.undo()
            if isinstance(error, NpuCudaError):
                raise self._runs[failed].error_of(error) from error
            raise


def use_threads_of_pytorch() -> None:
    """Have native kernels use as many threads as PyTorch."""
    count = torch.get_num_threads()
    if count != _C.thread_count():
        _C.set_thread_count(count)


def copy_elements(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy elements into a tensor of the same strides, those that an expanded one shares once."""
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in target.stride())
    target[once].copy_(source[once])
