"""Calls of PyTorch's operators on its own samples, each as a module to capture.

The samples are those of OpInfo, a part of PyTorch that needs the packages expecttest and NumPy. It has
many for each operator and dtype: a few are chosen that differ.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir._torch import op_samples
from npu_ir._torch.pytree import flatten_tree, tree_leaves
from npu_ir.core.user_code import did_you_mean
from npu_ir.errors import UsageError

# The dtypes in the order in which an operator's main one is chosen.
_DTYPES = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int32,
    torch.uint8,
    torch.int16,
    torch.int8,
    torch.complex128,
    torch.complex32,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)
# Operators that return memory as they find it: only structure, shapes and dtypes can be compared.
UNINITIALIZED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an operator.

    Attributes:
        operator: The name of the operator in PyTorch's database.
        variant: Its form: a function, a method, in place, ...
        dtype: The dtype of the sample.
        sample: The number of the sample, and its layout.
        function: The function to call: the operator, its method or its in-place variant.
        tensors: The tensors among the arguments, flat; never changed.
        arguments: Puts tensors in their places and returns positional and keyword arguments.
    """

    operator: str
    variant: str
    dtype: torch.dtype
    sample: str
    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    arguments: Callable[[Sequence[torch.Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]

    def fresh_tensors(self) -> tuple[torch.Tensor, ...]:
        """Return copies with the same strides, that share memory where the originals do."""
        memo: dict[int, Any] = {}
        return tuple(
            copy.deepcopy(tensor, memo) if _is_strided(tensor) else tensor.clone() for tensor in self.tensors
        )


class OpModule(torch.nn.Module):
    """A model that consists of one call of an operator."""

    def __init__(self, call: OpCall) -> None:
        super().__init__()
        self._call = call

    def forward(self, *tensors: torch.Tensor) -> Any:
        args, kwargs = self._call.arguments(tensors)
        return self._call.function(*args, **kwargs)


def operators() -> dict[str, Any]:
    """Return the operators of PyTorch's database by full name; loading it takes some seconds.

    Raises:
        UsageError: This PyTorch has no such database, or a package that it needs is missing.
    """
    try:
        return op_samples.operators()
    except ImportError as error:
        raise UsageError(
            f"PyTorch's samples of operators cannot be loaded: {error}",
            where=f"PyTorch {torch.__version__}, torch.testing",
            fix="python -m pip install expecttest numpy; or set operators = () in the contract class to test "
            "without them",
        ) from error


def find_operator(name: str) -> Any:
    """Return an operator of PyTorch's database.

    Raises:
        UsageError: There is no operator of this name.
    """
    known = operators()
    if name not in known:
        raise UsageError(
            f"PyTorch's samples have no operator {name!r}{did_you_mean(name, known)}",
            fix="npu_ir.testing.operators() has the names",
        )
    return known[name]


def dtypes_of(operator: Any) -> list[torch.dtype]:
    """Return the dtypes that an operator has samples of on the CPU, the main one first."""
    return sorted(op_samples.supported_dtypes(operator), key=dtype_order)


def dtype_order(dtype: torch.dtype) -> tuple[int, str]:
    """Return the sort key of a dtype: usual dtypes first, then those that another PyTorch has, by name."""
    return _DTYPES.index(dtype) if dtype in _DTYPES else len(_DTYPES), str(dtype)


def calls_of(operator: Any, count: int, dtypes: int) -> list[OpCall]:
    """Return calls of an operator: so many samples that differ, of each of the first dtypes.

    Args:
        operator: One of `operators`.
        count: How many samples of a dtype.
        dtypes: How many dtypes, the main one first.
    """
    calls = []
    for dtype in dtypes_of(operator)[:dtypes]:
        samples = samples_of(operator, dtype)
        calls += [
            make_call(operator, "function", dtype, f"#{index}", operator.op, samples[index])
            for index in select_samples(samples, count)
        ]
    return calls


def samples_of(operator: Any, dtype: torch.dtype) -> list[Any]:
    """Return PyTorch's samples, with values that do not depend on what ran before."""
    return op_samples.sample_inputs(operator, dtype)


def make_call(
    operator: Any,
    variant: str,
    dtype: torch.dtype,
    label: str,
    function: Callable[..., Any],
    sample: Any,
    **keywords: Any,
) -> OpCall:
    """Return the call of a function with the arguments of a sample, and more keyword arguments."""
    leaves, rebuild = flatten_tree(((sample.input, *sample.args), {**sample.kwargs, **keywords}))
    positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def arguments(tensors: Sequence[torch.Tensor]) -> Any:
        filled = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        return rebuild(filled)

    tensors = tuple(leaves[position].detach() for position in positions)
    return OpCall(operator.full_name, variant, dtype, label, function, tensors, arguments)


def select_samples(samples: Sequence[Any], count: int) -> list[int]:
    """Return the indices of ``count`` samples, each the one that adds most to what those before it show."""
    pending = {index: _features(sample) for index, sample in enumerate(samples)}
    shown: set[Any] = set()
    order: list[int] = []
    while pending and len(order) < count:
        best = max(pending, key=functools.partial(_gain, pending, shown))
        shown |= pending.pop(best)
        order.append(best)
    return order


def _gain(pending: dict[int, set[Any]], shown: set[Any], index: int) -> tuple[int, int]:
    return len(pending[index] - shown), -index


def _features(sample: Any) -> set[Any]:
    """Return the features of a sample: shapes, layouts and kinds of its arguments."""
    found: set[Any] = {
        ("keyword", name, str(value)[:40] if not isinstance(value, torch.Tensor) else "")
        for name, value in sample.kwargs.items()
    }
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    found.add(("arguments", len(leaves)))
    for position, leaf in enumerate(leaves):
        found.add((position, type(leaf)))
        if isinstance(leaf, torch.Tensor):
            found |= {(position, "rank", leaf.dim()), (position, leaf.dtype), ("empty", leaf.numel() == 0)}
            found.add(("contiguous", leaf.layout, _is_strided(leaf) and leaf.is_contiguous()))
    return found


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided
