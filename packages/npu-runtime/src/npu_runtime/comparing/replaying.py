"""Running the one node of a reproduction again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from npu_ir import Graph, InputKind, NpuError, Value, load_ir, load_weights
from npu_runtime.backend import Backend
from npu_runtime.comparing.float64_run import Float64Run, Missing
from npu_runtime.comparing.metrics import measure
from npu_runtime.comparing.reproduction import FACTS, GRAPH, TENSORS
from npu_runtime.comparing.sides import GraphSide, Side, device_of
from npu_runtime.executor import IRExecutor


def replay(
    folder: str | os.PathLike[str], *, backend: str | Backend | Sequence[str | Backend] | None = None
) -> str:
    """Run the node of a reproduction, and return as text how it compares with both sides.

    The interpreter runs it; where side b was an executor, so does an executor, without passes.

    Args:
        folder: Where the reproduction is.
        backend: As `IRExecutor` takes it, in place of the backends of side b.

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
    now = side.run(args, {}, None).results[facts["output"]]
    exact = _exact(side, args, facts["output"])
    lines = [str(graph), f"a: {facts['a']}", f"b: {facts['b']}", f"in the whole run: {facts['problem']}"]
    given = {"a": items["a"], "b": items["b"], "this node, run by the interpreter": now}
    lines += [f"{name}: {_apart(item, exact)}" for name, item in given.items()]
    backends = facts["backends"] if backend is None else backend
    if backends is not None:
        lines.append(_by_executor(graph, weights, args, facts["output"], backends, exact))
    return "\n".join(lines)


def _by_executor(
    graph: Graph, weights: Mapping[str, Any], args: list[Any], output: int, backends: Any, exact: Any
) -> str:
    """Return how what an executor makes of the node compares; or what it fails with, which is a finding as well."""
    try:
        executor = IRExecutor(graph, weights, backend=backends, passes=None)
        moved = [item.to(executor.device) if isinstance(item, torch.Tensor) else item for item in args]
        found = _apart(executor.run_flat(moved)[0][output], exact)
        runner = next(iter(executor.choices.values())).backend.name
    except NpuError as error:
        return f"this node, run by the executor: {error}"
    return f"this node, run by the executor on {runner}: {found}"


def _exact(side: Side, args: list[Any], output: int) -> Any:
    bound = side.bound(args, {})
    value = side.graph.nodes[0].outputs[output]
    return Float64Run(side.graph, bound, [value.name], device_of(bound)).take(value)


def _apart(item: Any, exact: Any) -> str:
    """Return how far a value is from that in float64."""
    if isinstance(exact, Missing):
        return f"float64 does not know: {exact.reason}"
    if isinstance(item, torch.Tensor) and isinstance(exact, torch.Tensor) and item.shape != exact.shape:
        return f"of shape {list(item.shape)}, and {list(exact.shape)} in float64"
    found = measure(item, exact)
    return f"{found.max_abs:.3g} from float64 on these inputs, {found.max_rel:.3g} of it, SNR {found.snr_db:.1f} dB"
