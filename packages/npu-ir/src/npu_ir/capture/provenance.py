"""Provenance of FX nodes: the module that ran a node, and the user's source line."""

from __future__ import annotations

import os
import re
import sys

import torch

from npu_ir.core.node import Provenance

_FRAME = re.compile(r'File "([^"<][^"]*)", line (\d+)')  # not <eval_with_key>, code that PyTorch generated
_TORCH_DIRECTORY = os.path.dirname(torch.__file__) + os.sep


def provenance_of(node: torch.fx.Node) -> Provenance:
    """Return module path and ``file:line`` of ``node``; empty where its metadata lacks them."""
    return Provenance(_module_path(node), _relative_to_import_path(source_line(node)))


def _relative_to_import_path(path: str) -> str:
    """Return ``path`` relative to its entry of ``sys.path``, which is the same on every machine."""
    folders = [folder for folder in sys.path if folder and path.startswith(os.path.join(folder, ""))]
    return path[len(os.path.join(max(folders, key=len), "")) :] if folders else path


def _module_path(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    return str(path).removeprefix("L['self'].").removeprefix("L['self']")


def source_line(node: torch.fx.Node) -> str:
    """Return the innermost ``file:line`` outside PyTorch; one inside it if there is no other."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    outside = [frame for frame in frames if not frame[0].startswith(_TORCH_DIRECTORY)]
    chosen = (outside or frames)[-1:]
    return ":".join(chosen[0]) if chosen else ""


def location_of(node: torch.fx.Node) -> str:
    """Return the location of an error: the FX node and the user's source line."""
    line = source_line(node)
    return f"node {node.name!r}" + (f", {line}" if line else "")
