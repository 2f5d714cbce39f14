"""The page of what was measured on a GPU, from the results of ``tools/gpu_check.py --out FOLDER`` there.

``python benchmarks/gpu_page.py FOLDER`` writes docs/reference/gpu-benchmarks.md, on any machine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cuda_kernels
import cuda_models
from page_plot import write_plot

PAGE = Path("docs/reference/gpu-benchmarks.md")

HEAD = """\
# Measured on a GPU

`python tools/gpu_check.py` on a machine with a GPU checks and measures, `python benchmarks/gpu_page.py`
writes this page from its results. Few changes are run on one: between them, the CUDA code is tested on
[the CPU](../concepts/emulator.md).

## Checks on a GPU

{report}
"""


def page(folder: Path) -> str:
    """Return the text of the page."""
    kernels, models = (json.loads((folder / f"{name}.json").read_text()) for name in ("kernels", "models"))
    head = HEAD.format(report=(folder / "report.md").read_text().strip())
    return head + cuda_models.section(models) + cuda_kernels.section(kernels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what gpu_check.py wrote")
    PAGE.write_text(page(parser.parse_args().folder))
    write_plot(PAGE)


if __name__ == "__main__":
    main()
