"""The line of user code that raised an exception, or that is running."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import torch

_LIBRARY = os.path.dirname(os.__file__) + os.sep
_SITE_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)
_OTHERS = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))


def user_line(error: BaseException) -> str | None:
    """Return ``file:line`` of the innermost frame outside PyTorch, Python's library and this package."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    return _innermost(traceback.extract_tb(error.__traceback__))


def calling_line() -> str | None:
    """Return ``file:line`` of the innermost running frame of user code, as in `user_line`."""
    return _innermost(traceback.extract_stack())


def _innermost(frames: traceback.StackSummary) -> str | None:
    own = [frame for frame in frames if _is_of_user(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def _is_of_user(file: str) -> bool:
    if file.startswith(("<", *_OTHERS)):
        return False
    return not file.startswith(_LIBRARY) or file.removeprefix(_LIBRARY).startswith(_SITE_PACKAGES)
