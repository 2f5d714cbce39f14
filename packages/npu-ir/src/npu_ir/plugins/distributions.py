"""The distributions of this project: what each is for, what it brings, and which are installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata, util

# What there is to install, and what each needs to be imported for.
PURPOSES: Mapping[str, str] = {
    "npu-ir": "graphs, capture and the commands",
    "npu-passes": "passes and pipelines",
    "npu-runtime": "the executor, profiling and comparing",
    "npu-cuda": "native kernels",
    "rich": "tables on a terminal",
    "shtab": "completions for shells",
}
OWN = tuple(name for name in PURPOSES if name.startswith("npu-"))
# What is missing by name where a distribution is missing.
_BRINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "npu-passes": {
        "commands": ("new-plugin", "opt", "passes"),
        "pipelines": ("default", "fuse", "minimal", "train", "train-device", "train-fuse", "train-tensors"),
    },
    "npu-runtime": {
        "commands": ("bench", "capture-step", "compare", "explain", "profile"),
        "pipelines": ("cpu", "train-cpu"),
        "runners": ("executor",),
        "backends": ("aten",),
    },
    "npu-cuda": {"backends": ("cuda", "host")},
}


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution; None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        # Found on the path without being installed: as far as anyone can tell, it is there.
        module = distribution.replace("-", "_")
        return "of unknown version" if util.find_spec(module) is not None else None


def how_to_get(kind: str, name: str) -> str | None:
    """Return how to get something of ours that is missing; None of what we do not bring.

    Args:
        kind: "commands", "pipelines", "runners" or "backends".
        name: What is missing.
    """
    for distribution, brings in _BRINGS.items():
        if name not in brings.get(kind, ()):
            continue
        if installed_version(distribution) is None:
            return f"{distribution} brings it, which is not installed: python -m pip install {distribution}"
        return f"{distribution} brings it, which is installed and not used here: npu doctor tells why"
    return None
