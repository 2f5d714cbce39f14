"""The user's code: the line that is running or raised an exception, and wrong calls of its functions."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import torch

_PACKAGES = ("npu_ir", "npu_passes", "npu_runtime", "npu_cuda")
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_SITE_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)
_TORCH = os.path.dirname(torch.__file__) + os.sep


def user_line(error: BaseException) -> str | None:
    """Return ``file:line`` of the innermost frame of user code, as `is_user_file` tells it."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    return _innermost(traceback.extract_tb(error.__traceback__))


def calling_line() -> str | None:
    """Return ``file:line`` of the innermost running frame of user code, as in `user_line`."""
    return _innermost(traceback.extract_stack())


def _innermost(frames: traceback.StackSummary) -> str | None:
    own = [frame for frame in frames if is_user_file(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


@functools.cache
def is_user_file(path: str) -> bool:
    """Return whether a file is neither PyTorch's, nor of Python's library, nor of this project's packages."""
    modules = [sys.modules[name] for name in _PACKAGES if name in sys.modules]
    own = [os.path.dirname(str(module.__file__)) + os.sep for module in modules]
    if path.startswith(("<", _TORCH, *own)):
        return False
    return not path.startswith(_LIBRARY) or path.removeprefix(_LIBRARY).startswith(_SITE_PACKAGES)


def warn_caller(text: str, category: type[Warning]) -> None:
    """Issue a warning at the line that called the packages of this project."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def signature_mismatch(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return why ``function(*args, **kwargs)`` does not fit: missing, unknown or extra arguments.

    None if the call fits, or if the function has no known signature.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # builtins have none
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        problems = "; ".join(_argument_problems(list(signature.parameters.values()), args, kwargs))
        return (
            f"it takes {signature_text(signature)}, and gets {_describe_arguments(args, kwargs)}: {problems}"
        )
    return None


def signature_text(signature: inspect.Signature) -> str:
    """Return a signature without its annotations: ``(x, scale=1.0)``."""
    plain = [item.replace(annotation=Parameter.empty) for item in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def required_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the required arguments; none if the function has no known signature."""
    try:
        return _names_without_default(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` if a known name is similar or begins so, else the empty string."""
    names = list(known)
    same = [item for item in names if item.lower() == name.lower()]
    longer = [item for item in names if item.startswith(f"{name}-")]
    close = same or difflib.get_close_matches(name, names, n=1) or longer
    return f" (did you mean {close[0]!r}?)" if close else ""


def _argument_problems(
    parameters: list[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    kinds = {item.kind for item in parameters}
    by_position = [item.name for item in parameters if item.kind in _BY_POSITION]
    by_name = [item.name for item in parameters if item.kind in _BY_NAME]
    taken = by_position[: len(args)]
    problems = [
        f"{name!r} is missing" for name in _names_without_default(parameters) if name not in {*taken, *kwargs}
    ]
    if Parameter.VAR_KEYWORD not in kinds:
        problems += [
            f"there is no {name!r}{did_you_mean(name, by_name)}" for name in kwargs if name not in by_name
        ]
    problems += [f"{name!r} is given twice" for name in kwargs if name in taken]
    if Parameter.VAR_POSITIONAL not in kinds and len(args) > len(by_position):
        problems.append(f"it takes {len(by_position)} by position")
    return problems


def _names_without_default(parameters: Iterable[Parameter]) -> list[str]:
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return [item.name for item in parameters if item.default is Parameter.empty and item.kind not in variable]


def _describe_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    by_position = [f"{len(args)} by position"] if args else []
    return " and ".join([*by_position, *([", ".join(map(repr, kwargs))] if kwargs else [])]) or "no arguments"
