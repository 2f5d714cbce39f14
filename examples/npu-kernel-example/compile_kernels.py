"""Compiles the kernels when the package is built or installed: one call of the C compiler."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import npu_cuda
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-std=c99", "-O3", "-fPIC", "-shared", "-fvisibility=hidden"]


class CompileKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Puts kernels.so beside kernels.c, and marks the wheel as one of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "src", "npu_kernel_example")
        compiler = os.environ.get("CC", "cc")
        include = f"-I{npu_cuda.get_include()}"
        files = [str(folder / "kernels.c"), "-o", str(folder / "kernels.so"), "-lm"]
        try:
            compiled = subprocess.run([compiler, *FLAGS, include, *files], check=False)
        except FileNotFoundError:
            message = f"there is no C compiler {compiler!r}: install one, or name it in CC"
            raise SystemExit(message) from None
        if compiled.returncode:
            raise SystemExit(f"{compiler} cannot compile {files[0]}: its messages are above")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
