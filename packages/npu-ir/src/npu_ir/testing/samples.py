"""Sample graphs for contract tests: PyTorch's operators on its own samples, and random graphs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_ir.capture import extract_ir
from npu_ir.core.types import type_of
from npu_ir.errors import NpuError
from npu_ir.graph.graph import Graph
from npu_ir.interpreter.interpreter import Interpreter
from npu_ir.interpreter.random_data import random_call, random_weights
from npu_ir.testing.op_calls import UNINITIALIZED, OpCall, OpModule, calls_of, find_operator
from npu_ir.testing.random_graphs import random_graph

# Operators that most models are made of, with PyTorch's names of their samples.
COMMON_OPERATORS = tuple(
    """
    abs add addmm amax argmax bmm cat clamp clone cos cumsum div.no_rounding_mode eq erf exp expand flatten
    flip full_like gather index_select isnan log_softmax logsumexp lt masked_fill matmul maximum mean mm mul
    neg nn.functional.conv2d nn.functional.embedding nn.functional.gelu nn.functional.group_norm
    nn.functional.layer_norm nn.functional.linear nn.functional.max_pool2d nn.functional.relu
    nn.functional.scaled_dot_product_attention nn.functional.silu permute pow reciprocal repeat rsqrt
    scatter_add select sigmoid sin softmax sort split sqrt squeeze stack sub sum tanh topk transpose tril
    unbind unsqueeze var view where
    """.split()  # noqa: SIM905 - seventy strings, one to a line, would read no better
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A graph to test on, with the data to run it on.

    Attributes:
        name: The operator with the dtypes and shapes of its arguments, or the seed of a random graph.
        graph: A valid graph that can be run on the data.
        args: The positional arguments of a call.
        weights: Parameters and buffers by name.
    """

    name: str
    graph: Graph
    args: tuple[Any, ...]
    weights: dict[str, torch.Tensor] = field(default_factory=dict)


def operator_samples(
    operators: Iterable[str] = COMMON_OPERATORS, *, count: int = 1, dtypes: int = 1
) -> Iterator[Sample]:
    """Yield graphs of PyTorch's operators, with PyTorch's own sample arguments.

    Calls that torch.export cannot capture are left out, and those whose results are not determined.

    Args:
        operators: Names of operators in PyTorch's database, as `npu_ir.testing.operators` lists them.
        count: How many samples of an operator and dtype.
        dtypes: How many dtypes of an operator, its main one first.

    Raises:
        UsageError: The database cannot be loaded, or has no such operator.
    """
    for name in operators:
        yield from _operator_samples(name, count, dtypes)


@functools.cache
def _operator_samples(name: str, count: int, dtypes: int) -> Sequence[Sample]:
    if name in UNINITIALIZED:
        return ()
    calls = calls_of(find_operator(name), count, dtypes)
    return [sample for call in calls if (sample := _capture(call)) is not None]


def _capture(call: OpCall) -> Sample | None:
    """Return the graph of a call; None where it cannot be captured, run, or run twice with equal results."""
    types = ", ".join(str(type_of(tensor)) for tensor in call.tensors)
    dtype = str(call.dtype).removeprefix("torch.")
    name = f"{call.operator} ({dtype}, sample {call.sample}) on {types or 'nothing'}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graph = extract_ir(OpModule(call), call.fresh_tensors(), name=call.operator)
            Interpreter(graph).run_flat(call.fresh_tensors())
        except NpuError:
            return None
    return Sample(name, graph, call.tensors)


def random_samples(count: int, *, first: int = 0) -> Iterator[Sample]:
    """Yield random graphs with random data, the same ones each time: one for each seed.

    Args:
        count: How many seeds; a seed whose graph fails on the data, as for a division by zero, has none.
        first: The first seed.
    """
    samples = map(_random_sample, range(first, first + count))
    yield from (sample for sample in samples if sample is not None)


@functools.cache
def _random_sample(seed: int) -> Sample | None:
    graph = random_graph(seed)
    weights = random_weights(graph, seed)
    args, _ = random_call(graph, seed)
    try:
        Interpreter(graph, weights).run_flat(args)
    except NpuError:
        return None
    return Sample(f"random graph {seed}", graph, args, weights)
