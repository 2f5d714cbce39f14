"""The user's model: ``MODULE:FACTORY`` names the code that constructs it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from npu_ir.capture import empty_weights
from npu_ir.core.user_code import did_you_mean, required_names, signature_mismatch, user_line
from npu_ir.errors import FactoryError, UsageError

_MISSING = object()
_REFERENCE = re.compile(r"(.+?):(\w+(?:\.\w+)*)(\(.*\))?", re.DOTALL)

HELP = """\
models:
  MODULE:FACTORY names something that makes the model when called (a function, a torch.nn.Module class,
  a method: net.py:Net.small), or a module itself. MODULE is imported with the current folder on the path, or
  is the path of a .py file. A function may also return a pair: the model, and the dynamic_shapes that
  torch.export takes. Arguments are Python literals, and quotes keep the shell from reading them:
    'net.py:make(18, width=2.0, kind="s")'
"""


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed ``MODULE:FACTORY`` or ``MODULE:FACTORY(ARGUMENTS)``: ``module`` may be the path of a file."""

    module: str
    path: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    has_arguments: bool = False


def parse_reference(text: str) -> Reference:
    """Parse ``MODULE:FACTORY(ARGUMENTS)``.

    Raises:
        UsageError: It does not name a factory, or its arguments are not Python literals.
    """
    parts = _REFERENCE.fullmatch(text)
    if parts is None:
        raise UsageError(
            f"{text!r} does not name a model",
            fix="write MODULE:FACTORY, such as models/net.py:make or torchvision.models:resnet18, "
            "or in quotes 'MODULE:FACTORY(ARGUMENTS)'",
        )
    module, path, arguments = parts.groups()
    if arguments is None:
        return Reference(module, path)
    try:
        call: Any = ast.parse(f"f{arguments}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("more than one pair of parentheses")
        args = tuple(ast.literal_eval(item) for item in call.args)
        kwargs = {item.arg: ast.literal_eval(item.value) for item in call.keywords if item.arg is not None}
        if len(kwargs) < len(call.keywords):
            raise ValueError("** is not a literal")
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"the arguments in {text!r} are not Python literals",
            fix="write numbers, quoted strings, True, None, lists, tuples and dicts of these; "
            "for anything else, write a function that makes the model",
        ) from error
    return Reference(module, path, args, kwargs, has_arguments=True)


def make(reference: str, *, meta: bool = False, train: bool = False) -> tuple[torch.nn.Module, Any]:
    """Return the model of ``MODULE:FACTORY``, in eval mode unless ``train``, and its dynamic_shapes if any.

    With ``meta`` it has no weights: its parameters are on ``meta``, while its buffers are computed.

    Raises:
        UsageError: There is no such factory, or it does not accept these arguments.
        FactoryError: The user's code raises, or returns something other than a module.
    """
    factory = find_factory(reference)
    if isinstance(factory, torch.nn.Module):
        if meta or parse_reference(reference).has_arguments:
            what = "--meta needs" if meta else "arguments need"
            raise UsageError(
                f"{reference} is a model already, with its weights",
                fix=f"{what} a function that makes it: def make(): return ...",
            )
        return factory.train(train), None
    with empty_weights() if meta else contextlib.nullcontext():
        result = call_factory(factory, reference)
    model, shapes = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, torch.nn.Module):
        raise FactoryError(
            f"{reference} returns {describe_kind(model)}",
            where=definition_location(factory),
            fix="it must return a torch.nn.Module, or a pair of one and its dynamic_shapes",
        )
    return model.train(train), shapes


def call_factory(factory: Any, reference: str) -> Any:
    """Call a factory with the arguments in ``reference``; errors as for `make`."""
    parsed = parse_reference(reference)
    if not callable(factory):
        raise UsageError(
            f"{reference} is {describe_kind(factory)}", fix="name a function or class that can be called"
        )
    wrong_call = signature_mismatch(factory, parsed.args, parsed.kwargs)
    if wrong_call is not None:
        raise UsageError(
            f"{reference} cannot be called so: {wrong_call}",
            where=definition_location(factory),
            fix=f"give {_suggest_arguments(factory, parsed)}",
        )
    with user_code(reference, definition_location(factory)):
        return factory(*parsed.args, **parsed.kwargs)


