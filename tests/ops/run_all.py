"""Run every operator of PyTorch's OpInfo database through the pipe, and write the coverage page.

Results are kept as they come, one line per operator; a run that was cut short goes on where it was
as long as neither PyTorch nor the code has changed.
"""

import sys
from pathlib import Path

import torch

from tests.ops.cases import operators
from tests.ops.report import format_report
from tests.support.coverage_runs.running import Run
from tests.support.coverage_runs.store import fingerprint
from tests.support.places import ROOT

RUN = Run(
    session="ops",
    description=__doc__,
    things="operators",
    names=operators,
    format_report=lambda results: format_report(torch.__version__, results),
    page=ROOT / "docs" / "reference" / "op-coverage.md",
    build=ROOT / "build" / "ops",
    mark=fingerprint(Path(__file__).parent, ROOT / "tests" / "support"),
    command=(sys.executable, "-m", "tests.ops.judge"),
)

if __name__ == "__main__":
    sys.exit(RUN.main())
