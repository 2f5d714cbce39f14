"""Costs of npu-cuda on the host: calls, programs and ops, and builds on request.

``nox -s bench-cuda`` runs it; ``--page`` writes docs/reference/cuda-benchmarks.md, ``--builds`` builds
wheels, too. What is measured on a GPU: cuda_kernels.py, cuda_models.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cuda_builds
import cuda_calls
import cuda_instructions
import host_gemm
import host_layers
import host_ops
import torch
from bars import Bar, print_bars
from machine import machine

import npu_cuda

PEER = "torch.add(out=)"
PAGE = Path("docs/reference/cuda-benchmarks.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: the numbers are rough")
    parser.add_argument("--builds", action="store_true", help="build the wheels, too: a minute or two")
    parser.add_argument("--instructions", action="store_true", help="count them, too, by valgrind: minutes")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    results = measured(options)
    text = report(results)
    print(text)
    limits = *bars(results["calls"]), *host_ops.bars(results["ops"], results["chains"])
    layer_bars = *host_gemm.bars(results["products"]), *host_layers.bars(results["layers"])
    print_bars([*limits, *layer_bars])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.page:
        PAGE.write_text(text)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    contenders = cuda_calls.calls()
    rounds = 5 if options.quick else 31
    times = cuda_calls.measure(contenders, rounds, seconds=0.02 if options.quick else 0.1)
    return {
        "machine": machine(),
        "build": npu_cuda.build_info(),
        "calls": [
            {"title": call.title, "ns": times[call.title], "most_ns": call.most_ns} for call in contenders
        ],
        "ops": host_ops.measure(options.quick),
        "chains": host_ops.measure_chains(options.quick),
        "layers": host_layers.measure(options.quick),
        "products": host_gemm.measure(options.quick),
        "instructions": cuda_instructions.measure() if options.instructions else {},
        "builds": cuda_builds.measure() if options.builds else [],
    }


HEAD = """\
# What native calls cost

`nox -s bench-cuda -- --page --builds` writes this page.
Measured on {cpu}, with PyTorch {torch} and Python {python}, on {date}.

## Calls

The sum of two rows of {items} float32, written into a third, on the host with one thread: the kernel takes a
few nanoseconds, the rest is what the call costs. Medians of rounds in which all take turns.

| | ns per op | / {peer} |
|---|---:|---:|
"""

OPS = """
## Ops on the host

Time of an op of `host`, bound to its tensors, over that of the same op of PyTorch into given memory
(`out=`), by dtype and number of elements, with one thread: medians of rounds in which both take turns. 0.5
is half the time; a dash stands for what ATen runs.

| | {columns} |
|---|{lines}
"""

CHAINS = """
Chains of 8 pointwise ops on {elements} float32, which run as one op, over eager PyTorch and over
`torch.compile`:

| | / eager | / torch.compile |
|---|---:|---:|
"""

PRODUCTS = """
## Products on the host

Products of float32 by weights that are packed once, with a bias, over PyTorch's (without a bias for `mm`) and
a Gemm node of ONNX Runtime: time of one thread, medians of rounds in which all take turns. Small ones are
{many} in a call.

| rows x inputs x outputs | us | {columns} |
|---|---:|{lines}
"""

INSTRUCTIONS = """
Instructions, counted by callgrind:

| | per op |
|---|---:|
"""

BUILDS = """
## Builds

From the sources to a wheel, without a compiler cache, in an environment that has the tools.

| mode | seconds | wheel, KB |
|---|---:|---:|
"""


def report(results: dict[str, Any]) -> str:
    """Return the page."""
    text = HEAD.format(items=cuda_calls.ITEMS, peer=PEER, **results["machine"])
    text += table(results["calls"], call_cells(results["calls"]))
    if results["instructions"]:
        text += INSTRUCTIONS
        text += "".join(f"| {title} | {count:.0f} |\n" for title, count in results["instructions"].items())
    text += ops_section(results)
    text += products_section(results["products"])
    return text + (BUILDS + table(results["builds"], build_cells) if results["builds"] else "")


def table(rows: list[dict[str, Any]], cells: Callable[[dict[str, Any]], Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells(row))} |\n" for row in rows)


def call_cells(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Sequence[str]]:
    peer = next(row["ns"] for row in rows if row["title"] == PEER)
    return lambda row: (row["title"], f"{row['ns']:.1f}", f"{row['ns'] / peer:.3f}")


def ops_section(results: dict[str, Any]) -> str:
    """Return the table of ops, and that of chains."""
    if not results["ops"]:
        return ""
    columns = list(results["ops"][0]["ratios"])
    text = OPS.format(columns=" | ".join(columns), lines="---:|" * len(columns))
    text += table(results["ops"], lambda row: (row["title"], *map(ratio_cell, row["ratios"].values())))
    text += CHAINS.format(elements=host_ops.CHAINED)
    return text + table(
        results["chains"],
        lambda row: (row["title"], ratio_cell(row["eager"]), ratio_cell(row["compiled"])),
    )


def products_section(rows: list[dict[str, Any]]) -> str:
    columns = [f"/ {name}" for name in rows[0]["ratios"]]
    text = PRODUCTS.format(many=host_gemm.MANY, columns=" | ".join(columns), lines="---:|" * len(columns))
    return text + table(
        rows, lambda row: (row["title"], f"{row['us']:.2f}", *map(ratio_cell, row["ratios"].values()))
    )


def ratio_cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def bars(rows: list[dict[str, Any]]) -> list[Bar]:
    """Return the limits on the time of calls, where there are any."""
    return [
        Bar(f"ns per op, {row['title']}", row["most_ns"], {row["title"]: row["ns"]})
        for row in rows
        if row["most_ns"] is not None
    ]


def build_cells(row: dict[str, Any]) -> Sequence[str]:
    return row["title"], f"{row['seconds']:.0f}", f"{row['kilobytes']:.0f}"


if __name__ == "__main__":
    main()
