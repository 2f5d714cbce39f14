"""A ring of batches in fixed memory: a thread fills it, while steps are taken on it without Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.plugins.backend import StepLoop
from npu_runtime._torch.fast_calls import copy_all
from npu_runtime._torch.state import below_autograd
from npu_runtime.training.batches import Batch
from npu_runtime.training.capture.capture_state import activity
from npu_runtime.training.compiled_step import CompiledStep
from npu_runtime.training.stacked_results import StackedResults

_SLOTS = 4
# The most steps, and bytes of results, between two visits to Python.
_MAX_ROWS, _MAX_ROW_BYTES = 4096, 2**24
# Python handles signals, such as that of Ctrl-C, after this time.
_SECONDS = 0.1


class RingBuffer:
    """A few slots for batches of one signature, and the loop of a compiled step over them.

    Attributes:
        thread: The thread that fills the slots.
    """

    def __init__(self, step: CompiledStep, loop: StepLoop, slots: Sequence[Sequence[torch.Tensor]]) -> None:
        self._step, self._loop, self._slots = step, loop, slots
        self._rest: Batch | None = None
        self._error: BaseException | None = None
        self.thread: threading.Thread | None = None

    @classmethod
    def of(cls, step: CompiledStep, numbers: Sequence[Any]) -> RingBuffer | None:
        """Return a ring; None for a step that needs Python, or that writes to its batch, which is to see it.

        Args:
            step: The step of a model.
            numbers: Its scalar inputs, the same for all steps.
        """
        tensors = [value for value in step.graph.inputs if isinstance(value.type, TensorType)]
        if any(value in step.graph.updates for value in tensors):
            return None
        fixed = [item for item in step.runner.inputs if item is not None]
        slots = [
            [torch.empty_strided(item.shape, item.stride(), dtype=item.dtype) for item in fixed]
            for _ in range(_SLOTS)
        ]
        loop = step.make_loop(numbers, slots)
        return None if loop is None else cls(step, loop, slots)

    def run(self, batches: Iterator[Batch], results: StackedResults) -> Batch | None:
        """Take a step on each batch, up to one of another signature; return that one, None after the last.

        Raises:
            BaseException: Whatever a step or the iterator raises. The results before are kept.
        """
        self.thread = threading.Thread(target=self._fill, args=(batches,), name="npu-batches", daemon=True)
        self.thread.start()
        try:
            self._take_steps(results)
        finally:
            self._loop.close()
            self.thread.join()
        if self._error is not None:
            raise self._error
        return self._rest

    def _fill(self, batches: Iterator[Batch]) -> None:
        try:
            for batch in batches:
                bound = self._step.bind_batch(*batch)
                if bound is None:
                    self._rest = batch
                    break
                slot = self._loop.reserve()
                if slot < 0:
                    break
                with below_autograd():  # a tensor of the batch may require a gradient
                    copy_all(self._slots[slot], bound[0])
                self._loop.push()
        except BaseException as error:  # noqa: BLE001 - raised by the other thread
            self._error = error
        finally:
            self._loop.end()

    def _take_steps(self, results: StackedResults) -> None:
        row_bytes = sum(item.nbytes for item in make_rows(self._step, 1))
        limit = max(1, min(_MAX_ROWS, _MAX_ROW_BYTES // max(1, row_bytes)))
        is_over = False
        while not is_over:
            rows = make_rows(self._step, limit)
            start, taken = self._loop.steps_taken, 0
            try:
                while not is_over and taken < limit:
                    is_over = self._run([row[taken:] for row in rows], limit - taken)
                    taken = self._loop.steps_taken - start
            finally:
                taken = self._loop.steps_taken - start
                results.extend(taken, [row[:taken] for row in rows], self._step.graph.results[0])

    def _run(self, rows: list[torch.Tensor], limit: int) -> bool:
        try:
            with activity("replay"):
                return self._loop.run(rows, limit, _SECONDS)
        except Exception:
            assert self._step.program is not None
            self._step.program.compute()  # its error names the node
            raise


def make_rows(step: CompiledStep, count: int) -> list[torch.Tensor]:
    """Return memory for the results of so many steps: for each result a tensor with a row for each step."""
    types = [item.tensor_type for item in step.graph.results[1]]
    return [torch.empty((count, *type.static_shape), dtype=type.dtype, device=step.device) for type in types]
