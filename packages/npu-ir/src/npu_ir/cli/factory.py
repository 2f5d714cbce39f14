"""The user's model: ``MODULE:FACTORY`` names the code that makes it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from npu_ir.capture import empty_weights
from npu_ir.errors import FactoryError, UsageError

_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep

HELP = """\
models:
  MODULE:FACTORY names something that makes the model when called without arguments (a function, a
  torch.nn.Module class), or a module itself. MODULE is imported with the current folder on the path,
  or is the path of a .py file. A function may also return a pair: the model, and the dynamic_shapes that
  torch.export takes.
"""


@dataclass(frozen=True, slots=True)
class Made:
    """What a factory makes.

    Attributes:
        model: The model.
        dynamic_shapes: Which sizes its graph leaves open, as `torch.export.export` takes it.
    """

    model: torch.nn.Module
    dynamic_shapes: Any = None


def make(reference: str, *, meta: bool = False, train: bool = False) -> Made:
    """Return what ``MODULE:FACTORY`` makes, the model in eval mode unless ``train``.

    Args:
        reference: As on the command line.
        meta: Make it without weights: its parameters are on ``meta``, while its buffers are computed.
        train: Put it in train mode.

    Raises:
        UsageError: There is no such factory.
        FactoryError: The user's code raises, or makes something else than a module.
    """
    factory = find_factory(reference)
    if isinstance(factory, torch.nn.Module):
        if meta:
            raise UsageError(
                f"{reference} is a model already, with its weights",
                fix="--meta needs a function that makes it: def make(): return ...",
            )
        return Made(factory.train(train))
    if not callable(factory):
        raise UsageError(
            f"{reference} is {type(factory).__name__}",
            fix="name a function without arguments that returns a torch.nn.Module",
        )
    with user_code(reference), empty_weights() if meta else contextlib.nullcontext():
        found = factory()
    made = Made(*found) if isinstance(found, tuple) and len(found) == 2 else Made(found)
    if not isinstance(made.model, torch.nn.Module):
        raise FactoryError(
            f"{reference} makes {type(made.model).__name__}",
            fix="it must return a torch.nn.Module, or a pair of one and its dynamic_shapes",
        )
    made.model.train(train)
    return made


def make_model(reference: str, *, meta: bool = False, train: bool = False) -> torch.nn.Module:
    """Return the model that ``MODULE:FACTORY`` makes; arguments and errors as for `make`."""
    return make(reference, meta=meta, train=train).model


def find_factory(reference: str) -> Any:
    """Return the object that ``MODULE:FACTORY`` names.

    Raises:
        UsageError: There is none.
        FactoryError: Its module cannot be imported.
    """
    module_name, colon, path = reference.rpartition(":")
    if not (module_name and colon and path):
        raise UsageError(
            f"{reference!r} does not name a model",
            fix="write MODULE:FACTORY, such as models/net.py:make or torchvision.models:resnet18",
        )
    is_file = module_name.endswith(".py")
    found: Any = (
        _run_file(Path(module_name), reference) if is_file else _import_module(module_name, reference)
    )
    for step in path.split("."):
        if not hasattr(found, step):
            public = [
                name for name, value in vars(found).items() if callable(value) and not name.startswith("_")
            ]
            raise UsageError(
                f"{module_name} has no {path}", fix=f"it has {', '.join(public[:20]) or 'nothing to call'}"
            )
        found = getattr(found, step)
    return found


def _import_module(name: str, reference: str) -> ModuleType:
    _put_on_path(Path.cwd())
    try:
        with user_code(reference):
            return importlib.import_module(name)
    except FactoryError as error:
        missing = getattr(error.__cause__, "name", None)
        if (
            isinstance(error.__cause__, ModuleNotFoundError)
            and missing
            and f"{name}.".startswith(f"{missing}.")
        ):
            raise UsageError(
                f"there is no module {missing!r}",
                where=reference,
                fix="give an importable module, or the path of a .py file",
            ) from error
        raise


def _run_file(path: Path, reference: str) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}", where=reference)
    _put_on_path(path.resolve().parent)
    # By its own name, for classes know their module by it; but never in place of another module.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}:{path.resolve()}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} ends in .py"
    assert spec.loader is not None, f"{path} ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with user_code(reference):
            spec.loader.exec_module(module)
    except FactoryError:
        del sys.modules[name]
        raise
    return module


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextlib.contextmanager
def user_code(reference: str) -> Iterator[None]:
    """Name the factory in whatever its code raises, ``sys.exit`` included."""
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = str(error).strip().split("\n")
        raise FactoryError(
            f"{reference} failed: {type(error).__name__}: {lines[0]}",
            where=_line(error),
            fix="this is the model's own code; --debug shows how it got there",
        ) from error


def _line(error: BaseException) -> str | None:
    """Return the innermost ``file:line`` outside PyTorch that ``error`` passed through."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if not frame.filename.startswith((_TORCH_FOLDER, "<frozen"))]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None
