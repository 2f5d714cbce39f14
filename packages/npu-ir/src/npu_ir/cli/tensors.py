"""Tensors for the inputs and weights that the command line does not give: empty, or random."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch

from npu_ir.errors import UsageError
from npu_ir.graph import Graph
from npu_ir.types import TensorType


def empty_tensor(type: TensorType) -> torch.Tensor:
    """Return a tensor of ``type`` without data, on ``meta``.

    Raises:
        UsageError: PyTorch makes no tensors of this type.
    """
    with _explained(type):
        if type.strides is None:
            return torch.empty(type.sizes, dtype=type.dtype, layout=type.layout, device="meta")
        return torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device="meta")


def random_tensor(type: TensorType, generator: torch.Generator, int_high: int) -> torch.Tensor:
    """Return random data of ``type`` on the CPU.

    Floats are normal with deviation 1, integers uniform from 0 to ``int_high - 1``, bools fair.

    Raises:
        UsageError: PyTorch cannot fill tensors of this dtype, or there is no memory.
    """
    with _explained(type):
        tensor = _random(type, generator, int_high).to(type.dtype)
        if type.layout is not torch.strided:
            return tensor.to_sparse(layout=type.layout)
        if type.strides is None or 0 in type.steps:
            return tensor
        return torch.empty_strided(type.sizes, type.steps, dtype=type.dtype).copy_(tensor)


@contextlib.contextmanager
def _explained(type: TensorType) -> Iterator[None]:
    """Name the type that PyTorch cannot make a tensor of."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise UsageError(
            f"PyTorch cannot make data of type {type}: {reason}",
            fix="take it from a file: --input NAME=@file.pt",
        ) from error


def _random(type: TensorType, generator: torch.Generator, int_high: int) -> torch.Tensor:
    if type.dtype.is_complex:
        wide = torch.complex128 if type.dtype == torch.complex128 else torch.complex64
        return torch.randn(type.sizes, dtype=wide, generator=generator)
    if type.dtype.is_floating_point:
        wide = torch.float64 if type.dtype == torch.float64 else torch.float32
        return torch.randn(type.sizes, dtype=wide, generator=generator)
    high = 2 if type.dtype == torch.bool else int_high
    return torch.randint(high, type.sizes, generator=generator)


def random_weights(graph: Graph, seed: int) -> dict[str, torch.Tensor]:
    """Return parameters and buffers for ``graph``, by ``state_dict`` key; the same for the same seed.

    Matrices and kernels are uniform within ``1 / sqrt(fan in)``, so that activations neither grow nor
    vanish. Everything else is uniform from 0 to 1, for it may be a variance; integers are 0 or 1.

    Raises:
        UsageError: PyTorch cannot fill tensors of one of the dtypes.
    """
    generator = torch.Generator().manual_seed(seed)
    return {name: _random_weight(type, generator) for name, type in needed_weights(graph)}


def needed_weights(graph: Graph) -> Iterator[tuple[str, TensorType]]:
    """Yield key and type of everything that ``graph`` must be given to be run, inputs aside."""
    for name, value in (*graph.parameters.items(), *graph.buffers.items()):
        if value.argument is not None and value.argument.data is None and isinstance(value.type, TensorType):
            yield name, value.type


def _random_weight(type: TensorType, generator: torch.Generator) -> torch.Tensor:
    if not type.dtype.is_floating_point:
        return random_tensor(type, generator, int_high=2)
    with _explained(type):
        tensor = torch.rand(type.sizes, generator=generator)
        if type.rank >= 2:
            tensor = (2 * tensor - 1) / math.sqrt(max(math.prod(type.sizes[1:]), 1))
        return tensor.to(type.dtype)
