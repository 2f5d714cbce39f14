"""Reproduction of a divergence in a folder: one node with its inputs and values, and its replay."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from npu_ir import (
    Graph,
    InputKind,
    NpuError,
    OpNode,
    TensorType,
    Value,
    VerificationError,
    load_ir,
    load_weights,
    save_ir,
)
from npu_ir.cli.tensor_files import save_results
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from npu_ir.plugins.backend import Backend
from npu_ir.verify.reference import clone_tensors
from npu_runtime.diagnostics.compare.comparison import Comparison, Row
from npu_runtime.diagnostics.compare.float64_run import Float64Run, Missing
from npu_runtime.diagnostics.compare.metrics import measure
from npu_runtime.diagnostics.compare.sides import GraphSide, Side, device_of
from npu_runtime.executor.executor import IRExecutor

_SCRIPT = '''\
"""Runs one node on its recorded inputs, and compares its result with those of both sides.

{title}
"""

from pathlib import Path

from npu_runtime.diagnostics.compare import replay

# Import modules here that register custom ops.

print(replay(Path(__file__).parent))
'''
# The files of a reproduction beside its script.
GRAPH, TENSORS, FACTS = "node.json", "tensors.safetensors", "facts.json"


@dataclass(frozen=True, slots=True)
class Finding:
    """A divergence in a value of a node: its row, the value in the graph of side b, and what both gave."""

    row: Row
    value: Value
    a: Any
    b: Any


def write_reproduction(
    folder: Path, comparison: Comparison, finding: Finding, side: Side, call: tuple[Any, Any]
) -> None:
    """Write ``repro.py``, the node of side b as a graph, and the tensors, over existing files in a folder.

    Side b is run once more for the inputs of the node. Values that its observer is not shown are computed by
    the interpreter. Tensors that no file can hold, such as packed weights, are recomputed: the nodes that
    produce them are part of the graph.

    Raises:
        VerificationError: The files cannot be written.
    """
    node = finding.value.producer
    assert node is not None, "only values of nodes are found"
    nodes = _add_unstorable_producers([node])
    inputs = _input_values(nodes, side, call)
    graph = _make_graph(nodes, _infer_sizes(finding, inputs, side, call))
    items = {f"in.{name}": item for name, item in inputs.items()}
    items |= {"a": finding.a, "b": finding.b}
    tensors = {name: item for name, item in items.items() if isinstance(item, torch.Tensor)}
    facts = {
        "a": comparison.a,
        "b": comparison.b,
        "problem": finding.row.problem,
        "output": finding.value.index,
        "backends": side.backends,
        "numbers": {name: item for name, item in items.items() if name not in tensors},
    }
    row = finding.row
    title = f"{row.title} is {finding.value!r} in side b, at {row.location}: {row.problem}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_ir(graph, folder / GRAPH)
        save_results(tensors, folder / TENSORS)
        (folder / FACTS).write_text(json.dumps(facts, indent=2), encoding="utf-8")
        script = _SCRIPT.format(title=title.replace("\\", "\\\\").replace('"""', "'''"))
        (folder / "repro.py").write_text(script, encoding="utf-8")
    except (OSError, NpuError) as error:
        problem = error.message if isinstance(error, NpuError) else error.strerror or error
        raise VerificationError(
            f"the reproduction cannot be written: {problem}; it is of {title}",
            where=str(folder),
            fix="check that the folder may be written to" if isinstance(error, OSError) else error.fix,
        ) from error


def _add_unstorable_producers(nodes: list[OpNode]) -> list[OpNode]:
    """Return nodes preceded by the producers of their inputs that no file can hold: non-strided tensors."""
    makers = {
        value.producer: None
        for node in nodes
        for value in node.inputs
        if value.producer is not None and isinstance(value.type, TensorType)
        if value.type.layout is not torch.strided and value.producer not in nodes
    }
    return _add_unstorable_producers([*makers, *nodes]) if makers else nodes


def _make_graph(nodes: Sequence[OpNode], sizes: Mapping[str, int]) -> Graph:
    """Return nodes as a graph that returns all outputs of the last one, specialized for these sizes."""
    *_, node = nodes
    assert node.graph is not None, "the node is in the graph of a side"
    part = node.graph.subgraph(nodes, node.name)
    part.set_outputs(part.node(node.name).outputs)
    return part.specialize({name: size for name, size in sizes.items() if name in part.symbols})


def _infer_sizes(
    finding: Finding, inputs: Mapping[str, Any], side: Side, call: tuple[Any, Any]
) -> dict[str, int]:
    """Return the values of symbols, inferred from the call, the inputs of the node and its output."""
    symbols = SymbolValues(side.graph.symbols)
    bind_inputs(side.graph, *call, symbols)
    typed = [(name, side.graph.value(name).type, item) for name, item in inputs.items()]
    symbols.solve([*typed, (finding.value.name, finding.value.type, finding.b)], in_range=False)
    return symbols.values


def _input_values(nodes: Sequence[OpNode], side: Side, call: tuple[Any, Any]) -> dict[str, Any]:
    """Return the values of the inputs of nodes, other than those they produce themselves, by name."""
    bound = side.bind_arguments(*call)
    produced = {value for node in nodes for value in node.outputs}
    inputs = {value for node in nodes for value in node.inputs} - produced
    values = {value.name: bound[value] for value in inputs if value in bound}
    wanted = {value.name for value in inputs} - values.keys()

    def observe(observed: OpNode, outputs: list[Any]) -> None:
        for value, item in zip(observed.outputs, outputs, strict=True):
            if value.name in wanted and item is not None:
                values[value.name] = item.clone() if isinstance(item, torch.Tensor) else item

    if wanted and not side.is_exact:
        args, kwargs = clone_tensors(call)
        side.run(args, kwargs, observe)
    if wanted - values.keys():
        weights = {value.argument.target: item for value, item in side.weights().items() if value.argument}
        args, kwargs = clone_tensors(call)
        GraphSide(side.graph, weights).run(args, kwargs, observe)
    return values


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
    """A reference value, a tensor or number, and its name in the text."""

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
