"""Measurement of the variants of a graph: each node on each backend, then whole calls after each pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.errors import UsageError
from npu_ir.graph.binding import bind_inputs
from npu_ir.graph.partition import PartitionGraph
from npu_ir.interpreter.run_nodes import run_nodes
from npu_ir.plugins.backend import Backend
from npu_runtime._torch.state import below_autograd
from npu_runtime.backends.answers import ask_free, ask_pipeline, ask_support
from npu_runtime.backends.measured_costs import MeasuredCosts, describe_machine, signature_of
from npu_runtime.backends.partition import extract_partition
from npu_runtime.backends.registry import AUTO
from npu_runtime.codegen.compiler import compile_graph, mutated_state
from npu_runtime.diagnostics.profile.interleave import take_turns
from npu_runtime.executor.bound_weights import bind
from npu_runtime.executor.engine import thread_count
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.executor.initial_state import fresh_copy
from npu_runtime.executor.options import Weights, optimize_graph, read_weights, resolve_backends
from npu_runtime.lowering.lowered_graph import lower
from npu_runtime.probing.storage import with_stated_strides

_NODE_TURNS, _NODE_SECONDS = 15, 0.002  # a node: so many turns of this length


def tune(
    graph: Graph,
    weights: Weights,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    constants: Mapping[str, torch.Tensor] | None = None,
    threads: int | None = None,
    repeat: int = 20,
) -> MeasuredCosts:
    """Return what the nodes of a graph cost on each backend that states costs, and its fastest pipeline.

    Nodes are measured on the values of this call, after each pipeline that one of the backends names; nodes
    of the same op, attributes and types once. Nodes with open sizes keep the costs that are stated.

    Args:
        graph: The graph, before any passes.
        weights: As for `IRExecutor`.
        args: Positional arguments of a call.
        kwargs: Its keyword arguments.
        constants: As for `IRExecutor`.
        threads: The number of threads; that of the process if not given.
        repeat: The number of turns in which whole calls are timed.

    Raises:
        UsageError: ``repeat`` is less than 1, or the weights are not on the CPU.
        ExecutionError: As for a call.
    """
    backends, device = resolve_backends(AUTO, None, weights)
    if repeat < 1:
        raise UsageError(f"repeat={repeat}: a call is timed at least once")
    if device.type != "cpu":
        raise UsageError(f"nodes are timed on the CPU, and the weights are on {device}", fix="move them")
    named = kwargs or {}
    held = read_weights(weights, graph)
    seconds: dict[str, dict[str, float]] = {}
    costs = MeasuredCosts(describe_machine(backends, threads), "", seconds)
    calls: dict[str, Callable[[], Any]] = {}
    with thread_count(threads):
        for name in dict.fromkeys(ask_pipeline(backend, device) for backend in backends):
            optimized = optimize_graph(graph, name)
            _measure_nodes(optimized, held, constants, args, named, backends, device, seconds)
            executor = IRExecutor(
                optimized,
                held,
                constants=constants,
                backend=AUTO,
                passes=None,
                updates="ignore",
                tuning=replace(costs, machine=describe_machine(backends, None)),
            )
            calls[name] = functools.partial(executor, *args, **named)
        timings = take_turns(calls, repeat=repeat)
    return replace(costs, passes=min(timings, key=lambda name: timings[name].median))


def _measure_nodes(
    graph: Graph,
    weights: Mapping[str, torch.Tensor] | None,
    constants: Mapping[str, torch.Tensor] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    backends: Sequence[Backend],
    device: torch.device,
    seconds: dict[str, dict[str, float]],
) -> None:
    """Run a graph node by node, and time each that several backends run, on the values that it gets."""
    bound = bind(graph, weights, constants, device)
    symbols = SymbolValues(graph.symbols)
    values = {**bound.values, **bind_inputs(graph, args, kwargs, symbols)}
    for value, content in zip(mutated_state(graph), bound.state, strict=True):
        values[value] = fresh_copy(content, value.type)

    def measure(node: OpNode, _: Any) -> None:
        signature = signature_of(node)
        rivals = [
            item for item in backends[:-1] if ask_support(item, node) is None and not ask_free(item, node)
        ]
        if rivals and signature not in seconds:
            seconds[signature] = _time_node(node, values, rivals, backends[-1], device)

    with below_autograd():
        run_nodes(graph.body, values, device, symbols, measure)


def _time_node(
    node: OpNode, values: Mapping[Value, Any], rivals: Sequence[Backend], aten: Backend, device: torch.device
) -> dict[str, float]:
    part, of = extract_partition([node], f"tune-{node.name}")
    outer = {inner: value for value, inner in of.items()}
    inputs = [with_stated_strides(values[outer[value]], value.type) for value in part.inputs]
    compiled = compile_graph(lower(part, [aten]), device, {})
    run = compiled.program.bind({})
    calls: dict[str, Callable[[], Any]] = {
        aten.name: functools.partial(run, SymbolValues(part.symbols), *inputs)
    }
    calls |= {backend.name: _bind_node(backend, part, inputs, device) for backend in rivals}
    timings = take_turns(calls, repeat=_NODE_TURNS, burst_seconds=_NODE_SECONDS)
    return {name: timing.fastest for name, timing in timings.items()}


def _bind_node(
    backend: Backend, part: PartitionGraph, inputs: Sequence[Any], device: torch.device
) -> Callable[[], None]:
    """Return a node as a function over fixed memory, as it is within a program."""
    program = backend.prepare(part, backend.lower(part), device)
    outputs = [backend.allocate(value.tensor_type, device) for value in part.outputs]
    return backend.bind(program, inputs, outputs)
