"""The other chapters: well-known architectures, extracted without weights and run with random ones."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from architectures import Architecture, architecture
from capturing import capture, compared, run_claims, timed, verification_claim
from claims import Claim
from executing import execute, execution_claim, execution_rows
from processes import extract_without_weights, run_graph
from results import (
    Capture,
    Execution,
    Run,
    UntrainedResult,
    parameter_count,
    shown_bytes,
    shown_count,
    shown_difference,
    shown_seconds,
    weight_bytes,
)
from terminal import Terminal
from torch import nn

from npu_ir import Graph, load_ir, verify_ir

TITLES = {
    "gpt2": "GPT-2, random weights",
    "resnet50": "ResNet-50, random weights",
    "llama-70b": "A Llama of 70 billion parameters, no weights at all",
}
BLOCKS = {
    "gpt2": "transformer.h.0",
    "resnet50": "resnet.encoder.stages.0.layers.1",
    "llama-70b": "model.layers.0",
}
WITHOUT_WEIGHTS = ("llama-70b",)
MEMORY_LIMIT = 3_000_000_000
FILE_LIMIT = 30_000_000


def run_chapter(terminal: Terminal, output: Path, name: str, *, small: bool) -> UntrainedResult:
    """Run the chapter of one architecture; leaves its graph in ``output``."""
    title = TITLES[name] + (", shrunk" if small else "")
    terminal.title(title)
    graph_file = output / f"{name}.json"
    with terminal.work("build on meta, extract and save the graph, in a process without weights"):
        weight_free = extract_without_weights(name, graph_file, small=small)
        graph = load_ir(graph_file)
    captured, run, execution, claims = None, None, None, []
    if name in WITHOUT_WEIGHTS:
        claims = size_claims(name, weight_free["peak_memory_bytes"], graph_file)
    else:
        captured, run, execution, claims = with_weights(
            terminal, name, architecture(name, small=small), graph, graph_file
        )
    result = UntrainedResult(
        name, title, weight_free, graph, graph_file, captured, run, execution, tuple(claims)
    )
    terminal.table(summary(result))
    for claim in claims:
        terminal.claim(claim)
    return result


def with_weights(
    terminal: Terminal, name: str, recipe: Architecture, graph: Graph, graph_file: Path
) -> tuple[Capture, Run, Execution, list[Claim]]:
    """Compare the weight-free ``graph`` with the model: as graphs, and by their results."""
    with terminal.work("build the model with random weights"):
        torch.manual_seed(0)
        model = recipe.build()
    example = recipe.example()
    with terminal.work("extract its graph, beside torch.export alone, twice each"):
        captured = capture(model, example)
    with torch.no_grad():
        eager, eager_seconds = timed(lambda: model(example).logits)
    run = run_elsewhere(terminal, model, graph, graph_file, example, eager, eager_seconds)
    with terminal.work("run the graph on the executor, beside eager PyTorch"):
        execution = execute(model, graph, example)
    with terminal.work("verify the graph against the model"):
        report = verify_ir(graph, model, (example,))
    same = captured.graph == graph
    claims = [
        Claim(
            name,
            "The graph extracted without weights is the graph extracted with them",
            f"{len(graph)} and {len(captured.graph)} nodes, {'equal' if same else 'not equal'}",
            same,
        ),
        *run_claims(name, run),
        execution_claim(name, execution, eager),
        verification_claim(name, report),
    ]
    return captured, run, execution, claims


def run_elsewhere(
    terminal: Terminal,
    model: nn.Module,
    graph: Graph,
    graph_file: Path,
    example: torch.Tensor,
    eager: torch.Tensor,
    eager_seconds: float,
) -> Run:
    """Run the saved graph in a new process with the weights as ``transformers`` saves them.

    Random weights are not worth keeping: their file is gone afterwards.
    """
    with tempfile.TemporaryDirectory(dir=graph_file.parent) as folder:
        with terminal.work("save the weights with save_pretrained") as advance:
            model.save_pretrained(folder)
            advance(shown_bytes(sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))))
        with terminal.work("load the weight-free graph and the weights in a new process and run them"):
            process = run_graph(
                graph_file, Path(folder, "model.safetensors"), {graph.inputs[0].name: example}, Path(folder)
            )
    return compared(eager, eager_seconds, process)


def size_claims(name: str, peak: int | None, graph_file: Path) -> list[Claim]:
    """Return the claims of the demo on a model whose weights far exceed this machine."""
    size = graph_file.stat().st_size
    memory = (
        []
        if peak is None
        else [
            Claim(
                name,
                f"Extraction needs less than {shown_bytes(MEMORY_LIMIT)} of memory",
                f"{shown_bytes(peak)} at the peak",
                peak < MEMORY_LIMIT,
            )
        ]
    )
    return [
        *memory,
        Claim(
            name,
            f"The graph file is smaller than {shown_bytes(FILE_LIMIT)}",
            shown_bytes(size),
            size < FILE_LIMIT,
        ),
    ]


def summary(result: UntrainedResult) -> list[tuple[str, str]]:
    """Return the chapter's numbers, by name."""
    graph, measured = result.graph, result.weight_free
    seconds = measured["build_seconds"] + measured["extract_seconds"]
    rows = [
        ("nodes", f"{len(graph):,}"),
        ("parameters", shown_count(parameter_count(graph))),
        ("weights, if there were any" if result.run is None else "weights", shown_bytes(weight_bytes(graph))),
        ("graph file", shown_bytes(result.graph_file.stat().st_size)),
        ("extracted without weights in", shown_seconds(seconds)),
        *memory_rows(result),
    ]
    if result.capture is not None and result.run is not None:
        process = result.run.process
        rows += [
            ("torch.export, with weights", shown_seconds(result.capture.export_seconds)),
            ("extract_ir, torch.export included", shown_seconds(result.capture.extract_seconds)),
            ("eager", shown_seconds(result.run.eager_seconds)),
            ("graph, in a new process", shown_seconds(process.measured["run_seconds"])),
            ("new process, imports included", shown_seconds(process.seconds)),
            ("largest difference", shown_difference(result.run.max_difference)),
        ]
    if result.execution is not None:
        rows += execution_rows(result.execution)
    return rows


def memory_rows(result: UntrainedResult) -> list[tuple[str, str]]:
    """Return the peak memory of the weight-free process, if the platform reports it."""
    peak, imports = result.weight_free["peak_memory_bytes"], result.weight_free["imports_memory_bytes"]
    if peak is None or imports is None:
        return []
    return [
        ("peak memory, without weights", shown_bytes(peak)),
        ("of that, PyTorch and transformers", shown_bytes(imports)),
    ]
