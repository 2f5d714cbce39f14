"""The end of the report: all claims, all files."""

from __future__ import annotations

import platform
from pathlib import Path

import torch
import transformers
from claims import Claim
from rendering.markup import grid_table, text
from results import TrainedResult, shown_bytes

import npu_ir

_EXAMPLE = """\
# npu info digits.json
# npu show digits.json --provenance
# npu run digits.json --weights digits.weights.safetensors

from npu_ir import execute_ir, load_ir
from safetensors.torch import load_file

graph = load_ir("digits.json")
images = load_file("digits.inputs.safetensors")["images"]
logits = execute_ir(
    graph, (images[:64],), weights="digits.weights.safetensors"
)
print(logits.argmax(1))
"""


def claims_section(claims: list[Claim]) -> str:
    """Return every claim with its measurement."""
    rows = [
        [
            (
                f"<span class='mark {'good' if claim.holds else 'bad'}'>"
                f"{'holds' if claim.holds else 'fails'}</span>"
            ),
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


def files_section(output: Path, digits: TrainedResult | None) -> str:
    """Return the list of files in ``output``, and how to use them."""
    names = sorted(
        path.name
        for path in output.iterdir()
        if path.is_file() and path.suffix in (".json", ".safetensors", ".svg", ".txt")
    )
    rows = [
        [f"<a href='{text(name)}'>{text(name)}</a>", text(shown_bytes((output / name).stat().st_size))]
        for name in names
    ]
    example = "" if digits is None else f"<h3>Run it yourself</h3><pre class='said'>{text(_EXAMPLE)}</pre>"
    shown = ", ".join(f"{name} {value}" for name, value in environment().items())
    return f"""
<section id="files">
<h2>Files</h2>
<div class="columns"><div>{grid_table(("file", "size"), rows)}</div><div>{example}</div></div>
</section>
<footer>{text(shown)}</footer>"""


def environment() -> dict[str, str]:
    """Return the description of the machine."""
    return {
        "npu-ir": npu_ir.__version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "transformers": transformers.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }
