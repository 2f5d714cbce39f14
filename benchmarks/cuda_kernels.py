"""Time of the kernels on a GPU, over that of PyTorch and of torch.compile, and relative to its limits.

``python benchmarks/cuda_kernels.py --compile --json kernels.json`` measures on a machine with a GPU;
``benchmarks/gpu_page.py`` writes a page from it on any. ``--dry`` goes through
all cases on the CPU with small tensors, to check them: its times say nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from cuda_case import BIG, SMALL, Case, Data, Variant
from cuda_cases import CASES
from cuda_programs import difference, make_program
from host_ops import Call
from machine import machine
from torch import Tensor

from npu_cuda._C import chain_compiler

# Of an H100 and an H200: float32 without tensor cores, and bfloat16 with them.
FLOPS_PER_SECOND = {torch.float32: 67e12, torch.bfloat16: 989e12}
GRAPH_US, ROUNDS_US = 500, 30_000  # of a graph, at least; of all rounds, about
MOST_LAUNCHES, MOST_ROUNDS = 100, 20
DRY_ELEMENTS, DRY_SIDE = 1 << 16, 64

Result = dict[str, Any]
Save = Callable[[Result], None]


def start(device: torch.device) -> Result:
    """Return what says on what is measured, without rows."""
    torch.backends.cuda.matmul.allow_tf32 = False
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    return {
        "gpu": name,
        "cuda": torch.version.cuda,
        "machine": machine(),
        "fusion_absence": chain_compiler()["absence"],
        "bytes_per_second": copy_rate(device),
        "rows": [],
    }


def variants(only: str) -> Iterator[tuple[str, Case, Variant]]:
    for case in CASES:
        for variant in case.variants:
            if re.search(only, title := title_of(case, variant)):
                yield title, case, variant


def add_rows(
    found: Result, device: torch.device, deadline: float, only: str = "", save: Save = lambda _: None
) -> None:
    """Add the rows that are not there.

    Args:
        found: A result, maybe of a process that ended early.
        device: A GPU; or the CPU, for a dry run.
        deadline: The remaining cases are left out.
        only: A regular expression that titles match.
        save: Called before and after each case.
    """
    if running := found.pop("running", None):
        found["rows"].append({"title": running, "error": "it ended the process, or the context of the GPU"})
    done = {row["title"] for row in found["rows"]}
    for title, case, variant in variants(only):
        if title not in done and time.monotonic() < deadline:
            save({**found, "running": title})
            found["rows"].append({"title": title, **row_or_error(case, variant, device, found)})
            save(found)
            release(device)


def add_compiled(found: Result, device: torch.device, deadline: float, only: str, save: Save) -> None:
    """Add the time of torch.compile to rows without it, while there is time."""
    rows = {row["title"]: row for row in found["rows"] if "us" in row}
    # The first size of each case, then the second ones.
    for title, case, variant in sorted(variants(only), key=lambda item: item[1].variants.index(item[2])):
        row = rows.get(title, {})
        if row and not {"compiled_us", "compiled_error"} & set(row) and time.monotonic() < deadline:
            row["compiled_error"] = "it ended the process, or the context of the GPU"
            save(found)
            del row["compiled_error"]
            torch.compiler.reset()
            tensors = inputs_of(case, variant, device)
            compiled = torch.compile(Call(case.peer or case.function, tensors), dynamic=False)
            row.update(timed("compiled", lambda: compiled(*tensors), device))
            save(found)
            del tensors, compiled
            release(device)


def copy_rate(device: torch.device) -> float:
    """Return how many bytes a second a copy by PyTorch reads and writes."""
    x, y = (torch.zeros(elements(2 * BIG, device), dtype=torch.bfloat16, device=device) for _ in range(2))
    return 2 * x.nbytes / microseconds(lambda: y.copy_(x), device) * 1e6


def elements(count: int, device: torch.device) -> int:
    """Return how many elements a case has, or a side of its matrices; in a dry run, fewer."""
    if device.type == "cuda":
        return count
    return min(count, DRY_SIDE if count < SMALL else DRY_ELEMENTS)


def inputs_of(case: Case, variant: Variant, device: torch.device) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    count, dtype = variant
    return case.inputs(Data(elements(count, device), dtype, device))


def title_of(case: Case, variant: Variant) -> str:
    count, dtype = variant
    size = f"{count >> 20}M" if count >= 1 << 20 else f"{count >> 10}K" if count >= 1 << 14 else count
    return f"{case.title}, {size} {'f32' if dtype is torch.float32 else 'bf16'}"


def row_or_error(case: Case, variant: Variant, device: torch.device, found: Result) -> Result:
    """Return a row; where the case fails, one that says why: the others go on."""
    try:
        return row(case, inputs_of(case, variant, device), variant[1], device, found["bytes_per_second"])
    except Exception as error:  # noqa: BLE001 - whatever fails, other rows are measured
        return {"error": one_line(error)}


def timed(name: str, run: Callable[[], object], device: torch.device) -> Result:
    """Return the time of a run, or why there is none."""
    try:
        return {f"{name}_us": microseconds(run, device)}
    except Exception as error:  # noqa: BLE001 - as above
        return {f"{name}_error": one_line(error)}


def one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def release(device: torch.device) -> None:
    """Free memory; raises where a kernel broke the context of the GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def row(
    case: Case, tensors: tuple[Tensor, ...], dtype: torch.dtype, device: torch.device, rate: float
) -> Result:
    expected = as_list(case.function(*tensors))
    program = make_program(case, tensors, expected, device)
    program.run()
    problem = difference(program.results, expected, is_random=case.is_random)
    moved, flops = program.native.cost()
    # Each tensor once, as if all was one kernel; less where an op reads only a part, as an embedding does.
    moved = min(moved, sum(tensor.nbytes for tensor in (*tensors, *expected)))
    peer = case.peer or case.function
    return {
        **({"wrong": problem} if problem else {}),
        **({"refusal": program.refusal} if program.refusal else {}),
        "kernels": program.native.kernels,
        "us": microseconds(program.run, device),
        "floor_us": max(moved / rate, flops / FLOPS_PER_SECOND[dtype]) * 1e6,
        **timed("torch", lambda: peer(*tensors), device),
    }


