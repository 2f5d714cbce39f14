"""The rewrite at fault, and its reproduction: two graphs, their data, and a script that compares results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from npu_ir import Graph, GraphError, NpuError, Value, save_ir
from npu_ir.core.structure import flatten_like
from npu_ir.graph.binding import flatten_wrappers
from npu_passes.core.journal import Rewrite
from npu_passes.errors import PassError
from npu_passes.manager.checked_mode import Trial


@dataclass(frozen=True)
class Culprit:
    """The rewrite after which results differ.

    Attributes:
        pass_text: The pass that made it, with its options.
        rewrite: Its journal entry.
        number: Its position among all rewrites of the whole run, from 1.
        difference: The value that differs, and by how much.
        before: The graph before the rewrite.
        after: The graph after the rewrite.
    """

    pass_text: str
    rewrite: Rewrite
    number: int
    difference: str
    before: Graph
    after: Graph

    def __str__(self) -> str:
        nodes = f" of {', '.join(self.rewrite.paths)}" if self.rewrite.nodes else ""
        return f"{self.pass_text}: rewrite {self.number}, {self.rewrite.rule!r}{nodes}: {self.difference}"


_SCRIPT = '''\
"""Runs the graph before and after one rewrite on the same data. The rewrite:

{culprit}
"""

from pathlib import Path

import torch
from npu_ir import Value, load_ir{load}
from npu_passes import EXACT, Checked
from npu_passes.manager.checked_mode import Trial, find_differences

# Import here what registers ops of your own.

folder = Path(__file__).parent
weights = torch.load(folder / "weights.pt", weights_only=True)
inputs = torch.load(folder / "inputs.pt", weights_only=True)
before, after = load_ir(folder / "before.json"), {after}

# Arguments are passed flat: no class that the model takes has to be there.
leaves = before.call[1]
calls = [
    ([named[leaf.name] if isinstance(leaf, Value) else leaf for leaf in leaves], {{}}) for named in inputs
]
before.set_call(leaves)
after.set_call(after.call[1])

trial = Trial(before, Checked(weights=weights, calls=calls, seed={seed}))
print("\\n".join(find_differences(trial.results(after), trial.first, EXACT)) or "no difference")
'''


def write_reproduction(folder: str | os.PathLike[str], culprit: Culprit, trial: Trial) -> None:
    """Write the graphs, the weights, the inputs, and ``repro.py``, which compares results, into a folder.

    The graphs are ``before.json`` and ``after.json``; a graph that breaks a rule of the IR is written as
    text, ``after.ir``.

    Raises:
        PassError: The files cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_ir(culprit.before, folder / "before.json")
        is_valid = _save_if_valid(culprit.after, folder)
        torch.save(flatten_wrappers(trial.weights), folder / "weights.pt")
        torch.save([_flatten_inputs(culprit.before, *call) for call in trial.calls], folder / "inputs.pt")
        (folder / "repro.py").write_text(_format_script(culprit, trial, is_valid), encoding="utf-8")
    except (OSError, NpuError) as error:
        problem = error.message if isinstance(error, NpuError) else error.strerror or error
        raise PassError(
            f"the reproduction cannot be written: {problem}; it is of {culprit}",
            where=str(folder),
            fix="check that the folder may be written to" if isinstance(error, OSError) else error.fix,
        ) from error


def _save_if_valid(graph: Graph, folder: Path) -> bool:
    """Write the graph after the rewrite; return whether it is valid, and its file thus can be loaded."""
    try:
        graph.check()
    except GraphError:
        (folder / "after.ir").write_text(f"{graph}\n", encoding="utf-8")
        return False
    save_ir(graph, folder / "after.json")
    return True


def _flatten_inputs(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors and numbers of one call, by input name."""
    structure, leaves = graph.call
    inputs = flatten_like((tuple(args), dict(kwargs)), structure, "call")
    return {leaf.name: item for leaf, item in zip(leaves, inputs, strict=True) if isinstance(leaf, Value)}


def _format_script(culprit: Culprit, trial: Trial, is_valid: bool) -> str:
    text = str(culprit).replace("\\", "\\\\").replace('"""', "'''")
    after = (
        'load_ir(folder / "after.json")' if is_valid else 'parse_ir((folder / "after.ir").read_text("utf-8"))'
    )
    return _SCRIPT.format(culprit=text, seed=trial.seed, after=after, load="" if is_valid else ", parse_ir")
