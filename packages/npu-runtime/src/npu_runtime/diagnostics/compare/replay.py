"""Replay of the node of a reproduction."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from npu_ir import Graph, InputKind, NpuError, Value, load_ir, load_weights
from npu_ir.plugins.backend import Backend
from npu_runtime.diagnostics.compare.float64_run import Float64Run, Missing
from npu_runtime.diagnostics.compare.metrics import measure
from npu_runtime.diagnostics.compare.reproduction import FACTS, GRAPH, TENSORS
from npu_runtime.diagnostics.compare.sides import GraphSide, Side, device_of
from npu_runtime.executor.executor import IRExecutor


def replay(
    folder: str | os.PathLike[str], *, backend: str | Backend | Sequence[str | Backend] | None = None
) -> str:
    """Run the node of a reproduction, and return its comparison with both sides as text.

    The interpreter runs it; if side b was an executor, an executor without passes also does.

    Args:
        folder: The folder of the reproduction.
        backend: As `IRExecutor` takes it, instead of the backends of side b.

    Raises:
        NpuError: A file is missing or damaged, or the node fails in the interpreter.
    """
    folder = Path(folder)
    graph = load_ir(folder / GRAPH)
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    items = {**load_weights(folder / TENSORS), **facts["numbers"]}
    args = [items[f"in.{leaf.name}"] if isinstance(leaf, Value) else leaf for leaf in graph.call[1]]
    weights = {
        value.argument.target: items[f"in.{value.name}"]
        for value in graph.arguments
        if value.argument is not None and value.argument.kind is not InputKind.INPUT
    }
    side = GraphSide(graph, weights)
    output = facts["output"]
    exact = _exact_value(side, args, output)
    lines = [str(graph), f"a: {facts['a']}", f"b: {facts['b']}", f"in the whole run: {facts['problem']}"]
    if isinstance(exact, Missing):
        lines.append(f"float64 does not know the value, so side a stands for it: {exact.reason}")
        reference = _Reference("side a", items["a"])
    else:
        reference = _Reference("float64 on these inputs", exact)
    now = side.run(args, {}, None).results[output]
    compared = {"a": items["a"], "b": items["b"], "this node, run by the interpreter": now}
    lines += [f"{name}: {reference.difference_text(item)}" for name, item in compared.items()]
    backends = facts["backends"] if backend is None else backend
    if backends is not None:
        runner, result = _run_executor(graph, weights, args, backends)
        text = result if isinstance(result, str) else reference.difference_text(result[output])
        lines.append(f"this node, run by the executor{runner}: {text}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Reference:
    """A reference value.

    Attributes:
        name: Its name in the text.
        item: A tensor or number.
    """

    name: str
    item: Any

    def difference_text(self, item: Any) -> str:
        """Return the difference of a value from the reference as text."""
        exact = self.item
        if isinstance(item, torch.Tensor) and isinstance(exact, torch.Tensor) and item.shape != exact.shape:
            return f"of shape {list(item.shape)}, and {list(exact.shape)} in {self.name}"
        difference = measure(item, exact)
        distance = f"{difference.max_abs:.3g} from {self.name}, {difference.max_rel:.3g} of it"
        return f"{distance}, SNR {difference.snr_db:.1f} dB"


def _run_executor(
    graph: Graph, weights: Mapping[str, Any], args: list[Any], backends: Any
) -> tuple[str, list[Any] | str]:
    """Return the backend of the last node and the results of an executor, or its error: a finding as well."""
    try:
        executor = IRExecutor(graph, weights, backend=backends, passes=None)
        moved = [item.to(executor.device) if isinstance(item, torch.Tensor) else item for item in args]
        results = executor.run_flat(moved)[0]
    except NpuError as error:
        return "", str(error)
    ops = executor.lowered.ops
    return f" on {ops[-1].backend}" if ops else " in its prologue", results


def _exact_value(side: Side, args: list[Any], output: int) -> Any:
    bound = side.bind_arguments(args, {})
    value = side.graph.nodes[-1].outputs[output]
    return Float64Run(side.graph, bound, [value.name], device_of(bound)).take(value)
