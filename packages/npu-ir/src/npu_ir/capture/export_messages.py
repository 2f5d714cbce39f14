"""Errors, logs, warnings and prints of torch.export, in fewer words or held back."""

from __future__ import annotations

import builtins
import contextlib
import logging
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType, TracebackType
from typing import Any, cast

import torch

from npu_ir._torch.tracing import hold_log, printing_module
from npu_ir.core.user_code import signature_mismatch, user_line, warn_caller
from npu_ir.errors import CaptureWarning, ExportError

LOGGER = logging.getLogger("npu_ir.capture")
# The modules of PyTorch that capture. Warnings of others concern the model, and eager mode issues them, too.
_CAPTURING = re.compile(
    r"torch\.(export|_export|fx|_subclasses|_functorch|_dynamo|_higher_order_ops|utils\._pytree)\b"
)
_WARNING_MODULES = ("warnings", "_py_warnings", "typing_extensions")
# Logged in addition to an exception, which says more.
_BESIDE_EXCEPTIONS = re.compile(
    r"failed while attempting to run meta|fake tensor raised"
    r"|Unable to find user code|failed during evaluate_expr"
)
_ASSIGNED = re.compile(r"The tensor attributes? (.*) (?:was|were) assigned during export")
_SPECIALIZED = re.compile(r"dimension (\S+) 0/1 specialized; .* hint = (\d)")
_ITS_OWN_DOING = re.compile(r".*LeafSpec")  # torch 2.13 warns of its own use of it


class HeldMessages:
    """A context that holds back the messages of torch.export in this thread, but not those of the model.

    A failure is reported by its exception, to which they are added as notes. After a success most of them are
    passed on; those that say nothing about the program are only logged, by ``npu_ir.capture`` at level DEBUG.
    """

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        self._model = model
        self._held: list[tuple[str, Callable[[], None]]] = []  # each text, and a function that emits it
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(hold_log(self._hold_record))
            for pattern in (_ASSIGNED, _ITS_OWN_DOING):
                stack.enter_context(_bypass_filters(pattern.pattern))
            stack.enter_context(_FunctionSubstitute(warnings, "showwarning", self._hold_warning))
            stack.enter_context(_FunctionSubstitute(printing_module(), "print", self._hold_print))
            self._stack = stack.pop_all()

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._stack.close()
        texts = list(dict.fromkeys(text.strip() for text, _say in self._held))
        for text in texts if error is None else [*texts, f"{type(error).__name__}: {error}"]:
            LOGGER.debug("%s", text)
        if error is None:
            self._emit()
            return
        # As BaseException.add_note does, which Python 3.10 does not have.
        error.__notes__ = [*getattr(error, "__notes__", ()), *(f"torch.export: {text}" for text in texts)]

    def _hold_record(self, record: logging.LogRecord) -> None:
        self._held.append((record.getMessage(), lambda: logging.getLogger(record.name).handle(record)))

    def _hold_warning(self, message: Warning, category: type[Warning], *place: Any) -> bool:
        is_of_capture = _CAPTURING.match(_warning_module(sys._getframe(2)))
        if not (is_of_capture or _ITS_OWN_DOING.match(str(message))):
            return False
        self._held.append((str(message), lambda: warnings.showwarning(message, category, *place)))
        return True

    def _hold_print(self, *items: Any, **options: Any) -> bool:
        self._held.append((" ".join(map(str, items)), lambda: print(*items, **options)))  # noqa: T201
        return True

    def _emit(self) -> None:
        """Emit the held messages that matter, some of them as warnings of this package."""
        specialized: list[str] = []
        for text, say in self._held:
            if found := _SPECIALIZED.search(text):
                specialized.append(f"{found[1]} = {found[2]}")
            elif found := _ASSIGNED.search(text):
                self._warn_of_attributes(found[1].split(", "))
            elif not (_BESIDE_EXCEPTIONS.search(text) or _ITS_OWN_DOING.search(text)):
                say()
        if specialized:
            warn_caller(
                f"the graph is fixed to {', '.join(specialized)}: "
                "PyTorch opens no size whose example is 0 or 1; pass an example of at least 2",
                CaptureWarning,
            )

    def _warn_of_attributes(self, paths: list[str]) -> None:
        lost = [path for path in paths if not self._is_list_of_parameters(path)]
        if lost:
            warn_caller(
                f"forward assigns tensors to {', '.join(lost)}: the graph does not keep them; "
                "register them in __init__ by register_buffer",
                CaptureWarning,
            )

    def _is_list_of_parameters(self, path: str) -> bool:
        """Return whether an attribute is in a recurrent layer's own list of its parameters (torch 2.13)."""
        owner, _, attribute = path.removeprefix("self").rpartition(".")
        if self._model is None or not attribute.startswith("_flat_weights["):
            return False
        return isinstance(self._model.get_submodule(owner.removeprefix(".")), torch.nn.RNNBase)


class _FunctionSubstitute:
    """A substitute for a function of a module, or for a builtin; may be nested, and removed in any order.

    ``hold`` is called in this thread only, with the arguments, and returns whether it handled the call.
    """

    def __init__(self, owner: ModuleType, name: str, hold: Callable[..., bool]) -> None:
        self._owner = owner
        self._name = name
        self._hold = hold
        self._thread: int | None = None
        self._before: Any = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._before = vars(self._owner).get(self._name)
        setattr(self._owner, self._name, self)

    def __exit__(self, *_: object) -> None:
        self._thread = None  # other code may restore this object later: it only forwards then
        # Nested substitutes form a linked list; remove this one wherever it is.
        above, item = None, vars(self._owner).get(self._name)
        while isinstance(item, _FunctionSubstitute) and item is not self:
            above, item = item, item._before
        if item is not self:
            return
        if above is not None:
            above._before = self._before
        elif self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if threading.get_ident() == self._thread and self._hold(*args, **kwargs):
            return
        (self._before or getattr(builtins, self._name))(*args, **kwargs)


