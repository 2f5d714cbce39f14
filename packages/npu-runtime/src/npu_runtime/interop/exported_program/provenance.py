"""Provenance of a node as FX metadata."""

from __future__ import annotations

from typing import Any

from npu_ir import Provenance


def provenance_metadata(provenance: Provenance) -> dict[str, Any]:
    """Return FX metadata with the module path and source line of a node."""
    parts = provenance.module.split(".") if provenance.module else []
    paths = [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
    stack = {f"L__self__{path}": (path, "torch.nn.modules.module.Module") for path in paths}
    metadata: dict[str, Any] = {"nn_module_stack": stack}
    file, _, line = provenance.source.rpartition(":")
    if file:
        metadata["stack_trace"] = f'  File "{file}", line {line}, in <unknown>'
    return metadata
