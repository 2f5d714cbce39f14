"""Cost of the default pipeline: beside PyTorch's own steps, and per node of growing graphs.

First a U-Net with 22 batch norms: the passes, PyTorch's fusion of its FX graph, and torch.export. Then
graphs of 1,000 to 100,000 nodes. In "chain" nothing is to be done. "decoder" is a chain of transformer
blocks as they are captured: the views, transposes and dropouts, two nodes of five, are rewritten. "blocks"
gives every pass as much to do as can be: a convolution and its norm, aliases, additions of zero, equal
nodes, views there and back, arithmetic on constants, and nodes that nothing reads; there is more than one
rewrite per node, and one and a quarter new node.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import torch
from torch.fx.experimental.optimization import fuse

from npu_ir import Graph, TensorType, Value, extract_ir
from npu_passes import PassManager, PassResult, optimize, passes_of

TOKENS = TensorType((1, 8, 16), torch.float32)
WIDE = TensorType((1, 8, 64), torch.float32)
SPLIT = TensorType((1, 8, 2, 8), torch.float32)
HEADS = TensorType((1, 2, 8, 8), torch.float32, (128, 8, 16, 1))
MIXED = TensorType((1, 2, 8, 8), torch.float32)
TURNED = TensorType((1, 8, 2, 8), torch.float32, (128, 8, 64, 1))
IMAGE = TensorType((1, 4, 4, 4), torch.float32)
FLAT = TensorType((1, 64), torch.float32)
CHANNELS = TensorType((4,), torch.float32)
BLOCK_NODES = 12
LAYER_NODES = 21


def chain(nodes: int) -> Graph:
    """Return a chain of additions and activations, in which nothing is to be done."""
    graph = Graph("chain")
    value = x = graph.add_input("x", TOKENS)
    for index in range(nodes):
        inputs = {"self": value} if index % 2 else {"self": value, "other": x}
        op_type = "aten.relu.default" if index % 2 else "aten.add.Tensor"
        node = graph.insert(op_type, list(inputs.values()), types=TOKENS, operands=list(inputs))
        value = node.outputs[0]
    graph.set_outputs(value)
    return graph


def decoder(nodes: int) -> Graph:
    """Return a chain of transformer blocks of about ``nodes`` nodes."""
    graph = Graph("decoder")
    value = graph.add_input("x", TOKENS)
    for index in range(nodes // LAYER_NODES):
        value = layer(graph, value, f"h{index}")
    graph.set_outputs(value)
    return graph


def layer(graph: Graph, x: Value, name: str) -> Value:
    """Append one transformer block and return its result."""

    def call(op_type: str, type: TensorType, attrs: dict[str, Any] | None = None, **inputs: Value) -> Value:
        node = graph.insert(op_type, list(inputs.values()), attrs, types=type, operands=list(inputs))
        return node.outputs[0]

    def weight(part: str, *shape: int) -> Value:
        return graph.add_parameter(f"{name}.{part}", TensorType(shape, torch.float32))

    def linear(part: str, value: Value, type: TensorType, inputs: int, outputs: int) -> Value:
        weights = {
            "weight": weight(f"{part}.weight", outputs, inputs),
            "bias": weight(f"{part}.bias", outputs),
        }
        return call("aten.linear.default", type, input=value, **weights)

    def norm(part: str, value: Value) -> Value:
        weights = {"weight": weight(f"{part}.weight", 16), "bias": weight(f"{part}.bias", 16)}
        return call("aten.layer_norm.default", TOKENS, {"normalized_shape": [16]}, input=value, **weights)

    def heads(part: str, value: Value) -> Value:
        split = call(
            "aten.view.default", SPLIT, {"size": [1, 8, 2, 8]}, self=linear(part, value, TOKENS, 16, 16)
        )
        return call("aten.transpose.int", HEADS, {"dim0": 1, "dim1": 2}, self=split)

    normed = norm("norm1", x)
    query, key, value = (heads(part, normed) for part in ("q", "k", "v"))
    mixed = call(
        "aten.scaled_dot_product_attention.default",
        MIXED,
        {"attn_mask": None, "dropout_p": 0.0, "is_causal": True},
        query=query,
        key=key,
        value=value,
    )
    turned = call("aten.transpose.int", TURNED, {"dim0": 1, "dim1": 2}, self=mixed)
    joined = call("aten.reshape.default", TOKENS, {"shape": [1, 8, 16]}, self=turned)
    x = call("aten.add.Tensor", TOKENS, self=x, other=linear("out", joined, TOKENS, 16, 16))
    inner = call("aten.gelu.default", WIDE, self=linear("up", norm("norm2", x), WIDE, 16, 64))
    kept = call("aten.dropout.default", WIDE, {"p": 0.1, "train": False}, input=inner)
    return call("aten.add.Tensor", TOKENS, self=x, other=linear("down", kept, TOKENS, 64, 16))


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
    """Append one block and return its result."""
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


def peers(repeat: int) -> dict[str, float]:
    """Measure the passes beside PyTorch on the same model; interleaved, medians, in seconds."""
    model, args = models.unet()
    graph = extract_ir(model, args)
    folding = PassManager("conv-bn-folding")
    steps: dict[str, Callable[[], Any]] = {
        "torch.export": lambda: torch.export.export(model, args),
        "optimize(graph)": lambda: optimize(graph),
        "conv-bn-folding": lambda: folding.run(graph),
        "torch.fx fuse": lambda: fuse(model),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeat + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    median = {name: statistics.median(found[1:]) for name, found in times.items()}  # the first warms up
    for name, seconds in median.items():
        print(f"{name:<16} {seconds * 1e3:7.1f} ms  {seconds / median['torch.export']:5.2f}x torch.export")
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--pipeline", default="default")
    parser.add_argument("--repeat", type=int, default=3, help="runs per size; the shortest counts")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    compared = peers(options.repeat)
    rows = {
        make.__name__: scaling(make, options.sizes, options.pipeline, options.repeat)
        for make in (chain, decoder, blocks)
    }
    if options.json is not None:
        options.json.write_text(json.dumps({"peers": compared, "scaling": rows}, indent=2), encoding="utf-8")


def scaling(
    make: Callable[[int], Graph], sizes: list[int], pipeline: str, repeat: int
) -> list[dict[str, float]]:
    """Measure a pipeline on graphs of growing size."""
    print(f"\n{make.__name__}:")
    timed(make(120), pipeline, 1)  # the schemas of the ops are read once per process
    rows: list[dict[str, float]] = []
    for size in sizes:
        graph = make(size)
        seconds, result = timed(graph, pipeline, max(1, repeat if size < 50_000 else 2))
        rows.append({"nodes": len(graph), "after": result.after.nodes, "seconds": seconds})
        per_node = seconds / len(graph) * 1e6
        growth = per_node / (rows[0]["seconds"] / rows[0]["nodes"] * 1e6)
        print(
            f"{len(graph):>7} nodes -> {result.after.nodes:>6}: {seconds:7.3f} s, {per_node:6.1f} "
            f"us per node ({growth:.2f}x), {len(result.journal.rewrites):>6} rewrites, passes "
            f"alone {result.seconds:.3f} s"
        )
    return rows


if __name__ == "__main__":
    main()