def as_list(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def microseconds(run: Callable[[], object], device: torch.device) -> float:
    """Return microseconds of a run on the device: the median of rounds, each of a graph of many launches."""
    run()
    once = elapsed(repeated(run, 1, device), device)
    launches = max(1, min(MOST_LAUNCHES, int(GRAPH_US / once)))
    rounds = max(3, min(MOST_ROUNDS, int(ROUNDS_US / (once * launches))))
    replay = repeated(run, launches, device)
    return statistics.median(elapsed(replay, device) for _ in range(rounds)) / launches


def repeated(run: Callable[[], object], count: int, device: torch.device) -> Callable[[], None]:
    """Return several runs as one: on a GPU, as a graph."""

    def repeat() -> None:
        for _ in range(count):
            run()

    if device.type == "cpu":
        return repeat
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        repeat()
    return graph.replay


def elapsed(run: Callable[[], object], device: torch.device) -> float:
    """Return the microseconds of a run. On a GPU, one before it hides what the launch costs the CPU."""
    run()
    if device.type == "cpu":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e6
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


SECTION = """
## Kernels

On {gpu}, with PyTorch {torch} for CUDA {cuda}, on {date}: graphs of many launches, large buffers larger than
the cache, random data, medians. The floor is what a computation reads and writes at the rate of a copy by
PyTorch, {rate:.2f} TB/s, or its floating-point operations at full rate, whichever takes longer; K and M are
elements, other numbers sides of matrices. `python benchmarks/cuda_kernels.py --compile` measures them.

| | ops | us | floor, us | reached | / torch | / torch.compile |
|---|---:|---:|---:|---:|---:|---:|
"""


def section(found: Mapping[str, Any]) -> str:
    """Return the part of the page on kernels."""
    head = SECTION.format(
        gpu=found["gpu"], cuda=found["cuda"], rate=found["bytes_per_second"] / 1e12,
        torch=found["machine"]["torch"], date=found["machine"]["date"]
    )  # fmt: skip
    return head + "".join(f"| {' | '.join(cells(row))} |\n" for row in found["rows"])


def cells(row: Mapping[str, Any]) -> Iterator[str]:
    if "us" not in row:
        yield from (f"{row['title']}: {row['error'].replace('|', '/')}", *["-"] * 6)
        return
    us, floor = row["us"], row["floor_us"]
    wrong = f" **WRONG**: {row['wrong']}" if "wrong" in row else ""
    yield row["title"] + (" (left to PyTorch)" if "refusal" in row else "") + wrong
    yield from (str(len(row["kernels"])), f"{us:.2f}", f"{floor:.2f}", f"{floor / us:.0%}")
    yield from (f"{us / row[key]:.2f}" if key in row else "-" for key in ("torch_us", "compiled_us"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="measure torch.compile, too, after the rest")
    parser.add_argument("--seconds", type=float, default=120, help="after so many, the rest is left out")
    parser.add_argument("--only", default="", help="cases whose titles match this regular expression")
    parser.add_argument("--json", type=Path, help="write the results to this file, after each case")
    parser.add_argument("--resume", action="store_true", help="add to the results in this file")
    parser.add_argument("--dry", action="store_true", help="on the CPU, with small tensors")
    options = parser.parse_args()

    def save(found: Result) -> None:
        if options.json:  # at once: the process may be ended at any time
            part = options.json.with_suffix(".part")
            part.write_text(json.dumps(found, indent=1) + "\n")
            part.replace(options.json)

    device = torch.device("cpu" if options.dry else "cuda:0")
    deadline = time.monotonic() + options.seconds
    is_there = options.resume and options.json.exists()
    found = json.loads(options.json.read_text()) if is_there else start(device)
    with torch.no_grad():
        add_rows(found, device, deadline, options.only, save)
        if options.compile:
            add_compiled(found, device, deadline, options.only, save)
    print(section(found))


if __name__ == "__main__":
    main()
