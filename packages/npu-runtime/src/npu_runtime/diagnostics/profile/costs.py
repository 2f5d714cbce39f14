"""Costs of the instructions of a program: bytes of memory traffic and floating-point operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.storage import shares_memory
from npu_ir.ops.execution import flatten_results
from npu_passes.manager.statistics import FlopCounter
from npu_runtime.lowering.instruction import Instruction


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of the tensors that one call reads and writes; 0 for a view, which accesses no element."""

    read: int
    written: int


class TrafficMeter:
    """A meter of the calls of an instrumented executor.

    Args:
        instructions: The instructions of the executor, in order.

    Attributes:
        traffic: The traffic of each call, in order.
    """

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._instructions = instructions
        self.traffic: list[Traffic] = []

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same, and measures its traffic."""

        def call(*args: Any, **kwargs: Any) -> Any:
            inputs = _select_tensors((args, list(kwargs.values())))
            result = function(*args, **kwargs)
            overwrites = self._instructions[len(self.traffic)].overwrites is not None
            self.traffic.append(_measure_traffic(inputs, _select_tensors(result), overwrites=overwrites))
            return result

        return call


def _measure_traffic(
    inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, overwrites: bool
) -> Traffic:
    own = [item for item in outputs if overwrites or not any(shares_memory(item, other) for other in inputs)]
    if outputs and not own:
        return Traffic(0, 0)
    distinct = {id(item): item for item in inputs}.values()
    return Traffic(sum(map(_nbytes, distinct)), sum(map(_nbytes, own)))


def _select_tensors(items: Any) -> list[torch.Tensor]:
    return [item for item in flatten_results(items) if isinstance(item, torch.Tensor)]


def _nbytes(item: torch.Tensor) -> int:
    return item.numel() * item.element_size()


def instruction_flops(instruction: Instruction, count: FlopCounter) -> int | None:
    """Return the floating-point operations of an instruction; None if those of a node are unknown."""
    counts = [count(node) for node in instruction.nodes]
    return None if None in counts else sum(item for item in counts if item is not None)
