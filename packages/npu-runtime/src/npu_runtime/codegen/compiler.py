"""From a graph to a program: who runs each node, the steps, what can be left out, the source."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, InputKind, OpNode, Value
from npu_ir.core.structure import unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.errors import UsageError
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_ir.interpreter.run_nodes import require_in_range
from npu_ir.interpreter.size_choice import chosen_sizes
from npu_ir.plugins.backend import Backend
from npu_runtime.backends.partition import Choice, segment_of
from npu_runtime.codegen.compiled_function import Program
from npu_runtime.codegen.python_source import source_of
from npu_runtime.lowering.alias_sets import Memory, Sharing
from npu_runtime.lowering.aten_calls import ATEN, NodeStep, step_of
from npu_runtime.lowering.backend_calls import segment_step
from npu_runtime.lowering.inplace_reuse import overwriting
from npu_runtime.lowering.instruction import Step
from npu_runtime.lowering.view_fusion import merge_views
from npu_runtime.probing.op_probe import Prober
from npu_runtime.probing.storage import is_laid_out, overlaps


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph, compiled.

    Attributes:
        plain: One step per node, or per segment of another backend; nothing is overwritten.
        steps: What the program does.
        program: The program: it returns the results of the graph, then the new contents of what it updates.
        memory: Which values of ``steps`` may share memory.
        shares: For each of ``steps`` what is known of the memory of its outputs.
    """

    plain: tuple[NodeStep, ...]
    steps: tuple[Step, ...]
    program: Program
    memory: Memory
    shares: tuple[Sharing, ...]


def compile_graph(
    graph: Graph,
    choices: Mapping[OpNode, Choice],
    device: torch.device,
    known: Mapping[Value, Any],
) -> Compiled:
    """Compile the body of a graph.

    Args:
        graph: The program, or a region of one.
        choices: Who runs each node; ATen runs those that are not in it.
        device: Where it runs.
        known: What the body reads besides its inputs: weights, and what the prologue made of them.

    Raises:
        BackendError: A backend does not keep to its interface.
    """
    prober = Prober(device, known, frozenset(graph.inputs), _sample_sizes(graph))
    plain = plain_steps(graph, choices, device, prober, _as_stated(graph, known))
    returned = [*graph.results[1], *graph.updates.values()]
    kept = {item for item in returned if isinstance(item, Value)}
    merged = merge_views(plain, kept)
    ends = [(item.step.inputs, item.step.outputs) for item in merged]
    memory = Memory(ends, [item.shares for item in merged], kept)
    shares = tuple(Sharing(item.shares, is_certain=item.is_certain) for item in merged)
    steps = overwriting(merged, memory)
    source = source_of(graph.name, (*graph.inputs, *state_of(graph)), steps, returned)
    return Compiled(tuple(plain), tuple(steps), Program(graph.name, source), memory, shares)


def plain_steps(
    graph: Graph,
    choices: Mapping[OpNode, Choice],
    device: torch.device,
    prober: Prober,
    as_stated: set[Value],
) -> list[NodeStep]:
    """Return one step per node of the body, or per segment of another backend, with what was seen of each.

    Args:
        graph: The program.
        choices: Who runs each node; ATen runs those that are not in it.
        device: Where it runs.
        prober: Sees what calls do.
        as_stated: The values from outside that are laid out as the graph states, in each call; extended.

    Raises:
        BackendError: A backend does not keep to its interface.
    """
    found = (step for part in _parts(graph, choices) for step in _steps(part, prober, device))
    return list(_trusted(found, as_stated, is_planned=prober.is_planned))


def state_of(graph: Graph) -> tuple[Value, ...]:
    """Return the parameters, buffers and optimizer state that a call changes: the program takes them behind the inputs."""
    return tuple(
        target
        for target in graph.updates
        if target.argument is not None and target.argument.kind is not InputKind.INPUT
    )


def _sample_sizes(graph: Graph) -> Mapping[str, int]:
    """Return sizes that the graph allows; none where none are found."""
    try:
        return chosen_sizes(graph, {}, {})
    except UsageError:
        return {}


# Nodes that one backend runs; None for ATen.
_Part = tuple[Backend | None, list[OpNode]]


def _parts(graph: Graph, choices: Mapping[OpNode, Choice]) -> Iterator[_Part]:
    def backend(node: OpNode) -> Backend | None:
        choice = choices.get(node)
        return None if choice is None or choice.backend.name == ATEN else choice.backend

    for found, nodes in itertools.groupby(graph.body, backend):
        yield found, list(nodes)


def _steps(part: _Part, prober: Prober, device: torch.device) -> Iterator[NodeStep]:
    backend, nodes = part
    if backend is not None:
        yield segment_step(backend, segment_of(nodes, f"{backend.name}-{nodes[0].name}"), device)
        return
    for node in nodes:
        regions = {argument: _runner(region, device) for argument, region in node.regions.items()}
        yield step_of(node, prober, device, regions)


def _as_stated(graph: Graph, known: Mapping[Value, Any]) -> set[Value]:
    """Return the values from outside that are laid out as the graph states, in each call."""
    given = (*graph.inputs, *state_of(graph))
    # What is given is laid out anew where it is not as stated, but where elements are stated to share memory.
    certain = {value for value in given if not value.type.symbols and not overlaps(value.type)}
    if any(overlaps(value.type) for value in graph.arguments if value not in given):
        return certain  # other weights may be laid out otherwise
    return certain | {value for value, item in known.items() if is_laid_out(item, value.type)}


def _trusted(steps: Iterable[NodeStep], as_stated: set[Value], *, is_planned: bool) -> Iterator[NodeStep]:
    """Yield steps with what was seen of them as far as it holds: it was seen on inputs as the graph states them."""
    for item in steps:
        if item.seen is not None and as_stated.issuperset(item.step.inputs):
            laid_out = zip(item.step.outputs, item.seen.is_laid_out, strict=True)
            as_stated.update(value for value, is_so in laid_out if is_so)
            yield item
        elif item.seen is not None:
            yield NodeStep(item.step, item.seen.elsewhere(len(item.step.inputs)))
        else:
            yield item
        if item.step.is_segment and is_planned:  # it writes into tensors that are laid out so
            as_stated.update(item.step.outputs)


def _runner(region: Graph, device: torch.device) -> Callable[[SymbolValues], Callable[..., Any]]:
    """Return what runs a region, given the values of the symbols around it."""
    constants = bind_weights(region, None)
    compiled = compile_graph(region, {}, device, constants)
    run = compiled.program.bound(constants)

    def call(around: SymbolValues, *args: Any) -> Any:
        symbols = SymbolValues(region.symbols, around)
        inputs = bind_inputs(region, args, {}, symbols)
        try:
            leaves = run(symbols, *(inputs[value] for value in region.inputs))
        except Exception as error:
            compiled.program.explain(error)
            raise
        require_in_range(region, symbols)
        return unflatten(region.results[0], list(leaves[: len(region.results[1])]))

    return lambda around: functools.partial(call, around)
