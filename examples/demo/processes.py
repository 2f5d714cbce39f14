"""Worker processes of the demo, and their measurements."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

FOLDER = Path(__file__).parent


class ProcessError(RuntimeError):
    """A process of the demo ended with an error."""


@dataclass(frozen=True, slots=True)
class NewProcess:
    """The results of a process that ran a saved graph.

    Attributes:
        result: The rows that it computed.
        seconds: From its start to its end.
        measured: What `run_graph.py` printed.
    """

    result: Tensor
    seconds: float
    measured: dict[str, Any]


def run_graph(graph: Path, weights: Path, inputs: dict[str, Tensor], folder: Path) -> NewProcess:
    """Run a saved graph in a new process, on any number of rows; they are exchanged in ``folder``."""
    inputs_file = folder / f"{graph.stem}.inputs.safetensors"
    outputs_file = folder / f"{graph.stem}.outputs.safetensors"
    save_file(inputs, inputs_file)
    start = time.perf_counter()
    measured = run_script("run_graph.py", graph, weights, inputs_file, outputs_file)
    seconds = time.perf_counter() - start
    return NewProcess(load_file(outputs_file)["result"], seconds, measured)


def extract_without_weights(name: str, graph: Path, *, small: bool) -> dict[str, Any]:
    """Extract and save the graph of an architecture in a process that never holds its weights."""
    return run_script("weight_free.py", name, graph, *(["--small"] if small else []))


def run_script(script: str, *arguments: object) -> dict[str, Any]:
    """Run a script of this folder and return the JSON that it prints.

    Raises:
        ProcessError: It failed; with what it wrote to stderr.
    """
    command = [sys.executable, str(FOLDER / script), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ProcessError(f"{script} ended with exit code {process.returncode}:\n{process.stderr}")
    result: dict[str, Any] = json.loads(process.stdout)
    return result
