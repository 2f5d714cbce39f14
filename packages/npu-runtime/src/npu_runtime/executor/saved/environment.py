"""The environment that a saved executor depends on: versions, the origin of backends and passes, the CPU."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping

import torch

import npu_ir
from npu_runtime.backends.registry import distribution_of

ABSENT = "not installed"


def describe_environment(
    backends: Iterable[str], passes: Iterable[str], device: torch.device
) -> dict[str, str]:
    """Return what decides whether an executor computes the same elsewhere, as texts by title.

    Args:
        backends: The names of its backends.
        passes: The names of the passes that made its graph.
        device: The device that it runs on.
    """
    found = {
        "torch": str(torch.__version__),
        "npu-ir": npu_ir.__version__,
        "CPU": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    if device.type == "cuda":
        is_here = (device.index or 0) < torch.cuda.device_count()
        found["GPU"] = torch.cuda.get_device_name(device) if is_here else ABSENT
    found |= {f"backend {name}": distribution_of("backends", name) for name in backends}
    return found | {f"pass {name}": distribution_of("passes", name) for name in passes}


def find_differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Return what differs between the environment of a file and this one, one text per difference."""
    return [
        f"{title}: {there.get(title, ABSENT)} there, {here.get(title, ABSENT)} here"
        for title in dict.fromkeys((*there, *here))
        if there.get(title) != here.get(title)
    ]
