"""The first chapter: a network is trained, extracted, saved, run elsewhere, verified."""

from __future__ import annotations

from pathlib import Path

import digits
import torch
from capturing import capture, compared, run_claims, timed, verification_claim
from claims import Claim
from executing import execute, execution_claim, execution_rows
from processes import run_graph
from results import (
    Capture,
    Run,
    TrainedResult,
    parameter_count,
    shown_bytes,
    shown_count,
    shown_difference,
    shown_seconds,
)
from terminal import Terminal
from training import speed_claim, train_both, training_claims, training_rows

from npu_ir import Graph, VerificationReport, format_ir, load_ir, parse_ir, save_ir, verify_ir

NAME = "digits"
REQUIRED_ACCURACY = 0.97
BATCH_NORM = "aten.batch_norm.default"


def run_chapter(terminal: Terminal, output: Path, epochs: int, *, small: bool) -> TrainedResult:
    """Run the chapter; write graph, text and weights to ``output``. The small one claims no speed."""
    terminal.title("A residual network, trained on handwritten digits")
    images = digits.load()
    model, training = train_both(terminal, images, epochs)
    eager, eager_seconds = eager_logits(terminal, model, images)

    batch = images.test_images[: digits.BATCH]
    with terminal.work("extract its graph, beside torch.export alone, twice each"):
        captured = capture(model, batch)
    graph = captured.graph
    text = format_ir(graph)
    terminal.code(text)

    graph_file, weights_file = output / "digits.json", output / "digits.weights.safetensors"
    with terminal.work("save graph and weights"):
        save_ir(graph, graph_file, weights=model.state_dict())
        (output / "digits.txt").write_text(text, encoding="utf-8")
    with terminal.work(f"load both in a new process and run all {len(images.test_images)} test images"):
        process = run_graph(graph_file, weights_file, {"images": images.test_images}, output)
    run = compared(eager, eager_seconds, process)
    with terminal.work("run one batch on the executor, beside eager PyTorch"):
        execution = execute(model, graph, batch)
    with terminal.work("verify the graph against the model"):
        report = verify_ir(graph, model, (batch,))
    with terminal.work("verify a damaged copy"):
        damaged, damage = verify_damaged_copy(graph, model, batch)

    claims = [
        *training_claims(NAME, training),
        *([] if small else [speed_claim(NAME, training)]),
        *accuracy_claims(images, run),
        *round_trip_claims(graph, text, graph_file),
        *run_claims(NAME, run),
        execution_claim(NAME, execution, eager[: digits.BATCH]),
        verification_claim(NAME, report),
        damage_claim(damaged, damage),
    ]
    result = TrainedResult(
        images,
        training,
        captured,
        graph_file,
        weights_file,
        run,
        execution,
        str(report),
        str(damage),
        tuple(claims),
    )
    terminal.table(summary(result))
    for claim in claims:
        terminal.claim(claim)
    return result


def eager_logits(
    terminal: Terminal, model: torch.nn.Module, images: digits.Digits
) -> tuple[torch.Tensor, float]:
    """Return eager PyTorch's logits of the test images, and the seconds they took."""
    with terminal.work(f"run the {len(images.test_images)} test images in eager PyTorch"):
        return timed(lambda: digits.logits_in_batches(model, images.test_images, digits.BATCH))


def verify_damaged_copy(
    graph: Graph, model: torch.nn.Module, batch: torch.Tensor
) -> tuple[str, VerificationReport]:
    """Change one number in a copy of ``graph``; return the node and the report of verify_ir."""
    damaged = graph.clone()
    node = list(damaged.nodes_of(BATCH_NORM))[2]
    damaged.set_attrs(node, {**node.attrs, "eps": 1e-2})
    return node.name, verify_ir(damaged, model, (batch,))


def accuracy_claims(images: digits.Digits, run: Run) -> list[Claim]:
    """Return the claims of the demo on right and wrong digits."""
    eager = digits.accuracy(run.eager, images.test_labels)
    graph = digits.accuracy(run.process.result, images.test_labels)
    same = int((run.eager.argmax(1) == run.process.result.argmax(1)).sum())
    return [
        Claim(
            NAME,
            f"The trained network is right on more than {REQUIRED_ACCURACY:.0%} of the test images",
            f"{eager:.2%}",
            eager > REQUIRED_ACCURACY,
        ),
        Claim(NAME, "The graph is as accurate as the model", f"{graph:.2%} and {eager:.2%}", graph == eager),
        Claim(
            NAME, "Both answer every test image alike", f"{same} of {len(run.eager)}", same == len(run.eager)
        ),
    ]


def round_trip_claims(graph: Graph, text: str, file: Path) -> list[Claim]:
    """Return the claims of the demo on the graph's text and file."""
    parsed, loaded = parse_ir(text), load_ir(file)
    return [
        Claim(
            NAME,
            "Parsing the graph's text gives the graph",
            f"{len(text.splitlines())} lines",
            parsed == graph,
        ),
        Claim(
            NAME,
            "Loading the graph's file gives the graph",
            shown_bytes(file.stat().st_size),
            loaded == graph,
        ),
    ]


def damage_claim(damaged: str, report: VerificationReport) -> Claim:
    """Return the claim that verify_ir finds the one node that was changed."""
    found = report.first_divergence.node if report.first_divergence else "none"
    text = "verify_ir names the node whose eps was changed in a copy"
    return Claim(NAME, text, f"changed {damaged}, named {found}", not report.ok and found == damaged)


def summary(result: TrainedResult) -> list[tuple[str, str]]:
    """Return the chapter's numbers, by name."""
    captured: Capture = result.capture
    measured = result.run.process.measured
    labels = result.digits.test_labels
    return [
        *training_rows(result.training),
        ("accuracy, eager", f"{digits.accuracy(result.run.eager, labels):.2%}"),
        ("accuracy, graph in a new process", f"{digits.accuracy(result.run.process.result, labels):.2%}"),
        ("largest difference of a logit", shown_difference(result.run.max_difference)),
        ("nodes", str(len(captured.graph))),
        ("parameters", shown_count(parameter_count(captured.graph))),
        ("graph file", shown_bytes(result.graph_file.stat().st_size)),
        ("weights file", shown_bytes(result.weights_file.stat().st_size)),
        ("torch.export", shown_seconds(captured.export_seconds)),
        ("extract_ir, torch.export included", shown_seconds(captured.extract_seconds)),
        ("eager, all test images", shown_seconds(result.run.eager_seconds)),
        (
            "graph, all test images",
            f"{shown_seconds(measured['run_seconds'])} in {measured['batches']} batches",
        ),
        ("new process, imports included", shown_seconds(result.run.process.seconds)),
        *execution_rows(result.execution),
    ]
