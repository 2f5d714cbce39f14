"""Calls of every operator of PyTorch's OpInfo database, each as a module to capture.

OpInfo gives for each operator and dtype many samples of its arguments. A few of them are taken, chosen
to differ; tensors become inputs of the module, everything else is part of it.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir._torch.op_samples import SEED
from npu_ir._torch.pytree import tree_leaves
from npu_ir.testing import OpCall, operators
from npu_ir.testing.op_calls import OpModule, dtype_order, dtypes_of, make_call, samples_of, select_samples

__all__ = ["SEED", "OpModule", "dtype_order", "operators"]

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


def calls_of(op: Any, budget: Budget = FULL) -> Iterator[OpCall]:
    for position, dtype in enumerate(dtypes_of(op)[: budget.dtypes]):
        yield from _calls_with(
            op, dtype, budget.main if position == 0 else budget.other, is_main=position == 0
        )


def print_problems(judge: Callable[[OpCall], tuple[str, str]], budget: Budget) -> int:
    """Judge calls of every operator, print the number of each outcome, and problems; return an exit code.

    Args:
        judge: Returns the outcome of a call, and its problem; "" if there is none.
        budget: Which calls.
    """
    outcomes: Counter[str] = Counter()
    problems = []
    for name, op in operators().items():
        for call in calls_of(op, budget):
            outcome, problem = judge(call)
            outcomes[outcome] += 1
            if problem:
                problems.append(f"{name} {call.variant} {call.dtype} {call.sample}: {problem}")
    print(f"{len(operators())} operators:", ", ".join(f"{count} {name}" for name, count in outcomes.items()))
    print("\n".join(problems))
    return 1 if problems else 0


def _calls_with(op: Any, dtype: torch.dtype, counts: dict[str, int], *, is_main: bool) -> Iterator[OpCall]:
    samples = samples_of(op, dtype)
    order = select_samples(samples, max(counts.values()))
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


def _functions_of(op: Any) -> dict[str, Callable[..., Any]]:
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


def _call(
    op: Any,
    variant: str,
    dtype: torch.dtype,
    label: str,
    function: Callable[..., Any],
    sample: Any,
) -> Iterator[OpCall]:
    more = {}
    if variant == OUT:
        out = _destination(op, sample)
        if out is None:
            return
        more["out"] = out
    yield make_call(op, variant, dtype, label, function, sample, **more)


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def _all_strided(sample: Any) -> bool:
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return all(_is_strided(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _destination(op: Any, sample: Any) -> Any:
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
