"""Cost of a call beside its kernel: sums of 16 numbers on the host, in every way to run them."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from npu_cuda import Graph, OpKind, Program, TensorSpec, op_call, prepare_call

OPS = 100  # in the long programs
ITEMS = 16


@dataclass(frozen=True, slots=True)
class Call:
    """One way to run sums.

    Attributes:
        title: For the table.
        run: Runs all of it once.
        ops: How many sums that are.
        most_ns: What a sum may take at most, kernel included; None where nothing is promised.
        is_counted: Whether its instructions are counted on request.
    """

    title: str
    run: Callable[[], object]
    ops: int = 1
    most_ns: float | None = None
    is_counted: bool = False


def calls() -> list[Call]:
    """Return all contenders; they work on the same tensors."""
    a, b, out = (torch.rand(ITEMS) for _ in range(3))
    x, y, z = (item.numpy() for item in (a, b, out))
    inputs, outputs = [a, b], [out]
    prepared = prepare_call(OpKind.EltwiseAdd, inputs, outputs)
    one, many = chain(1, a, b, out), chain(OPS, a, b, out)
    one_graph, many_graph = one.capture(), many.capture()
    return [
        Call("torch.add(out=)", lambda: torch.add(a, b, out=out), is_counted=True),
        Call("torch.ops.aten.add.out", lambda: torch.ops.aten.add.out(a, b, out=out)),
        Call("numpy.add(out=)", lambda: np.add(x, y, out=z)),
        Call("op_call, tensors of torch", lambda: op_call(0, inputs, outputs), most_ns=300, is_counted=True),
        Call("op_call, arrays of NumPy", lambda: op_call(0, [x, y], [z])),
        Call("prepared call", prepared),
        Call("Program.run, 1 op", one.run),
        Call("Program.call, 1 op, 3 tensors bound", lambda: one.call((a, b, out))),
        Call(f"Program.run, {OPS} ops, per op", many.run, OPS, 15, is_counted=True),
        Call("Graph.launch, 1 op", one_graph.launch),
        Call(f"Graph.launch, {OPS} ops, per op", many_graph.launch, OPS),
        Call(f"Graph.launch({OPS}), 1 op, per op", repeated(one_graph), OPS),
    ]


def repeated(graph: Graph) -> Callable[[], object]:
    return lambda: graph.launch(OPS)


def chain(ops: int, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Program:
    """Return a program that adds ``b`` again and again, through temporaries."""
    program = Program("host")
    spec = TensorSpec("float32", [ITEMS])
    left, right, result = (program.slot(spec, name) for name in ("a", "b", "out"))
    for index in range(ops):
        target = result if index == ops - 1 else program.slot(spec, f"t{index}", external=False)
        program.add(OpKind.EltwiseAdd, [left, right], [target])
        left = target
    program.finalize()
    for slot, tensor in enumerate((a, b, out)):
        program.bind(slot, tensor)
    return program


def measure(contenders: list[Call], rounds: int, seconds: float) -> dict[str, float]:
    """Return nanoseconds per sum by title: medians of rounds in which all take turns."""
    counts = [max(1, int(seconds / per_run(call))) for call in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for call, count, found in zip(contenders, counts, times, strict=True):
            found.append(timeit.timeit(call.run, number=count) / count / call.ops * 1e9)
    return {call.title: statistics.median(found) for call, found in zip(contenders, times, strict=True)}


def per_run(call: Call) -> float:
    return min(timeit.repeat(call.run, number=100, repeat=3)) / 100
