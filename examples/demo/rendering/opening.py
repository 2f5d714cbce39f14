"""The top of the report."""

from __future__ import annotations

from claims import Claim
from rendering.markup import text
from results import TrainedResult, UntrainedResult, parameter_count, shown_count, shown_seconds


def opening(
    claims: list[Claim], digits: TrainedResult | None, others: list[UntrainedResult], seconds: float
) -> str:
    """Return the verdict, the numbers to see first, and the way of a model through the pipe."""
    failed = sum(not claim.holds for claim in claims)
    verdict = f"All {len(claims)} claims hold"
    if failed:
        verdict = f"{failed} of {len(claims)} claims {'does' if failed == 1 else 'do'} not hold"
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
    """Return the key numbers, each with its meaning."""
    tiles = []
    if digits is not None:
        same = int((digits.run.eager.argmax(1) == digits.run.process.result.argmax(1)).sum())
        tiles.append((f"{same} of {len(digits.run.eager)}", "test images answered alike by model and graph"))
    runs = [chapter.run for chapter in [*([digits] if digits else []), *others] if chapter.run is not None]
    if runs:
        largest = max(run.max_difference for run in runs)
        models = f"{len(runs)} model{'s' * (len(runs) > 1)}"
        words = f"difference to eager PyTorch in {models}"
        tiles.append((f"{largest:.2g}", f"largest {words}" if largest else f"{words}: equal to the bit"))
    if others:
        result = max(others, key=lambda result: parameter_count(result.graph))
        extraction = result.weight_free["build_seconds"] + result.weight_free["extract_seconds"]
        words = (
            "for the graph of a model of "
            f"{shown_count(parameter_count(result.graph))} parameters, without them"
        )
        tiles.append((shown_seconds(extraction), words))
    tiles.append((f"{seconds:.0f} s", "from the start of the demo to this report"))
    return tiles


def _pipe() -> str:
    steps = (
        ("Model", "eager PyTorch, with weights or without"),
        ("Graph", "extract_ir: functional ATen ops, typed, checked"),
        ("Files", "save_ir: JSON and safetensors"),
        ("New process", "load_ir, load_weights, Interpreter"),
        ("Executor", "IRExecutor: compiled in milliseconds, beside eager"),
        ("Proof", "verify_ir: equal to eager, or the node that is not"),
    )
    items = "".join(f"<li><b>{text(name)}</b><span>{text(words)}</span></li>" for name, words in steps)
    return f"<ol class='pipe'>{items}</ol>"
