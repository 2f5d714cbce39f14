"""Run a saved graph on saved inputs: python run_graph.py GRAPH WEIGHTS INPUTS OUTPUTS.

This process knows the graph and the weights, and nothing of the model. The sizes of a graph are fixed:
INPUTS may hold more rows than the graph takes, which are then run batch by batch, the last one filled
up with zeros. Prints what it measured as JSON.
"""

from __future__ import annotations

import time

START = time.perf_counter()

import argparse
import json
import sys
from pathlib import Path

import torch
from memory import peak_memory_bytes
from safetensors.torch import load_file, save_file
from torch import Tensor

from npu_ir import Interpreter, load_ir, load_weights

MODEL_CODE = ("architectures", "digits", "sklearn", "transformers")


def main() -> None:
    """Load, run, save, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("graph", "weights", "inputs", "outputs"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    imported = time.perf_counter()
    graph = load_ir(options.graph)
    graph_loaded = time.perf_counter()
    interpreter = Interpreter(graph, load_weights(options.weights, graph))
    weights_bound = time.perf_counter()
    rows = load_file(options.inputs)[graph.inputs[0].argument.target]
    batches = padded_batches(rows, graph.inputs[0].type.shape[0])
    started = time.perf_counter()
    results = [interpreter.run_flat((batch,))[0][0] for batch in batches]
    finished = time.perf_counter()
    save_file({"result": torch.cat(results)[: len(rows)].contiguous()}, options.outputs)

    measured = {
        "import_seconds": imported - START,
        "load_graph_seconds": graph_loaded - imported,
        "load_weights_seconds": weights_bound - graph_loaded,
        "run_seconds": finished - started,
        "batches": len(batches),
        "model_code": [name for name in MODEL_CODE if name in sys.modules],
        "peak_memory_bytes": peak_memory_bytes(),
    }
    print(json.dumps(measured))


def padded_batches(rows: Tensor, size: int) -> list[Tensor]:
    """Return ``rows`` in batches of exactly ``size``."""
    missing = -len(rows) % size
    padded = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows
    return list(padded.split(size))


if __name__ == "__main__":
    main()
