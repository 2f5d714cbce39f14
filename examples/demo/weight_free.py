"""Extract the graph of a model whose weights do not exist: python weight_free.py MODEL GRAPH [--small].

A process of its own, so that its peak memory is that of the extraction. Prints what it measured as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import architectures
import torch
from memory import peak_memory_bytes

from npu_ir import extract_ir, save_ir


def main() -> None:
    """Extract, save, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("graph", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    architecture = architectures.architecture(options.model, small=options.small)
    before = peak_memory_bytes()

    start = time.perf_counter()
    with torch.device("meta"):
        model = architecture.build()
    built = time.perf_counter()
    graph = extract_ir(model, (architecture.example(),), name=type(model).__name__)
    extracted = time.perf_counter()
    save_ir(graph, options.graph)

    measured = {
        "build_seconds": built - start,
        "extract_seconds": extracted - built,
        "imports_memory_bytes": before,
        "peak_memory_bytes": peak_memory_bytes(),
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
