"""Calls of every operator of PyTorch's OpInfo database, each as a module to capture.

OpInfo gives for each operator and dtype many samples of its arguments. A few of them are taken, chosen
to differ; tensors become inputs of the module, everything else is part of it.
"""

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

# OpInfo runs its random operators under this seed, whatever the seed around them is.
SEED = 42

# The dtypes in the order in which an operator's main one is chosen; with it more samples are taken.
DTYPES = (
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

FUNCTION, METHOD, OUT = "function", "method", "out="
IN_PLACE = "in-place"  # on an input of the module
IN_PLACE_INSIDE = "in-place inside"  # on a tensor that the module made
VARIANTS = (FUNCTION, METHOD, IN_PLACE, IN_PLACE_INSIDE, OUT)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many samples of an operator are run, by variant: with its main dtype, and with each other.

    Attributes:
        main: With the main dtype.
        other: With each other dtype.
        dtypes: With how many dtypes at most.
    """

    main: dict[str, int]
    other: dict[str, int]
    dtypes: int | None = None


FULL = Budget(
    main={FUNCTION: 8, METHOD: 1, IN_PLACE: 3, IN_PLACE_INSIDE: 3, OUT: 2},
    other={FUNCTION: 2, IN_PLACE: 1, IN_PLACE_INSIDE: 1},
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator.

    Attributes:
        sample: Which sample of OpInfo, and in which form.
        function: What is called: the operator, its method or its in-place variant.
        tensors: The tensors among the arguments, flat; never changed.
        arguments: Puts tensors in their places and returns positional and keyword arguments.
    """

    op: str
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

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call

    def forward(self, *tensors: torch.Tensor) -> Any:
        args, kwargs = self._call.arguments(tensors)
        return self._call.function(*args, **kwargs)


def operators() -> dict[str, OpInfo]:
    return {op.full_name: op for op in op_db}


def dtypes_of(op: OpInfo) -> list[torch.dtype]:
    return sorted(op.supported_dtypes("cpu"), key=dtype_order)


def dtype_order(dtype: torch.dtype) -> tuple[int, str]:
    """Return what dtypes are sorted by: ``DTYPES`` first, then those that another PyTorch has by name."""
    return DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES), str(dtype)


def calls_of(op: OpInfo, budget: Budget = FULL) -> Iterator[Call]:
    for position, dtype in enumerate(dtypes_of(op)[: budget.dtypes]):
        yield from _calls_with(
            op, dtype, budget.main if position == 0 else budget.other, is_main=position == 0
        )


def _calls_with(op: OpInfo, dtype: torch.dtype, counts: dict[str, int], *, is_main: bool) -> Iterator[Call]:
    samples = samples_of(op, dtype)
    order = differing(samples, max(counts.values()))
    functions = _functions_of(op)
    for variant, count in counts.items():
        chosen = [
            index
            for index in order
            if variant in (FUNCTION, OUT) or isinstance(samples[index].input, torch.Tensor)
        ]
        for index in chosen[:count] if variant in functions else ():
            yield from _call(op, variant, dtype, f"#{index}", functions[variant], samples[index])
    if is_main and FUNCTION in counts and order and _all_strided(samples[order[0]]):
        spread = samples[order[0]].noncontiguous()
        yield from _call(op, FUNCTION, dtype, f"#{order[0]} non-contiguous", op.op, spread)


def _functions_of(op: OpInfo) -> dict[str, Callable[..., Any]]:
    """Return what is called for each variant that ``op`` has."""
    in_place = op.inplace_variant

    def inside(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return in_place(tensor.clone(), *args, **kwargs)

    functions = {
        FUNCTION: op.op,
        METHOD: op.method_variant,
        IN_PLACE: in_place,
        IN_PLACE_INSIDE: in_place and inside,
        OUT: op.op if op.supports_out else None,
    }
    return {variant: function for variant, function in functions.items() if function is not None}


def samples_of(op: OpInfo, dtype: torch.dtype) -> list[SampleInput]:
    """Return OpInfo's samples, with values that do not depend on what ran before."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(op.sample_inputs("cpu", dtype, requires_grad=False))


def _call(
    op: OpInfo,
    variant: str,
    dtype: torch.dtype,
    label: str,
    function: Callable[..., Any],
    sample: SampleInput,
) -> Iterator[Call]:
    kwargs = dict(sample.kwargs)
    if variant == OUT:
        out = _destination(op, sample)
        if out is None:
            return
        kwargs["out"] = out
    leaves, spec = tree_flatten(((sample.input, *sample.args), kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def arguments(tensors: Sequence[torch.Tensor]) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return tree_unflatten(filled, spec)

    tensors = tuple(leaves[place].detach() for place in places)
    yield Call(op.full_name, variant, dtype, label, function, tensors, arguments)


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def _all_strided(sample: SampleInput) -> bool:
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return all(_is_strided(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _destination(op: OpInfo, sample: SampleInput) -> Any:
    """Return tensors for the results, filled with ones; None where they are no tensors to write into."""
    if not _all_strided(sample):
        return None
    sample = copy.deepcopy(sample)
    try:
        torch.manual_seed(SEED)
        results = op.op(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return None  # the call without out= is refused too, and is counted there
    if isinstance(results, torch.Tensor):
        return torch.ones_like(results)
    if isinstance(results, tuple) and all(isinstance(result, torch.Tensor) for result in results):
        return tuple(torch.ones_like(result) for result in results)
    return None


def differing(samples: Sequence[SampleInput], count: int) -> list[int]:
    """Return the indices of ``count`` samples, each the one that adds most to what those before it show."""
    pending = {index: _features(sample) for index, sample in enumerate(samples)}
    shown: set[Any] = set()
    order: list[int] = []
    while pending and len(order) < count:
        best = max(pending, key=lambda index: (len(pending[index] - shown), -index))
        shown |= pending.pop(best)
        order.append(best)
    return order


def _features(sample: SampleInput) -> set[Any]:
    """Return what sets a sample apart: shapes, layouts and kinds of its arguments."""
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
