"""A folder that shows what one rewrite did: two graphs, the data, and a script that compares them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from npu_ir import save_ir
from npu_passes.checking import Trial
from npu_passes.errors import PassError

if TYPE_CHECKING:
    from npu_passes.bisecting import Culprit

_SCRIPT = '''\
"""Runs the graph before and after one rewrite on the same data. The rewrite:

{culprit}
"""

from pathlib import Path

import torch
from npu_ir import Interpreter, load_ir

folder = Path(__file__).parent
weights = torch.load(folder / "weights.pt", weights_only=True)
calls = torch.load(folder / "calls.pt", weights_only=True)
before, after = load_ir(folder / "before.json"), load_ir(folder / "after.json")

for args, kwargs in calls:
    torch.manual_seed({seed})
    expected, expected_updates = Interpreter(before, weights).run_flat(args, kwargs)
    torch.manual_seed({seed})
    actual, actual_updates = Interpreter(after, weights).run_flat(args, kwargs)
    for old, new in zip([*expected, *expected_updates.values()], [*actual, *actual_updates.values()]):
        if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and old.shape == new.shape:
            difference = (old.to(torch.float64) - new.to(torch.float64)).abs().max()
            print(f"largest difference {{difference:.6g}}, largest magnitude {{old.abs().max():.6g}}")
        else:
            print(f"before: {{old}}\\nafter:  {{new}}")
'''


def write_reproduction(folder: str | os.PathLike[str], culprit: Culprit, trial: Trial) -> None:
    """Write ``before.json``, ``after.json``, ``weights.pt``, ``calls.pt`` and ``repro.py`` into a folder.

    Raises:
        PassError: They cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_ir(culprit.before, folder / "before.json")
        save_ir(culprit.after, folder / "after.json")
        torch.save(dict(trial.weights), folder / "weights.pt")
        torch.save([(tuple(args), dict(kwargs)) for args, kwargs in trial.calls], folder / "calls.pt")
        text = str(culprit).replace("\\", "\\\\").replace('"""', "'''")
        (folder / "repro.py").write_text(_SCRIPT.format(culprit=text, seed=trial.seed), encoding="utf-8")
    except OSError as error:
        raise PassError(
            f"the reproduction cannot be written: {error.strerror or error}",
            where=str(folder),
            fix="check that the folder may be written to",
        ) from error
