"""The installation: build, working devices, and the reason if there is no CUDA device.

``python -m npu_cuda.installation`` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUILT = {
    "ON": "with CUDA {cuda_version} for {architectures} ({cuda_compiler}, cudart {cudart})",
    "OFF": "for the host only",
    "EMULATE": "with emulated CUDA: kernels run on the CPU, for tests",
}


@dataclass(frozen=True, slots=True)
class Installation:
    """The build of npu-cuda and the devices found on this machine.

    Attributes:
        build: ``version``, ``mode`` (ON, OFF, EMULATE), ``requested``, ``reason``, ``architectures``,
            ``cuda_version``, ``cuda_compiler``, ``cudart``, ``compiler``, ``nanobind``, ``build_type``,
            ``sanitizer``; entries that do not apply are empty.
        devices: One dict per device that works: ``name``, ``description``, ``compute_capability``.
        cuda_absence: Why there is no CUDA device; empty if there is one.
        chain_compiler: What compiles chains of pointwise ops for the GPU: ``description``, or ``absence``
            with the reason why each op is a launch; ``cache``, the folder of what it has compiled.
        include: The folder of ``npu_cuda/kernel.h``.
    """

    build: dict[str, str]
    devices: list[dict[str, Any]]
    cuda_absence: str
    chain_compiler: dict[str, str]
    include: str

    def __str__(self) -> str:
        """Return a summary in a few lines."""
        how = BUILT[self.build["mode"]].format_map(self.build)
        sanitizer = f", {self.build['sanitizer']} sanitizer" if self.build["sanitizer"] else ""
        rows = [
            f"npu-cuda {self.build['version']}, built {how}",
            f"compiler  {self.build['compiler']}, {self.build['build_type']}{sanitizer}",
            f"nanobind  {self.build['nanobind']}",
            *(f"device    {device['name']}: {device['description']}" for device in self.devices),
            *([f"no cuda   {self.cuda_absence}"] if self.cuda_absence else []),
            *([f"chains    {self.chains()}"] if not self.cuda_absence else []),
            f"headers   {self.include}",
        ]
        return "\n".join(rows)

    def chains(self) -> str:
        """Return how chains of pointwise ops run on the GPU, in a line."""
        compiler = self.chain_compiler
        if compiler["absence"]:
            return f"one launch an op: {compiler['absence']}"
        kept = f"kept in {compiler['cache']}" if compiler["cache"] else "not kept"
        return f"one launch a chain, compiled by {compiler['description']}, {kept}"


def status() -> Installation:
    """Return how npu-cuda was built and which devices it finds; print it to read it."""
    from npu_cuda import _C

    return Installation(_C.build_info(), _C.devices(), _C.cuda_absence(), _C.chain_compiler(), get_include())


def get_include() -> str:
    """Return the folder to compile with, ``-I``, so that ``#include "npu_cuda/kernel.h"`` is found."""
    return str(Path(__file__).with_name("include"))


if __name__ == "__main__":
    print(status())  # noqa: T201
