"""Cost of capture, relative to torch.export in the same run, and scaling of large graphs.

Prints tables and, with ``--json FILE``, writes the numbers. Medians of interleaved repetitions; nothing
else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import models
import torch

from npu_ir import (
    Graph,
    TensorType,
    convert_exported_program,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
)


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def capture_costs(
    name: str, model: torch.nn.Module, args: tuple[Any, ...], repeat: int, dynamic_shapes: Any = None
) -> dict[str, Any]:
    """Measure export, our conversion, the whole of extract_ir, and PyTorch's own functionalization."""
    sizes = {"dynamic_shapes": dynamic_shapes}
    rows: dict[str, list[float]] = {"export": [], "convert": [], "extract_ir": [], "run_decompositions": []}
    graph = extract_ir(model, args, **sizes)  # warms up torch.export and loads plugins
    for _ in range(repeat):
        program = torch.export.export(model, args, **sizes)
        rows["export"].append(seconds(lambda: torch.export.export(model, args, **sizes)))
        rows["convert"].append(seconds(lambda program=program: convert_exported_program(program)))
        rows["extract_ir"].append(seconds(lambda: extract_ir(model, args, **sizes)))
        rows["run_decompositions"].append(seconds(lambda program=program: program.run_decompositions({})))
    median = {key: statistics.median(times) for key, times in rows.items()}
    print(
        f"{name:<22}{len(graph):>7} nodes  export {median['export']:6.2f} s  "
        + "  ".join(f"{key} {median[key] / median['export']:5.2f}x" for key in rows if key != "export")
    )
    return {"model": name, "nodes": len(graph), "seconds": median}


def interpreter_cost(name: str, model: torch.nn.Module, args: tuple[Any, ...], repeat: int) -> dict[str, Any]:
    """Measure the reference interpreter against eager; it is written to be read, not to be fast."""
    graph, weights = extract_ir(model, args), model.state_dict()
    with torch.no_grad():
        eager = statistics.median(seconds(lambda: model(*args)) for _ in range(repeat))
    ours = statistics.median(seconds(lambda: execute_ir(graph, args, weights=weights)) for _ in range(repeat))
    print(f"{name:<22}eager {eager * 1e3:8.2f} ms  interpreter {ours / eager:5.2f}x")
    return {"model": name, "eager": eager, "interpreter": ours}


def import_cost(repeat: int) -> float:
    """Measure the time of ``import npu_ir`` after ``import torch``, in new processes."""
    code = "import time, torch; t = time.perf_counter(); import npu_ir; print(time.perf_counter() - t)"
    runs = [float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(repeat)]
    median = statistics.median(runs)
    print(f"import npu_ir after import torch: {median * 1e3:.0f} ms")
    return median


def chain(nodes: int) -> Graph:
    """Return a graph of ``nodes`` additions, each reading the one before it and the input."""
    graph = Graph("chain")
    value = x = graph.add_input("x", TensorType((4, 4), torch.float32))
    for _ in range(nodes):
        node = graph.insert("aten.add.Tensor", [value, x], types=x.type, operands=["self", "other"])
        value = node.outputs[0]
    graph.set_outputs(value)
    return graph


def scaling(sizes: list[int]) -> list[dict[str, Any]]:
    """Measure whole-graph operations on graphs of growing size, in microseconds per node."""
    results = []
    for size in sizes:
        graph, text = chain(size), str(chain(size))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "chain.json")
            steps: dict[str, Callable[[], Any]] = {
                "build": lambda: chain(size),
                "check": graph.check,
                "print": lambda: str(graph),
                "parse": lambda: parse_ir(text),
                "clone": graph.clone,
                "save": lambda: save_ir(graph, path),
                "load": lambda: load_ir(path),
            }
            cost = {name: seconds(step) / size * 1e6 for name, step in steps.items()}
        print(
            f"{size:>7} nodes, us per node: "
            + "  ".join(f"{name} {value:.1f}" for name, value in cost.items())
        )
        results.append({"nodes": size, "us_per_node": cost})
    return results


def huge_model() -> dict[str, Any]:
    """Extract and save the 70-billion-parameter decoder; meant for a process of its own."""
    model, args = models.llama_70b()
    start = time.perf_counter()
    graph = extract_ir(model, args)
    elapsed = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "llama.json")
        save_ir(graph, path)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    parameters = sum(value.tensor_type.numel for value in graph.parameters.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "parameters": parameters,
        "nodes": len(graph),
        "seconds": elapsed,
        "peak_bytes": peak,
        "file_bytes": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each measurement")
    parser.add_argument("--huge", action="store_true", help="only extract the 70B decoder and print JSON")
    options = parser.parse_args()
    if options.huge:
        print(json.dumps(huge_model()))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    results: dict[str, Any] = {"torch": torch.__version__, "import": import_cost(options.repeat)}
    cases = {
        "GPT, 24 layers": models.gpt(24),
        "ResNet-50, eval": models.resnet50(training=False),
        "ResNet-50, training": models.resnet50(training=True),
    }
    results["capture"] = [capture_costs(name, *case, options.repeat) for name, case in cases.items()]
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    results["capture"] += [
        capture_costs(f"{name}, any batch", *cases[name], options.repeat, dynamic_shapes=(batch,))
        for name in ("GPT, 24 layers", "ResNet-50, eval")
    ]
    results["interpreter"] = [
        interpreter_cost(name, *case, options.repeat) for name, case in list(cases.items())[:2]
    ]
    results["scaling"] = scaling([1_000, 10_000, 100_000])
    huge = json.loads(
        subprocess.check_output([sys.executable, __file__, "--huge"], text=True).splitlines()[-1]
    )
    print(
        f"{huge['parameters'] / 1e9:.1f}B-parameter decoder: {huge['nodes']} nodes in {huge['seconds']:.1f} "
        f"s, peak memory {huge['peak_bytes'] / 2**30:.2f} GiB, graph file {huge['file_bytes'] / 1e6:.2f} MB"
    )
    results["huge"] = huge
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
