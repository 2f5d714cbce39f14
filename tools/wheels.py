"""Build wheels and source distributions of all packages into dist/ and try them; ``nox -s wheels`` runs it.

npu-cuda is built from its source distribution, with CUDA; ``--host-only`` leaves CUDA out, and the name of
the wheel says so (``0host`` in place of ``1cuda``). ``wheel_checks.py`` looks into the files, and
``wheel_trial.py`` installs them from dist/ in a fresh environment; ``--built`` does only this.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from wheel_checks import PACKAGES, find_problems, release_version
from wheel_trial import try_wheels

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host-only", action="store_true", help="build npu-cuda without CUDA")
    parser.add_argument("--built", action="store_true", help="check and try what is in dist/ already")
    options = parser.parse_args()
    if not options.built:
        build("OFF" if options.host_only else "ON")
    problems = find_problems(DIST, release_version(ROOT))
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    if problems:
        raise SystemExit(1)
    try_wheels(DIST, ROOT / "constraints.txt")
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size / 1000:8.0f} kB  {path.name}")


def build(mode: str) -> None:
    """Build every package into an empty dist/, npu-cuda in this mode of CUDA."""
    shutil.rmtree(DIST, ignore_errors=True)
    for name in PACKAGES:
        settings = ("-C", f"cmake.define.NPU_CUDA={mode}") if name == "npu-cuda" else ()
        run(sys.executable, "-m", "build", *settings, "--outdir", DIST, ROOT / "packages" / name)
    repair()


def repair() -> None:
    """Replace the wheel of npu-cuda by one whose tag says which systems it runs on."""
    (wheel,) = DIST.glob("npu_cuda-*.whl")
    command = [sys.executable, "-m", "auditwheel", "repair", "-w", str(DIST), str(wheel)]
    done = subprocess.run(command, check=False)
    if done.returncode:
        print(f"{wheel.name} keeps its tag: auditwheel cannot repair it here")
    elif repaired := [path for path in DIST.glob("npu_cuda-*manylinux*.whl") if path != wheel]:
        print(f"{wheel.name} became {repaired[0].name}")
        wheel.unlink()


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
