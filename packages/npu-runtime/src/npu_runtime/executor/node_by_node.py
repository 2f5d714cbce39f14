"""Running node by node, and keeping or checking what comes out in between."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, NpuError, OpNode, Value
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.ops.execution import place_of
from npu_runtime.lowering.aten_calls import NodeStep
from npu_runtime.lowering.instruction import Step, failure_of, run_step


@dataclass(frozen=True, slots=True)
class Run:
    """What one run gave.

    Attributes:
        results: In the structure of the model.
        intermediates: What nodes computed, by value name, as far as it was asked for.
        mutations: The new content of each input, buffer and parameter that the model changes, by name.
    """

    results: Any
    intermediates: Mapping[str, Any]
    mutations: Mapping[str, torch.Tensor]


@dataclass
class Watch:
    """Sees each node of a run.

    Attributes:
        intermediates: What was kept.
    """

    wanted: bool | Collection[str]
    on_node: Observer | None
    intermediates: dict[str, Any] = field(default_factory=dict)

    def see(self, node: OpNode, outputs: list[Any]) -> None:
        """Take note of what a node has computed."""
        for value, item in zip(node.outputs, outputs, strict=True):
            if self.wanted is True or (not isinstance(self.wanted, bool) and value.name in self.wanted):
                self.intermediates[value.name] = item
        if self.on_node is not None:
            self.on_node(node, outputs)


def watch(
    steps: Iterable[NodeStep], graph: Graph, wanted: bool | str | Collection[str], on_node: Observer | None
) -> Watch:
    """Return what keeps the values that are wanted.

    Raises:
        ExecutionError: A name is that of no value that comes out of a step.
    """
    wanted = frozenset([wanted]) if isinstance(wanted, str) else wanted
    if not isinstance(wanted, bool):
        known = {value.name for item in steps for value in item.step.outputs}
        unknown = sorted(set(wanted) - known)
        if unknown:
            raise ExecutionError(
                f"no node of the graph computes %{unknown[0]}, or it stays inside of what a backend runs at once",
                where=f"graph {graph.name!r}",
                fix="take names from executor.graph: passes may have replaced values",
            )
    return Watch(wanted, on_node)


def run_observed(
    steps: Sequence[NodeStep],
    returned: Sequence[Any],
    values: dict[Value, Any],
    symbols: Any,
    device: torch.device,
    see: Observer | None,
    *,
    check_nan: bool = False,
) -> list[Any]:
    """Run steps one by one; returns the content of ``returned``.

    Args:
        steps: In order.
        returned: Values, and plain data.
        values: Inputs and weights; extended, and freed of what nothing reads any more.
        symbols: The values of the symbols.
        device: Where it runs.
        see: Called behind each node whose outputs are there, if given.
        check_nan: Fail at the first node that makes a NaN of inputs that have none.

    Raises:
        ExecutionError: A node fails, or makes a NaN.
    """
    last = {
        value: index for index, item in enumerate(steps) for value in (*item.step.inputs, *item.step.outputs)
    }
    kept = {item for item in returned if isinstance(item, Value)}
    for index, item in enumerate(steps):
        step = item.step
        outputs = _run(step, values, symbols, device)
        values.update(zip(step.outputs, outputs, strict=True))
        if check_nan:
            _require_no_nan(step, values)
        for node in step.nodes:
            if see is not None and all(value in values for value in node.outputs):
                see(node, [values[value] for value in node.outputs])
        for value in {*step.inputs, *step.outputs} - kept:
            if last[value] == index:
                del values[value]
    return [values[item] if isinstance(item, Value) else item for item in returned]


def _run(step: Step, values: Mapping[Value, Any], symbols: Any, device: torch.device) -> Sequence[Any]:
    try:
        return run_step(step, values, symbols, device)
    except NpuError:
        raise
    except Exception as error:
        raise failure_of(step, error, [values[value] for value in step.inputs]) from error


def _require_no_nan(step: Step, values: Mapping[Value, Any]) -> None:
    made = [value for value in step.outputs if _has_nan(values[value])]
    if made and not any(_has_nan(values[value]) for value in step.inputs):
        raise ExecutionError(
            f"{step.node.op_type} made a NaN in %{made[0].name}, of inputs that have none",
            where=place_of(step.node),
            fix=f"its inputs: {', '.join('%' + value.name for value in step.inputs)}; keep them with return_intermediates=",
        )


def _has_nan(item: Any) -> bool:
    if not isinstance(item, torch.Tensor) or item.layout is not torch.strided:
        return False
    if item.dtype.itemsize == 1 and item.dtype.is_floating_point:
        item = item.float()  # torch.isnan takes no float8 (torch 2.13)
    is_inexact = item.dtype.is_floating_point or item.dtype.is_complex
    return is_inexact and bool(torch.isnan(item).any())
