"""Run models of transformers, timm and torchvision through the pipe, and write the coverage page.

Results are kept as they come, one line per model; a run that was cut short goes on where it was
as long as neither the libraries nor the code have changed.
"""

import importlib.metadata
import sys
from pathlib import Path

from tests.models.cases import all_cases
from tests.models.report import format_report
from tests.support.coverage_runs.running import Run
from tests.support.coverage_runs.store import fingerprint
from tests.support.coverage_runs.workers import OpResult
from tests.support.places import ROOT

LIBRARIES = ("torch", "transformers", "timm", "torchvision")


def versions() -> dict[str, str]:
    return {library: importlib.metadata.version(library) for library in LIBRARIES}


def page(results: list[OpResult]) -> str:
    return format_report(versions(), all_cases(), results)


RUN = Run(
    session="models",
    description=__doc__,
    things="models",
    names=lambda: [case.name for case in all_cases()],
    format_report=page,
    page=ROOT / "docs" / "reference" / "model-coverage.md",
    build=ROOT / "build" / "models",
    mark=fingerprint(Path(__file__).parent, ROOT / "tests" / "support", versions=versions().values()),
    command=(sys.executable, "-m", "tests.models.judge"),
    limit_s=300.0,
)

if __name__ == "__main__":
    sys.exit(RUN.main())
