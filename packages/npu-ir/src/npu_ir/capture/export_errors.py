"""Errors of torch.export in fewer words: the problem, its location in the model, and a fix."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npu_ir.core.call_signature import signature_mismatch
from npu_ir.core.user_frames import user_line
from npu_ir.errors import ExportError

_FIX = (
    "call the model in PyTorch with these arguments: where that fails, too, they are wrong; "
    "otherwise torch.export.draft_export lists all obstacles at once"
)
_BRANCH = (
    "the model decides by the content of a tensor: "
    "compute both ways and choose by torch.where; leave out an assert"
)
# By a substring of torch.export's message.
_FIXES = {
    "Could not extract specialized integer": "the model needs a number that is the content of a tensor: "
    "pass it as a Python number, which the graph is then fixed to",
    "data-dependent": _BRANCH,
    "in output, which is not a known type": "return tensors, numbers and containers of them; "
    "torch.export.register_dataclass makes a dataclass one (models of transformers: use_cache=False)",
    "cpu and meta": "a tensor on meta that the model does not hold has no data: "
    "make it an attribute or a buffer of the model, and the graph asks for it by name",
    "Unsupported input type": "pass tensors, numbers, strings, None and containers of them; "
    "torch.export.register_dataclass makes a dataclass one",
}
_MOST_LINES = 5
# Advice that torch.export adds to its messages for its own users (torch 2.13).
_ADVICE = re.compile(
    r" *For more information, run with TORCH_LOGS=\S+"
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
