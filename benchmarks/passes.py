"""How the default pipeline scales with the size of a graph: time per node at 1,000, 10,000 and 100,000 nodes.

The graphs are chains of blocks that give every pass something to do: a convolution and its norm, aliases, additions
of zero, equal nodes, views there and back, arithmetic on constants, and nodes that nothing reads.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

import torch

from npu_ir import Graph, TensorType, Value
from npu_passes import PassManager, PassResult, passes_of

IMAGE = TensorType((1, 4, 4, 4), torch.float32)
FLAT = TensorType((1, 64), torch.float32)
CHANNELS = TensorType((4,), torch.float32)
BLOCK_NODES = 12


def blocks(nodes: int) -> Graph:
    """Return a graph of about ``nodes`` nodes."""
    graph = Graph("blocks")
    value = graph.add_input("x", IMAGE)
    constant = graph.add_constant("c", torch.ones(1, 4, 1, 1))
    for index in range(nodes // BLOCK_NODES):
        value = block(graph, value, constant, f"b{index}")
    graph.set_outputs(value)
    return graph


def block(graph: Graph, x: Value, constant: Value, name: str) -> Value:
    """Append one block and return what it returns."""
    weight = graph.add_parameter(f"{name}.weight", TensorType((4, 4, 1, 1), torch.float32))
    norm = {
        key: graph.add_parameter(f"{name}.{key}", CHANNELS)
        for key in ("gamma", "beta", "running_mean", "running_var")
    }

    def call(op_type: str, type: TensorType, attrs: dict[str, Any] | None = None, **inputs: Value) -> Value:
        node = graph.insert(op_type, list(inputs.values()), attrs, types=type, operands=list(inputs))
        return node.outputs[0]

    conv = call("aten.conv2d.default", IMAGE, input=x, weight=weight)
    batch_norm = call(
        "aten.batch_norm.default",
        IMAGE,
        {"training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False},
        input=conv,
        weight=norm["gamma"],
        bias=norm["beta"],
        running_mean=norm["running_mean"],
        running_var=norm["running_var"],
    )
    flat = call("aten.view.default", FLAT, {"size": [1, 64]}, self=batch_norm)
    back = call("aten.view.default", IMAGE, {"size": [1, 4, 4, 4]}, self=flat)
    alias = call("aten.alias.default", IMAGE, self=back)
    shifted = call("aten.add.Tensor", IMAGE, {"other": 0}, self=alias)
    left = call("aten.relu.default", IMAGE, self=shifted)
    right = call("aten.relu.default", IMAGE, self=shifted)
    double = call("aten.mul.Tensor", TensorType((1, 4, 1, 1), torch.float32), {"other": 2.0}, self=constant)
    call("aten.neg.default", IMAGE, self=left)
    total = call("aten.add.Tensor", IMAGE, self=left, other=right)
    return call("aten.mul.Tensor", IMAGE, self=total, other=double)


def timed(graph: Graph, pipeline: str, repeat: int) -> tuple[float, PassResult]:
    """Return the shortest of some runs, all checks and statistics included."""
    manager = PassManager(passes_of(pipeline))
    best, result = float("inf"), None
    for _ in range(repeat):
        gc.collect()
        start = time.perf_counter()
        result = manager.run(graph)
        best = min(best, time.perf_counter() - start)
    assert result is not None
    return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--pipeline", default="default")
    parser.add_argument("--repeat", type=int, default=3, help="runs per size; the shortest counts")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    timed(blocks(120), options.pipeline, 1)  # the schemas of the ops are read once per process
    rows = []
    for size in options.sizes:
        graph = blocks(size)
        seconds, result = timed(graph, options.pipeline, max(1, options.repeat if size < 50_000 else 2))
        rows.append({"nodes": len(graph), "after": result.after.nodes, "seconds": seconds})
        per_node = seconds / len(graph) * 1e6
        growth = per_node / (rows[0]["seconds"] / rows[0]["nodes"] * 1e6)
        print(
            f"{len(graph):>7} nodes -> {result.after.nodes:>6}: {seconds:7.3f} s, {per_node:6.1f} us per node "
            f"({growth:.2f}x), {result.rounds} rounds, passes alone {result.seconds:.3f} s"
        )
        spent: dict[str, float] = {}
        for item in result.passes:
            spent[item.text] = spent.get(item.text, 0.0) + item.seconds
        print(
            "        " + "  ".join(f"{name} {value / len(graph) * 1e6:.1f}" for name, value in spent.items())
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
