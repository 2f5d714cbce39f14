"""Random inputs and weights for a graph."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from npu_ir.core.node import Value
from npu_ir.core.structure import unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.core.types import TensorType
from npu_ir.errors import UsageError
from npu_ir.graph.graph import Graph
from npu_ir.interpreter.size_choice import choose_sizes
from npu_ir.symbolic.expressions import Expr


def random_call(
    graph: Graph, seed: int = 0, int_high: int = 2, sizes: Mapping[str, int] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments for a call of ``graph``, deterministic for a given seed.

    Args:
        graph: Any graph.
        seed: Seed of the random generator.
        int_high: Integers are uniform from 0 to ``int_high - 1``.
        sizes: Values of symbols; the others get the smallest value that the graph allows, from 2 on.

    Raises:
        UsageError: A size is not possible, none is found, an input is an integer or bool of unknown value, or
            PyTorch cannot fill tensors of one of the dtypes.
    """
    generator = torch.Generator().manual_seed(seed)
    values = dict(SymbolValues(graph.symbols).values)
    values.update(choose_sizes(graph, values, sizes or {}))
    structure, leaves = graph.call
    contents: dict[Value, Any] = {}
    for leaf in leaves:
        if isinstance(leaf, Value) and leaf not in contents:
            contents[leaf] = make_input(leaf, values, lambda type: random_tensor(type, generator, int_high))
    filled = [contents[leaf] if isinstance(leaf, Value) else leaf for leaf in leaves]
    args, kwargs = unflatten(structure, filled)
    return args, kwargs


def make_input(value: Value, sizes: Mapping[str, int], fill: Callable[[TensorType], torch.Tensor]) -> Any:
    """Return a tensor or number for an input without a given value.

    ``sizes`` has the values of the symbols in its type; ``fill`` returns a tensor of a type without symbols.

    Returns:
        A tensor from ``fill``, the value that the type states for an integer, or for a float a random number
        between 0 and 1, as a dropout rate is.

    Raises:
        UsageError: It is an integer or a bool of unknown value.
    """
    type = value.type.substitute(sizes)
    if isinstance(type, TensorType):
        return fill(type)
    if type.kind == "float":
        return fill(TensorType((), torch.float64)).sigmoid().item()
    if type.value is None or isinstance(type.value, Expr):
        raise UsageError(f"input {value!r} is not given", fix=f"--input {value.name}=VALUE")
    return type.value


def random_weights(graph: Graph, seed: int) -> dict[str, torch.Tensor]:
    """Return parameters, buffers and optimizer state for ``graph`` by name, deterministic for a given seed.

    Matrices and kernels are uniform within ``1 / sqrt(fan in)``, so that activations neither grow nor
    vanish. Everything else, optimizer state of any shape included, is uniform from 0 to 1, since it may be
    a variance; integers are 0 or 1.

    Raises:
        UsageError: PyTorch cannot fill tensors of one of the dtypes, or memory does not suffice.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, type in needed_weights(graph):
        try:
            weights[name] = _random_weight(type, generator, is_signed=name not in graph.optimizer_state)
        except UsageError as error:
            problem = f"weight {name!r}: {error.message}"
            raise UsageError(problem, fix="give weights: --weights FILE") from error
    return weights


def needed_weights(graph: Graph) -> Iterator[tuple[str, TensorType]]:
    """Yield the key and type of every weight that ``graph`` needs and does not contain."""
    for value in graph.weights:
        if value.data is None and isinstance(value.type, TensorType):
            yield value.target, value.type


def random_tensor(type: TensorType, generator: torch.Generator, int_high: int) -> torch.Tensor:
    """Return random data of ``type`` on the CPU.

    Floats are standard normal, integers uniform from 0 to ``int_high - 1``, bools uniform.

    Raises:
        UsageError: PyTorch cannot fill tensors of this dtype, or memory does not suffice.
    """
    with translated_errors(type):
        tensor = _random_values(type, generator, int_high).to(type.dtype)
        if type.layout is not torch.strided:
            return tensor.to_sparse(layout=type.layout)
        # copy_ refuses to write into an expanded tensor (stride 0); such an input is passed contiguous.
        if type.strides is None or 0 in type.static_strides:
            return tensor
        return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype).copy_(tensor)


def _random_values(type: TensorType, generator: torch.Generator, int_high: int) -> torch.Tensor:
    if type.dtype.is_complex or type.dtype.is_floating_point:
        default = torch.complex64 if type.dtype.is_complex else torch.float32
        wide = type.dtype if type.dtype in (torch.complex128, torch.float64) else default
        return torch.randn(type.static_shape, dtype=wide, generator=generator)
    high = 2 if type.dtype == torch.bool else int_high
    return torch.randint(high, type.static_shape, generator=generator)


def _random_weight(type: TensorType, generator: torch.Generator, *, is_signed: bool) -> torch.Tensor:
    if not type.dtype.is_floating_point:
        return random_tensor(type, generator, int_high=2)
    with translated_errors(type):
        tensor = torch.rand(type.static_shape, generator=generator)
        if is_signed and type.rank >= 2:
            tensor = (2 * tensor - 1) / math.sqrt(max(math.prod(type.static_shape[1:]), 1))
        return tensor.to(type.dtype)


@contextlib.contextmanager
def translated_errors(type: TensorType) -> Iterator[None]:
    """Convert errors of PyTorch to a `UsageError` that names the type of the tensor."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise UsageError(
            f"PyTorch cannot make data of type {type}: {reason}",
            fix="take it from a file: --input NAME=@file.pt",
        ) from error