def _suggest_arguments(factory: Any, parsed: Reference) -> str:
    """Return the arguments to give to a factory that does not accept those of ``parsed``."""
    if parsed.has_arguments:
        return f"only what it takes: {', '.join(inspect.signature(factory).parameters) or 'no arguments'}"
    arguments = ", ".join(f"{item}=..." for item in required_names(factory))
    return f"its arguments, in quotes for the shell: '{parsed.module}:{parsed.path}({arguments})'"


def describe_kind(item: Any) -> str:
    """Return the kind of an object, in a word or two."""
    if item is None:
        return "None"
    return f"the class {item.__name__}" if isinstance(item, type) else f"{type(item).__name__}"


def definition_location(factory: Any) -> str | None:
    """Return ``file:line`` of the definition of a function or class; None if it is unknown."""
    try:
        return f"{inspect.getsourcefile(factory)}:{inspect.getsourcelines(factory)[1]}"
    except (OSError, TypeError):
        return None


def make_model(reference: str, *, train: bool = False) -> torch.nn.Module:
    """Return the model of ``MODULE:FACTORY``; arguments and errors as for `make`."""
    return make(reference, train=train)[0]


def find_factory(reference: str) -> Any:
    """Return the object that ``MODULE:FACTORY`` names; errors as for `make`."""
    parsed = parse_reference(reference)
    is_file = parsed.module.endswith(".py")
    target: Any = (
        _import_file(Path(parsed.module), reference) if is_file else _import_module(parsed.module, reference)
    )
    owner = parsed.module
    for step in parsed.path.split("."):
        with user_code(reference):  # attribute access may run code: packages import submodules lazily
            part = getattr(target, step, _MISSING)
        if part is _MISSING:
            public = [
                name for name, item in vars(target).items() if callable(item) and not name.startswith("_")
            ]
            raise UsageError(
                f"{owner} has no {step}{did_you_mean(step, dir(target))}",
                fix=f"it has {', '.join(public[:20])}" if public else "look it up in its documentation",
            )
        target, owner = part, f"{owner}{'.' if ':' in owner else ':'}{step}"
    return target


def _import_module(name: str, reference: str) -> ModuleType:
    _add_to_path(Path.cwd())
    try:
        with user_code(reference):
            return importlib.import_module(name)
    except FactoryError as error:
        missing = getattr(error.__cause__, "name", None)
        is_absent = isinstance(error.__cause__, ModuleNotFoundError) and missing
        if is_absent and f"{name}.".startswith(f"{missing}."):
            raise UsageError(
                f"there is no module {missing!r}",
                where=reference,
                fix="give an importable module, or the path of a .py file",
            ) from error
        raise


def _import_file(path: Path, reference: str) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}", where=reference)
    _add_to_path(path.resolve().parent)
    # Classes refer to their module by name, so use the file's; but never replace another module.
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


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextlib.contextmanager
def user_code(reference: str, place: str | None = None) -> Iterator[None]:
    """Convert any exception of the user's code, ``sys.exit`` included, to a `FactoryError` with its name.

    ``place`` is the location of the code, for exceptions raised outside it.
    """
    try:
        yield
    except SystemExit as error:
        raise FactoryError(
            f"{reference} ends the program: sys.exit({'' if error.code is None else repr(error.code)})",
            where=user_line(error) or place,
            fix="return the model; what only a script does belongs below if __name__ == '__main__':",
        ) from error
    except Exception as error:
        first, *_ = str(error).strip().split("\n")
        is_missing = isinstance(error, ModuleNotFoundError)
        raise FactoryError(
            f"{reference} failed: {type(error).__name__}: {first}",
            where=user_line(error) or place,
            fix=f"install it for the Python that runs npu: {sys.executable}"
            if is_missing
            else "this is the model's own code; --debug shows how it got there",
        ) from error
