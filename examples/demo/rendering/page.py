"""The report: one HTML file that needs nothing else, and the same numbers as JSON."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch
import trained
import transformers
import untrained
from claims import Claim
from rendering.chapters import trained_chapter, untrained_chapter, untrained_overview
from rendering.markup import grid_table, text
from results import (
    TrainedResult,
    UntrainedResult,
    parameter_count,
    shown_bytes,
    shown_count,
    shown_seconds,
)

import npu_ir
from npu_ir import Graph
from npu_ir.viz import to_svg

_STYLE = Path(__file__).with_name("style.css")


def write_report(output: Path, digits: TrainedResult | None, others: list[UntrainedResult], seconds: float) -> Path:
    """Write report.html, results.json and a drawing of each graph to ``output``; return the report's path."""
    chapters: list[TrainedResult | UntrainedResult] = [*([digits] if digits else []), *others]
    claims = [claim for chapter in chapters for claim in chapter.claims]
    body = [_header(claims, digits, others, seconds)]
    if digits is not None:
        body.append(trained_chapter(digits, _drawing(digits.capture.graph, output / f"{trained.NAME}.svg")))
    if others:
        body.append(_untrained_introduction(others))
        body += [untrained_chapter(result, _drawing(result.graph, output / f"{result.name}.svg")) for result in others]
    body.append(_claims(claims))
    body.append(_files(output, digits))
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>npu-ir: demo report</title>
<style>
{_STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
{"".join(body)}
</body>
</html>
"""
    path = output / "report.html"
    path.write_text(page, encoding="utf-8")
    numbers = {"seconds": seconds, "environment": _environment(), **_numbers(chapters, claims)}
    (output / "results.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    return path


def _drawing(graph: Graph, path: Path) -> str:
    drawing = to_svg(graph)
    path.write_text(drawing, encoding="utf-8")
    return f"<a href='{path.name}' title='open the drawing'>{drawing}</a>"


def _header(
    claims: list[Claim], digits: TrainedResult | None, others: list[UntrainedResult], seconds: float
) -> str:
    failed = sum(not claim.holds for claim in claims)
    verdict = f"{failed} of {len(claims)} claims do not hold" if failed else f"All {len(claims)} claims hold"
    tiles = "".join(
        f"<div class='tile'><b>{text(number)}</b><span>{text(words)}</span></div>"
        for number, words in _headlines(digits, others, seconds)
    )
    return f"""
<header>
<p class="brand">npu-ir <span>demo report</span></p>
<h1>PyTorch models in, graphs out, the same answers</h1>
<p class="verdict {"bad" if failed else "good"}"><a href="#claims">{verdict}</a></p>
<div class="tiles">{tiles}</div>
{_pipe()}
</header>"""


def _headlines(
    digits: TrainedResult | None, others: list[UntrainedResult], seconds: float
) -> list[tuple[str, str]]:
    """Return the numbers to see first, each with what it says."""
    tiles = []
    if digits is not None:
        same = int((digits.run.eager.argmax(1) == digits.run.process.result.argmax(1)).sum())
        tiles.append((f"{same} of {len(digits.run.eager)}", "test images answered alike by model and graph"))
    runs = [chapter.run for chapter in ([digits] if digits else []) + others if chapter.run is not None]
    if runs:
        largest = max(run.max_difference for run in runs)
        models = f"{len(runs)} models" if len(runs) > 1 else "one model"
        exact = "difference to eager PyTorch, to the bit, in"
        tiles.append((f"{largest:.2g}", f"{'largest difference to eager PyTorch, in' if largest else exact} {models}"))
    if others:
        largest_model = max(others, key=lambda result: parameter_count(result.graph))
        extraction = largest_model.weight_free["build_seconds"] + largest_model.weight_free["extract_seconds"]
        count = shown_count(parameter_count(largest_model.graph))
        tiles.append((shown_seconds(extraction), f"for the graph of a model of {count} parameters, without its weights"))
    tiles.append((f"{seconds:.0f} s", "from the start of the demo to this report"))
    return tiles


def _pipe() -> str:
    steps = (
        ("Model", "eager PyTorch, with weights or without"),
        ("Graph", "extract_ir: functional ATen ops, typed, checked"),
        ("Files", "save_ir: JSON and safetensors"),
        ("New process", "load_ir, load_weights, Interpreter"),
        ("Proof", "verify_ir: equal to eager, or the node that is not"),
    )
    items = "".join(f"<li><b>{text(name)}</b><span>{text(words)}</span></li>" for name, words in steps)
    return f"<ol class='pipe'>{items}</ol>"


def _untrained_introduction(others: list[UntrainedResult]) -> str:
    return f"""
<section id="weight-free">
<h2>Graphs without weights</h2>
<p class="lead">A graph knows names, shapes and types of the weights, never their content. So these models were built
under <code>torch.device("meta")</code>, where a weight takes no memory, each in a process of its own. About
{text(shown_bytes(others[0].weight_free["imports_memory_bytes"] or 0))} of its memory are PyTorch and transformers.</p>
{untrained_overview(others)}
</section>"""


def _claims(claims: list[Claim]) -> str:
    rows = [
        [
            f"<span class='mark {'good' if claim.holds else 'bad'}'>{'holds' if claim.holds else 'fails'}</span>",
            text(claim.subject),
            text(claim.text),
            text(claim.measured),
        ]
        for claim in claims
    ]
    return f"""
<section id="claims">
<h2>What was claimed, and what was found</h2>
<p>The demo ends with exit code 1 if one of these does not hold.</p>
{grid_table(("", "model", "claim", "found"), rows, "grid claims")}
</section>"""


def _files(output: Path, digits: TrainedResult | None) -> str:
    names = sorted(path.name for path in output.iterdir() if path.is_file() and path.suffix in (".json", ".safetensors", ".svg", ".txt"))
    rows = [[f"<a href='{text(name)}'>{text(name)}</a>", text(shown_bytes((output / name).stat().st_size))] for name in names]
    code = """from npu_ir import execute_ir, load_ir
from safetensors.torch import load_file

graph = load_ir("digits.json")
images = load_file("digits.inputs.safetensors")["images"][:64]
logits = execute_ir(graph, (images,), weights="digits.weights.safetensors")
print(logits.argmax(1))
"""
    example = "" if digits is None else f"<h3>Run it yourself</h3><pre class='said'>{text(code)}</pre>"
    environment = ", ".join(f"{name} {value}" for name, value in _environment().items())
    return f"""
<section id="files">
<h2>Files</h2>
<div class="columns"><div>{grid_table(("file", "size"), rows)}</div><div>{example}</div></div>
</section>
<footer>{text(environment)}</footer>"""


def _environment() -> dict[str, str]:
    return {
        "npu-ir": npu_ir.__version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "transformers": transformers.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }


def _numbers(chapters: list[TrainedResult | UntrainedResult], claims: list[Claim]) -> dict[str, Any]:
    summaries = {}
    for chapter in chapters:
        if isinstance(chapter, TrainedResult):
            summaries[trained.NAME] = dict(trained.summary(chapter))
        else:
            summaries[chapter.name] = dict(untrained.summary(chapter))
    shown = [
        {"model": claim.subject, "claim": claim.text, "measured": claim.measured, "holds": claim.holds} for claim in claims
    ]
    return {"models": summaries, "claims": shown}

