"""The report: one HTML file that needs nothing else, and the same numbers as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import trained
import untrained
from claims import Claim
from rendering.chapters import trained_chapter, untrained_chapter, untrained_overview
from rendering.closing import claims_section, environment, files_section
from rendering.opening import opening
from results import TrainedResult, UntrainedResult

from npu_ir import Graph
from npu_ir.viz import to_svg

_STYLE = Path(__file__).with_name("style.css")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>npu-ir: demo report</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def write_report(
    output: Path, digits: TrainedResult | None, others: list[UntrainedResult], seconds: float
) -> Path:
    """Write report.html, results.json and a drawing of each graph to ``output``; return the report's path."""
    claims = [claim for chapter in [*([digits] if digits else []), *others] for claim in chapter.claims]
    body = [opening(claims, digits, others, seconds)]
    if digits is not None:
        body.append(trained_chapter(digits, _drawing(digits.capture.graph, output / f"{trained.NAME}.svg")))
    if others:
        body.append(untrained_overview(others))
    body += [untrained_chapter(item, _drawing(item.graph, output / f"{item.name}.svg")) for item in others]
    numbers = {"seconds": seconds, "environment": environment(), **_numbers(claims, digits, others)}
    (output / "results.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    body += [claims_section(claims), files_section(output, digits)]
    path = output / "report.html"
    page = _PAGE.format(style=_STYLE.read_text(encoding="utf-8"), body="".join(body))
    path.write_text(page, encoding="utf-8")
    return path


def _drawing(graph: Graph, path: Path) -> str:
    drawing = to_svg(graph)
    path.write_text(drawing, encoding="utf-8")
    return f"<a href='{path.name}' title='open the drawing'>{drawing}</a>"


def _numbers(
    claims: list[Claim], digits: TrainedResult | None, others: list[UntrainedResult]
) -> dict[str, Any]:
    models = {} if digits is None else {trained.NAME: dict(trained.summary(digits))}
    models.update({result.name: dict(untrained.summary(result)) for result in others})
    shown = [
        {"model": claim.subject, "claim": claim.text, "measured": claim.measured, "holds": claim.holds}
        for claim in claims
    ]
    return {"models": models, "claims": shown}
