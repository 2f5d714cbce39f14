"""Sample inputs for op probes: the weights where known, synthetic data elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.storage import element_span
from npu_ir.core.types import Type
from npu_runtime.probing.storage import has_stated_strides, is_inexact

_SEED = 0
_NOISE = 65_537  # a prime period: rows of a matrix differ
_NOISE_SHIFT = 7_919
# Where samples start in their storage, in elements. It tells ops that keep the offset of an input
# (`slice_scatter`) from those that start a storage. New tensors are aligned to 64 bytes, and so are these.
_OFFSET = 64
_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 0.75, "none": None}
# Numbers for which ops take a shortcut, such as returning an argument itself.
_SPECIAL: dict[str, tuple[Any, ...]] = {"bool": (False,), "int": (0, 2), "float": (0.0, 1.0), "none": ()}


class SampleInputs:
    """Generator of sample inputs for nodes; deterministic for the same nodes in the same order.

    Args:
        device: The device of the tensors.
        known: Weights and prologue outputs, used as they are.
        sizes: The values of symbols.
    """

    def __init__(self, device: torch.device, known: Mapping[Value, Any], sizes: Mapping[str, int]) -> None:
        self._device = device
        self._known = known
        self._sizes = sizes

    @functools.cached_property
    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(_SEED)

    @functools.cached_property
    def _noise(self) -> torch.Tensor:
        noise = torch.randn(_NOISE, generator=torch.Generator().manual_seed(_SEED), device="cpu")
        return noise.to(self._device).repeat(2)

    def sample_inputs(self, node: OpNode) -> list[Any]:
        """Return an input for each of ``node.inputs``."""
        samples: dict[Value, Any] = {}
        results = {value.type for value in node.outputs}
        for value in node.inputs:
            if value not in samples:
                known = self._known.get(value)
                # A tensor with other strides than its type is not representative of weights loaded later.
                is_usable = known is not None and has_stated_strides(known, value.type)
                type = value.type.substitute(self._sizes)
                if not is_usable:
                    samples[value] = self._synthesize(value, type, len(samples))
                else:  # its offset may be another one later, and an output of its type may have that
                    samples[value] = _moved(known) if value.type in results else known
        return [samples[value] for value in node.inputs]

    def with_special_numbers(self, node: OpNode, data: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield ``data``, the inputs of ``node``, with one unknown number replaced by a special one."""
        for value in dict.fromkeys(node.inputs):
            if isinstance(value.type, TensorType) or value.type.value is not None:
                continue
            for special in _SPECIAL[value.type.kind]:
                pairs = zip(node.inputs, data, strict=True)
                yield [special if other is value else item for other, item in pairs]

    def _synthesize(self, value: Value, type: Type, number: int) -> Any:
        if not isinstance(type, TensorType):
            return _NUMBERS[type.kind] if type.value is None else type.value
        shape, strides = type.static_shape, type.static_strides
        span = element_span(shape, strides)
        memory = torch.empty(_OFFSET + span, dtype=type.dtype, device=self._device)
        tensor, flat = memory.as_strided(shape, strides, _OFFSET), memory[_OFFSET:]
        if not is_inexact(tensor):
            # Integers may be indices: 0 is valid, and 1 mostly.
            high = 2 if _is_one_in_range(value) else 1
            flat.copy_(torch.randint(high, flat.shape, generator=self._generator, device="cpu"))
            return tensor
        # Drawing random numbers takes longer than most ops: one block is drawn once and repeated, with
        # another offset for each input.
        noise = self._noise[number * _NOISE_SHIFT % _NOISE :]
        for start in range(0, len(flat), _NOISE):
            part = flat[start : start + _NOISE]
            part.copy_(noise[: len(part)])
        return tensor


def _moved(known: Any) -> Any:
    """Return a copy of a tensor with its strides that does not start its storage; anything else as it is."""
    if not isinstance(known, torch.Tensor) or known.layout is not torch.strided or known.is_quantized:
        return known
    span = element_span(known.shape, known.stride())
    memory = known.new_empty(_OFFSET + span)
    memory[_OFFSET:].copy_(known.as_strided((span,), (1,)))
    return memory.as_strided(known.shape, known.stride(), _OFFSET)


def _is_one_in_range(value: Value) -> bool:
    """Return whether the index 1 is valid: no tensor read together with the value has an axis of size 1."""
    types = [item.type for node in value.users for item in node.inputs]
    return all(size != 1 for type in types if isinstance(type, TensorType) for size in type.shape)
