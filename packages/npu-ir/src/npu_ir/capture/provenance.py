"""Where an FX node came from: the module that ran it and the user's source line."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from npu_ir.node import Provenance

_FRAME = re.compile(r'File "([^"<][^"]*)", line (\d+)')  # not <eval_with_key>, code that PyTorch made
_TORCH_DIRECTORY = os.path.dirname(torch.__file__) + os.sep
_OWN_DIRECTORY = str(Path(__file__).parents[1]) + os.sep


def provenance_of(node: torch.fx.Node) -> Provenance:
    """Return module path and ``file:line`` of ``node``, as far as its metadata tells."""
    return Provenance(_module_path(node), _without_folder(source_line(node)))


def _without_folder(path: str) -> str:
    """Return ``path`` as seen from where Python imports it: the same on every machine."""
    folders = [folder for folder in sys.path if folder and path.startswith(os.path.join(folder, ""))]
    return path[len(os.path.join(max(folders, key=len), "")) :] if folders else path


def _module_path(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    return str(path).removeprefix("L['self'].").removeprefix("L['self']")


def source_line(node: torch.fx.Node) -> str:
    """Return the innermost ``file:line`` outside PyTorch; inside it where there is no other."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    outside = [frame for frame in frames if not frame[0].startswith(_TORCH_DIRECTORY)]
    chosen = (outside or frames)[-1:]
    return ":".join(chosen[0]) if chosen else ""


def place(node: torch.fx.Node) -> str:
    """Return where an error was found: the FX node and the user's source line."""
    line = source_line(node)
    return f"node {node.name!r}" + (f", {line}" if line else "")


def calling_line() -> str:
    """Return the ``file:line`` of the user's code that is running: the innermost outside PyTorch and this package."""
    return _users_line(traceback.extract_stack())


def failing_line(error: BaseException) -> str:
    """Return the ``file:line`` of the user's code that raised ``error``, or called what did; "" if there is none."""
    return _users_line(traceback.extract_tb(error.__traceback__))


def _users_line(frames: Sequence[traceback.FrameSummary]) -> str:
    outside = [
        frame for frame in frames if not frame.filename.startswith((_TORCH_DIRECTORY, _OWN_DIRECTORY, "<"))
    ]
    return f"{outside[-1].filename}:{outside[-1].lineno}" if outside else ""
