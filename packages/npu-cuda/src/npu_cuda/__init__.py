"""Native kernels, programs and graphs for accelerators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_cuda._C import build_info as build_info
    from npu_cuda._C import cuda_absence as cuda_absence
    from npu_cuda._C import devices as devices
    from npu_cuda.installation import Installation as Installation
    from npu_cuda.installation import get_include as get_include
    from npu_cuda.installation import status as status

__version__ = "0.1.0"

# Loaded when they are first asked for: `import npu_cuda` takes a few milliseconds.
LAZY = {
    "Installation": "installation",
    "build_info": "_C",
    "cuda_absence": "_C",
    "devices": "_C",
    "get_include": "installation",
    "status": "installation",
}


def __getattr__(name: str) -> object:
    if name not in LAZY:
        raise AttributeError(f"module 'npu_cuda' has no attribute {name!r}")
    return getattr(import_module(f"npu_cuda.{LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
