"""Node-by-node runs: intermediate values, observers, NaN checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, NpuError, OpNode, Value
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.ops.execution import location_of
from npu_runtime.lowering.instruction import Instruction, failure_of, run_instruction


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of one run.

    Attributes:
        results: The results, in the structure of the model.
        intermediates: The requested outputs of nodes, by value name.
        mutations: The new contents of the mutated inputs, buffers and parameters, by name.
    """

    results: Any
    intermediates: Mapping[str, Any]
    mutations: Mapping[str, torch.Tensor]


def make_observer(
    instructions: Iterable[Instruction],
    graph: Graph,
    wanted: bool | str | Collection[str],
    on_node: Observer | None,
) -> tuple[Observer, dict[str, Any]]:
    """Return an observer, which also calls ``on_node``, and the dict in which it keeps values by name.

    Raises:
        ExecutionError: A wanted name is not that of an output of an instruction.
    """
    names = {value.name for instruction in instructions for value in instruction.outputs}
    if isinstance(wanted, bool):
        requested = names if wanted else set[str]()
    else:
        requested = {wanted} if isinstance(wanted, str) else set(wanted)
    unknown = sorted(requested - names)
    if unknown:
        raise ExecutionError(
            f"no node of the graph computes %{unknown[0]}, or it is internal to a partition of a backend",
            where=f"graph {graph.name!r}",
            fix="take names from executor.graph: passes may have replaced values",
        )
    kept: dict[str, Any] = {}

    def observe(node: OpNode, outputs: list[Any]) -> None:
        for value, item in zip(node.outputs, outputs, strict=True):
            if value.name in requested:
                kept[value.name] = item
        if on_node is not None:
            on_node(node, outputs)

    return observe, kept


def run_node_by_node(
    instructions: Sequence[Instruction],
    returned: Sequence[Any],
    values: dict[Value, Any],
    symbols: Any,
    device: torch.device,
    observe: Observer | None,
    *,
    check_nan: bool = False,
) -> list[Any]:
    """Run instructions one by one; return the contents of ``returned``.

    Args:
        instructions: The instructions, in order.
        returned: Values and plain data.
        values: Inputs and weights; outputs are added, and values freed after their last use.
        symbols: The values of the symbols.
        device: The device to run on.
        observe: The observer, called after each node whose outputs are available, if given.
        check_nan: Fail at the first node that produces a NaN from inputs without any.

    Raises:
        ExecutionError: A node fails, or produces a NaN.
    """
    last_use = {
        value: index
        for index, instruction in enumerate(instructions)
        for value in (*instruction.inputs, *instruction.outputs)
    }
    kept = {item for item in returned if isinstance(item, Value)}
    for index, instruction in enumerate(instructions):
        outputs = _run_explained(instruction, values, symbols, device)
        values.update(zip(instruction.outputs, outputs, strict=True))
        if instruction.partition is not None and observe is not None:
            # A later partition may write into the same memory.
            for value in instruction.outputs[len(instruction.partition.outputs) :]:
                values[value] = values[value].clone()
        if check_nan:
            _require_no_nan(instruction, values)
        for node in instruction.nodes:
            if observe is not None and all(value in values for value in node.outputs):
                observe(node, [values[value] for value in node.outputs])
        for value in {*instruction.inputs, *instruction.outputs} - kept:
            if last_use[value] == index:
                del values[value]
    return [values[item] if isinstance(item, Value) else item for item in returned]


def _run_explained(
    instruction: Instruction, values: Mapping[Value, Any], symbols: Any, device: torch.device
) -> Sequence[Any]:
    try:
        return run_instruction(instruction, values, symbols, device)
    except NpuError:
        raise
    except Exception as error:
        raise failure_of(instruction, error, [values[value] for value in instruction.inputs]) from error


def _require_no_nan(instruction: Instruction, values: Mapping[Value, Any]) -> None:
    outputs = [value for value in instruction.outputs if _has_nan(values[value])]
    if outputs and not any(_has_nan(values[value]) for value in instruction.inputs):
        raise ExecutionError(
            f"{instruction.node.op_type} made a NaN in %{outputs[0].name}, of inputs that have none",
            where=location_of(instruction.node),
            fix=f"its inputs: {', '.join('%' + value.name for value in instruction.inputs)};"
            " keep them with return_intermediates=",
        )


def _has_nan(item: Any) -> bool:
    if not isinstance(item, torch.Tensor) or item.layout is not torch.strided:
        return False
    if item.dtype.itemsize == 1 and item.dtype.is_floating_point:
        item = item.float()  # torch.isnan does not support float8 (torch 2.13)
    is_inexact = item.dtype.is_floating_point or item.dtype.is_complex
    return is_inexact and bool(torch.isnan(item).any())
