"""Where a node came from, in the words of PyTorch's programs."""

from __future__ import annotations

from typing import Any

from npu_ir import Provenance


def origin(provenance: Provenance) -> dict[str, Any]:
    """Return the metadata of an FX node that says which module ran it, and the user's source line."""
    steps = provenance.module.split(".") if provenance.module else []
    paths = [".".join(steps[:depth]) for depth in range(len(steps) + 1)]
    stack = {f"L__self__{path}": (path, "torch.nn.modules.module.Module") for path in paths}
    found: dict[str, Any] = {"nn_module_stack": stack}
    file, _, line = provenance.source.rpartition(":")
    if file:
        found["stack_trace"] = f'  File "{file}", line {line}, in <unknown>'
    return found
