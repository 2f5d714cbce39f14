"""Costs of the instructions of a program: bytes of memory traffic and floating-point operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_passes.manager.flops import FlopCounter
from npu_runtime._torch import share_memory
from npu_runtime.lowering.instruction import Step


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of the tensors that one call reads and writes; 0 for a view, which accesses no element."""

    read: int
    written: int


class TrafficMeter:
    """A meter of the calls of an instrumented executor.

    Args:
        steps: The instructions of the executor, in order.

    Attributes:
        seen: The traffic of each call, in order.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.seen: list[Traffic] = []

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same, and measures its traffic."""

        def call(*args: Any, **kwargs: Any) -> Any:
            inputs = list(_tensors((args, list(kwargs.values()))))
            result = function(*args, **kwargs)
            overwrites = self._steps[len(self.seen)].overwrites is not None
            self.seen.append(_traffic(inputs, list(_tensors(result)), overwrites=overwrites))
            return result

        return call


def _traffic(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, overwrites: bool) -> Traffic:
    own = [item for item in outputs if overwrites or not any(_share_memory(item, other) for other in inputs)]
    if outputs and not own:
        return Traffic(0, 0)
    distinct = {id(item): item for item in inputs}.values()
    return Traffic(sum(map(_size, distinct)), sum(map(_size, own)))


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, (tuple, list)):
        for part in item:
            yield from _tensors(part)


def _share_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.layout is right.layout is torch.strided and share_memory(left, right)


def _size(item: torch.Tensor) -> int:
    return item.numel() * item.element_size()


def step_flops(step: Step, count: FlopCounter) -> int | None:
    """Return the floating-point operations of an instruction; None if those of a node are unknown."""
    counts = [count(node) for node in step.nodes]
    return None if None in counts else sum(item for item in counts if item is not None)
