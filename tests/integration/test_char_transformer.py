"""The example of a transformer of characters: both trainings run, agree, and are drawn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.places import ROOT

EXAMPLE = ROOT / "examples" / "char-transformer"
SMALL = ("--steps", "12", "--batch", "2", "--length", "16", "--width", "16", "--layers", "1", "--heads", "2")
POLYLINE = "{http://www.w3.org/2000/svg}polyline"


def run_example(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "train.py"), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


# One test, so that the example runs once, on however many processes the tests are spread.
def test_the_small_example_trains_both_ways_alike_and_draws_their_losses(tmp_path: Path) -> None:
    plot = tmp_path / "losses.svg"

    finished = run_example(*SMALL, "--plot", str(plot), "--sample", "20")

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"^eager: \d+\.\d steps/s", finished.stdout, re.MULTILINE)
    assert re.search(r"^TrainStep: \d+\.\d steps/s", finished.stdout, re.MULTILINE)
    assert re.search(
        r"^TrainStep makes .*; it takes less time in all (from [\d,]+ steps on; these were 12|never)",
        finished.stdout,
        re.MULTILINE,
    )
    assert "\nThe " in finished.stdout, "text that the model has written"
    curves = [
        [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        for line in ElementTree.parse(plot).iter(POLYLINE)
    ]
    assert [len(curve) for curve in curves] == [12, 12]
    assert curves[0] == pytest.approx(curves[1], abs=1.0), "the losses are the same, to a pixel"
    assert curves[0][-1] > curves[0][0], "the loss falls: y grows downwards"


def test_a_training_of_one_step_is_refused() -> None:
    finished = run_example("--steps", "1")

    assert finished.returncode == 2
    assert "--steps 1: the first step is not timed, so there must be two at least" in finished.stderr
