"""Trial of the wheels in dist/: each alone, then all by the extra ``npu-ir[cuda]``, in a fresh environment.

dist/ is the only index of our packages (``--no-index --find-links``). What they need of others comes from the
usual index first, in the versions of constraints.txt.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

from wheel_checks import PACKAGES

CUDA = """
import sys, npu_cuda
print(npu_cuda.status())
assert "torch" not in sys.modules
"""
IR = """
import torch, npu_ir
model, x = torch.nn.Linear(3, 2).eval(), torch.ones(1, 3)
graph = npu_ir.extract_ir(model, (x,))
npu_ir.save_ir(graph, "graph.json")
assert npu_ir.load_ir("graph.json") == graph and npu_ir.check_compatibility("graph.json").is_compatible
assert npu_ir.verify_ir(graph, model, (x,))
"""
PASSES = """
import torch, npu_ir, npu_passes
x = torch.ones(1, 3)
graph = npu_ir.extract_ir(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), (x,))
npu_passes.optimize(graph)
assert torch.equal(npu_ir.execute_ir(graph, (x,)), x)
"""
RUNTIME = """
import torch, npu_ir
from npu_runtime import IRExecutor
model, x = torch.nn.Linear(3, 2).eval(), torch.ones(1, 3)
graph = npu_ir.extract_ir(model, (x,))
assert torch.equal(IRExecutor(graph, model.state_dict())(x), model(x))
"""
TOGETHER = """
import torch, npu_ir, npu_cuda
from npu_runtime import IRExecutor
model, x = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU()).eval(), torch.ones(1, 3)
graph = npu_ir.extract_ir(model, (x,))
torch.testing.assert_close(IRExecutor(graph, model.state_dict(), backend="host")(x), model(x))
print("npu-ir, npu-passes, npu-runtime and npu-cuda", npu_cuda.__version__, "work together")
"""
ALONE = {"npu-ir": IR, "npu-passes": PASSES, "npu-runtime": RUNTIME}


def try_wheels(dist: Path, constraints: Path) -> None:
    """Install from ``dist`` in a fresh environment and use it; what fails raises ``CalledProcessError``."""
    folder = dist / ".venv"
    venv.create(folder, with_pip=True)
    pip = (str(folder / "bin" / "python"), "-m", "pip")
    ours = ("install", "-q", "--no-compile", "--no-index", "--find-links", str(dist))
    others = ("install", "-q", "--no-compile", "-c", str(constraints))
    needed = {name: requirements(dist, name, "cuda") for name in PACKAGES}

    run(folder, *pip, *others, *needed["npu-cuda"])
    run(folder, *pip, *ours, "npu-cuda")
    run(folder, pip[0], "-c", CUDA)  # in an environment without PyTorch
    run(folder, *pip, *others, *sorted({item for items in needed.values() for item in items}))
    for name, script in ALONE.items():
        run(folder, *pip, "uninstall", "-q", "-y", *PACKAGES)
        run(folder, *pip, *ours, name)
        run(folder, pip[0], "-c", script)
        print(f"{name} works alone")
    run(folder, *pip, "uninstall", "-q", "-y", *PACKAGES)
    run(folder, *pip, *ours, "npu-ir[cuda]")
    run(folder, *pip, "check")
    run(folder, pip[0], "-c", TOGETHER)
    run(folder, str(folder / "bin" / "npu"), "doctor")
    shutil.rmtree(folder)


def requirements(dist: Path, name: str, extra: str) -> list[str]:
    """Return what a wheel needs of others, with one of its extras, without our packages."""
    (wheel,) = dist.glob(f"{name.replace('-', '_')}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [item for item in archive.namelist() if item.endswith(".dist-info/METADATA")]
        stated = message_from_bytes(archive.read(path)).get_all("Requires-Dist", [])
    needed = []
    for item in stated:
        requirement, _, marker = (part.strip() for part in item.partition(";"))
        wanted = re.search(r"extra == ['\"](.+?)['\"]", marker)
        if not requirement.startswith("npu-") and (wanted is None or wanted[1] == extra):
            needed.append(requirement)
    return needed


def run(folder: Path, *command: str) -> None:
    subprocess.run(command, check=True, cwd=folder)
