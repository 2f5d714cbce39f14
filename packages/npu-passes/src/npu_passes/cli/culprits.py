"""Search and report of the rewrite at fault, for ``npu opt --bisect``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from npu_ir import Graph
from npu_ir.cli.console import print_facts
from npu_passes.core.base import Pass
from npu_passes.manager.bisect import bisect
from npu_passes.manager.checked_mode import Checked
from npu_passes.manager.culprit import Culprit


def find_culprit(
    graph: Graph, passes: list[Pass], data: Checked, options: argparse.Namespace
) -> Culprit | None:
    """Return the rewrite that ``--bisect`` finds; None if there is none, or without ``--bisect``."""
    if not options.bisect:
        return None
    folder = _repro_dir(options)
    return bisect(
        graph, passes, rtol=options.rtol, data=data, repro_dir=folder, max_rounds=options.max_rounds
    )


def _repro_dir(options: argparse.Namespace) -> Path:
    if options.repro_dir is not None:
        return Path(options.repro_dir)
    return Path(options.output or options.file).with_suffix(".repro")


def print_culprit(culprit: Culprit, options: argparse.Namespace) -> None:
    """Print the rewrite, and the path of its reproduction."""
    lines = {
        "pass": culprit.pass_text,
        "rewrite": f"{culprit.rewrite.rule}, number {culprit.number} of those of all passes",
        "nodes": ", ".join(culprit.rewrite.paths) or "not stated",
        "made": ", ".join(culprit.rewrite.made) or "nothing",
        "problem": culprit.difference,
        "shown by": str(_repro_dir(options) / "repro.py"),
    }
    if options.json:
        print(json.dumps({"culprit": lines}, indent=2))
    else:
        print_facts(lines)
