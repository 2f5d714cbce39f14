"""Data to try ops on: weights where they are known, all else made up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.types import Type
from npu_runtime.probing.storage import extent, is_inexact, is_laid_out

_SEED = 0
_NOISE = 65_537  # a prime number: rows of a matrix differ
_APART = 7_919
_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 0.75, "none": None}
# What ops treat in another way than other numbers: where they return an argument as it is.
_SPECIAL: dict[str, tuple[Any, ...]] = {"bool": (False,), "int": (0, 2), "float": (0.0, 1.0), "none": ()}


class ProbeData:
    """Makes inputs for nodes; always the same for the same nodes in the same order.

    Args:
        device: Where.
        known: The weights, and what the prologue made of them: they are read, not made up.
        sizes: What to take for symbols.
    """

    def __init__(self, device: torch.device, known: Mapping[Value, Any], sizes: Mapping[str, int]) -> None:
        self._device = device
        # Others that have the same type need not be laid out as this one happens to be.
        self._known = {value: item for value, item in known.items() if is_laid_out(item, value.type)}
        self._sizes = sizes
        self._generator = torch.Generator().manual_seed(_SEED)
        noise = torch.randn(_NOISE, generator=self._generator, device="cpu").to(device)
        self._noise = torch.cat([noise, noise])

    def inputs_of(self, node: OpNode) -> list[Any]:
        """Return an input for each of ``node.inputs``."""
        made: dict[Value, Any] = {}
        for value in node.inputs:
            if value not in made:
                known = self._known.get(value)
                type = value.type.substitute(self._sizes)
                made[value] = self._made_up(value, type, len(made)) if known is None else known
        return [made[value] for value in node.inputs]

    def with_other_numbers(self, node: OpNode, data: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield ``data``, inputs of ``node``, with special values in the place of one number that calls give."""
        for value in dict.fromkeys(node.inputs):
            if isinstance(value.type, TensorType) or value.type.value is not None:
                continue
            for special in _SPECIAL[value.type.kind]:
                pairs = zip(node.inputs, data, strict=True)
                yield [special if given is value else item for given, item in pairs]

    def _made_up(self, value: Value, type: Type, number: int) -> Any:
        if not isinstance(type, TensorType):
            return _NUMBERS[type.kind] if type.value is None else type.value
        tensor = torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device=self._device)
        flat = tensor.as_strided((extent(tensor),), (1,))
        if not is_inexact(tensor):
            # Whatever is indexed has an element 0, and mostly an element 1.
            high = 2 if _may_be_one(value) else 1
            flat.copy_(torch.randint(high, flat.shape, generator=self._generator, device="cpu"))
            return tensor
        # Drawing numbers takes longer than most ops do: some are drawn once, and repeated, for each input from
        # another place on.
        noise = self._noise[number * _APART % _NOISE :]
        for start in range(0, len(flat), _NOISE):
            part = flat[start : start + _NOISE]
            part.copy_(noise[: len(part)])
        return tensor


def _may_be_one(value: Value) -> bool:
    """Whether no index of 1 can be out of range: nothing that reads the value is smaller."""
    types = [item.type for node in value.users for item in node.inputs]
    return all(size != 1 for type in types if isinstance(type, TensorType) for size in type.shape)