@contextlib.contextmanager
def _bypass_filters(message: str) -> Iterator[None]:
    """Let matching warnings through each time, and never as exceptions, whatever the filters are.

    `warnings.catch_warnings` would discard what other threads have changed meanwhile.
    """
    warnings.filterwarnings("always", message)
    entry = warnings.filters[0]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            cast("list[Any]", warnings.filters).remove(entry)


def _warning_module(frame: FrameType | None) -> str:
    """Return the name of the module that issues a warning."""
    while frame is not None and frame.f_globals.get("__name__") in _WARNING_MODULES:
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))


_FIX = (
    "call the model in PyTorch with these arguments: where that fails, too, they are wrong; "
    "otherwise torch.export.draft_export lists all obstacles at once"
)
_BRANCH = (
    "the model decides by the content of a tensor: "
    "compute both ways and choose by torch.where, or give both to torch.cond; leave out an assert"
)
_ON_META = (
    "a tensor on meta that the model does not hold has no data: "
    "make it an attribute or a buffer of the model, and the graph asks for it by name"
)
_SHAPES = (
    "nest dynamic_shapes as the arguments are, by name or in order, "
    "with a torch.export.Dim for each open dimension: {'x': {0: Dim('batch')}}"
)
# By a substring of torch.export's message.
_FIXES = {
    "dynamic_shapes": _SHAPES,
    "Dim.DYNAMIC,  but got": _SHAPES,
    "Could not extract specialized integer": "the model needs a number that is the content of a tensor: "
    "pass it as a Python number, which the graph is then fixed to",
    "data-dependent": _BRANCH,
    "in output, which is not a known type": "return tensors, numbers and containers of them; "
    "torch.export.register_dataclass makes a dataclass one (models of transformers: use_cache=False)",
    "cpu and meta": _ON_META,
    "devices cpu, meta": _ON_META,  # torch 2.9
    "Unsupported input type": "pass tensors, numbers, strings, None and containers of them; "
    "torch.export.register_dataclass makes a dataclass one",
}
_MOST_LINES = 5
# Advice that torch.export adds to its messages for its own users (torch 2.13).
_ADVICE = re.compile(
    r" *For more information, run with TORCH_LOGS=\S+"
    r"| *For more information about this error, see: \S+"
    r"|(?s:\n\nThe error above occurred when calling torch\.export\.export.*)"
    r"|(?s: *\(unhinted: .*)"
    r"|\. If this type holds tensors, you need to register a pytree for it\..*"
    r"| If you're using mark_dynamic, .*"
)
_CHECK = re.compile(r"^  \d\. (torch\._check\(.*\))$", re.MULTILINE)


def export_error(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> ExportError:
    """Return the error to raise in place of ``error``, which torch.export raised for a call of ``model``."""
    name, wrong_call = type(model).__name__, signature_mismatch(model.forward, args, kwargs)
    if wrong_call is not None:
        return ExportError(
            f"forward of {name} cannot be called so: {wrong_call}",
            fix="give what forward takes, in a tuple, and in a dict by name: (x, y), {'scale': 1.0}",
        )
    text = str(error).strip()
    return ExportError(
        f"torch.export cannot capture {name}: {_summary(error)}",
        where=_location(model, error),
        fix=_fix(text),
    )


def suggested_sizes(text: str) -> list[str]:
    """Return the size definitions suggested in a message: ``s = Dim('s', max=512)``, ``t = 2*s``."""
    _, found, rest = strip_advice(text).partition("Suggested fixes:\n")
    lines = re.match(r"(?:  \w+ = .+\n?)*", rest)
    return [line.strip() for line in lines[0].splitlines()] if found and lines else []


def strip_advice(text: str) -> str:
    """Return a message of torch.export without the advice for its own users."""
    return _ADVICE.sub("", text)


def _summary(error: Exception) -> str:
    """Return the message of torch.export without its advice; list items stay on their own lines."""
    text = strip_advice(str(error).strip()).partition("\nSuggested fixes:")[0]
    text = re.sub(r"\nTo fix the error, insert one of(?s:.*)", "", text)
    text = re.sub(r"L\['(\w+)'\]", r"\1", text).replace(".size()[", ".shape[")
    lines = [line for line in text.split("\n") if line.strip()]
    listed = [line for line in lines[1:] if line.startswith("  - ")]
    if not listed:
        return f"{type(error).__name__}: {' '.join(lines[:3])}"
    more = [f"  ... and {len(listed) - _MOST_LINES} more"] if len(listed) > _MOST_LINES else []
    return "\n".join([lines[0], *listed[:_MOST_LINES], *more])


def _fix(text: str) -> str:
    if sizes := suggested_sizes(text):
        return f"give these sizes in dynamic_shapes: {'; '.join(sizes)}"
    if text.startswith("Could not guard") and (checks := _CHECK.findall(text)):
        return f"{_BRANCH}; or state before it what always holds: {' or '.join(checks)}"
    return next((fix for part, fix in _FIXES.items() if part in text), _FIX)


def _location(model: torch.nn.Module, error: Exception) -> str | None:
    """Return the innermost module that ``error`` passed through, and the innermost line of user code."""
    paths = {id(module): path for path, module in model.named_modules()}
    module_text = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if path := paths.get(id(owner)):
            module_text = f"{path} ({type(owner).__name__})"
    return ", ".join(filter(None, (module_text, user_line(error)))) or None
