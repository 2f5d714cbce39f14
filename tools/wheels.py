"""Build wheels and source distributions of all packages into dist/ and try them; ``nox -s wheels`` runs it.

npu-cuda is built from its source distribution, with CUDA; ``--host-only`` leaves CUDA out. Such a wheel is
for this machine: it has the name of the one with CUDA and must not be published.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PURE = ("npu-ir", "npu-passes", "npu-runtime")
ALONE = "import npu_cuda; print(npu_cuda.status()); assert 'torch' not in __import__('sys').modules"
TOGETHER = """
import torch, npu_ir, npu_cuda
from npu_runtime import IRExecutor
model, x = torch.nn.Linear(3, 2).eval(), torch.ones(1, 3)
graph = npu_ir.extract_ir(model, (x,))
assert torch.equal(IRExecutor(graph, model.state_dict())(x), model(x))
print("npu-ir, npu-runtime and npu-cuda", npu_cuda.__version__, "work together")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host-only", action="store_true", help="build npu-cuda without CUDA")
    options = parser.parse_args()
    shutil.rmtree(DIST, ignore_errors=True)
    for name in PURE:
        run(sys.executable, "-m", "build", "--outdir", DIST, ROOT / "packages" / name)
    mode = "OFF" if options.host_only else "ON"
    settings = ("-C", f"cmake.define.NPU_CUDA={mode}")
    run(sys.executable, "-m", "build", *settings, "--outdir", DIST, ROOT / "packages" / "npu-cuda")
    repair(one("npu_cuda-*.whl"))
    smoke_test()
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size / 1000:8.0f} kB  {path.name}")


def repair(wheel: Path) -> None:
    """Replace a wheel by one whose tag says which systems it runs on; it needs no library beside it."""
    command = [sys.executable, "-m", "auditwheel", "repair", "-w", str(DIST), str(wheel)]
    done = subprocess.run(command, check=False)
    if done.returncode:
        print(f"{wheel.name} keeps its tag: auditwheel cannot repair it here")
    elif one_or_more := [path for path in DIST.glob("npu_cuda-*manylinux*.whl") if path != wheel]:
        print(f"{wheel.name} became {one_or_more[0].name}")
        wheel.unlink()


def smoke_test() -> None:
    """Install in a fresh environment and use it: npu-cuda alone, then all packages."""
    folder = DIST / ".venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", one("npu_cuda-*.whl"))
    run(python, "-c", ALONE)
    wheels = [one(f"{name.replace('-', '_')}-*.whl") for name in (*PURE, "npu-cuda")]
    run(
        python,
        "-m",
        "pip",
        "install",
        "-q",
        *(f"{wheel}[cuda]" if "npu_ir" in wheel.name else wheel for wheel in wheels),
    )
    run(python, "-c", TOGETHER)
    shutil.rmtree(folder)


def one(pattern: str) -> Path:
    (path,) = DIST.glob(pattern)
    return path


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
