"""The distributions of this project: purposes, contents, and installed versions."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata, util

# The purpose of each distribution that can be installed.
PURPOSES: Mapping[str, str] = {
    "npu-ir": "graphs, capture and the commands",
    "npu-passes": "passes and pipelines",
    "npu-runtime": "the executor, profiling and comparing",
    "npu-cuda": "native kernels",
    "rich": "tables on a terminal",
    "shtab": "completions for shells",
}
OWN = tuple(name for name in PURPOSES if name.startswith("npu-"))
# The minor releases of PyTorch that the tests were run with (docs/reference/torch-versions.md).
TESTED_TORCH = ("2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
# By distribution, the names that it provides.
_PROVIDED_NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "npu-passes": {
        "commands": ("new-plugin", "opt", "passes"),
        "namespaces": ("npu",),
        "pipelines": ("default", "fuse", "minimal", "train", "train-device", "train-fuse", "train-tensors"),
    },
    "npu-runtime": {
        "commands": (
            *("bench", "cache", "capture-step", "compare", "compile", "explain", "generate", "profile"),
            "tune",
        ),
        "pipelines": ("cpu", "host", "train-cpu", "train-host"),
        "runners": ("executor",),
        "backends": ("aten",),
    },
    "npu-cuda": {"backends": ("cuda", "host")},
}


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        # Importable without being installed, for example from PYTHONPATH.
        module = distribution.replace("-", "_")
        return "of unknown version" if util.find_spec(module) is not None else None


def install_hint(kind: str, name: str) -> str | None:
    """Return a hint on installing a missing feature of this project; None if it is not one of ours.

    Args:
        kind: "commands", "namespaces", "pipelines", "runners" or "backends".
        name: The missing name.
    """
    for distribution, brings in _PROVIDED_NAMES.items():
        if name not in brings.get(kind, ()):
            continue
        if installed_version(distribution) is None:
            return f"{distribution} provides it, but is not installed: python -m pip install {distribution}"
        return f"{distribution} provides it, and is installed, but is not used here: npu doctor says why"
    return None
