"""The example of a transformer of characters: both trainings run, agree, and are drawn."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.support.places import ROOT
from tests.support.scripts import forgotten, imported

EXAMPLE = ROOT / "examples" / "char-transformer"
SMALL = ("--steps", "12", "--batch", "2", "--length", "16", "--width", "16", "--layers", "1", "--heads", "2")
POLYLINE = "{http://www.w3.org/2000/svg}polyline"


@pytest.fixture
def train() -> Iterator[ModuleType]:
    with forgotten(EXAMPLE):
        yield imported("train", EXAMPLE)


def test_the_small_example_trains_both_ways_alike_and_draws_their_losses(
    train: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "losses.svg"

    status = train.main([*SMALL, "--plot", str(plot), "--sample", "20"])

    printed = capsys.readouterr().out
    assert status == 0, printed
    assert re.search(r"^eager: \d+\.\d steps/s", printed, re.MULTILINE)
    assert re.search(r"^TrainStep: \d+\.\d steps/s", printed, re.MULTILINE)
    assert re.search(
        r"^TrainStep makes .*; it takes less time in all (from [\d,]+ steps on; these were 12|never)",
        printed,
        re.MULTILINE,
    )
    assert "\nThe " in printed, "text that the model has written"
    curves = [
        [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        for line in ElementTree.parse(plot).iter(POLYLINE)
    ]
    assert [len(curve) for curve in curves] == [12, 12]
    assert curves[0] == pytest.approx(curves[1], abs=1.0), "the losses are the same, to a pixel"
    assert curves[0][-1] > curves[0][0], "the loss falls: y grows downwards"


def test_a_training_of_one_step_is_refused(train: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        train.main(["--steps", "1"])

    assert "--steps 1: the first step is not timed, so there must be two at least" in capsys.readouterr().err
