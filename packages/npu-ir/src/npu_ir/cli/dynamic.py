"""The option ``--dynamic``: sizes of a model's arguments that stay symbolic in the graph."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import Dim

from npu_ir.cli.call_arguments import require_arguments
from npu_ir.errors import GraphError, UsageError
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import symbol

AUTO = "auto"
_SUBSCRIPT = re.compile(r"\[([^\]]*)\]")
_SIZES = re.compile(r"([A-Za-z_]\w*(?:\[[^\]]*\])*)\s*:\s*(.*)", re.DOTALL)
_RANGE = re.compile(r"(\w+)\s*=\s*(\d*)\s*\.\.\s*(\d*)")
_DIM = re.compile(r"Dim\('\w+'(?:, min=(\w+))?(?:, max=(\w+))?\)")
_AXIS = re.compile(r"(\d+)\s*=\s*(\w+)")

HELP = """\
dynamic sizes:
  --dynamic says which sizes the graph leaves open; the arguments have the names that forward gives them:
    x:0=batch,1=seq                sizes of an argument; a symbol that stands in two places is one size
    batch=2..64   batch=2..        the range of a symbol
    states[0]:1=seq   d['k']:auto  part of an argument that is a list, tuple or dict
    x:auto   x:0=auto              whatever the model leaves open there; n:auto of an integer: its value
    auto                           whatever the model leaves open in any tensor
"""


@dataclass(slots=True)
class Dynamic:
    """The dynamic sizes that the command line requests."""

    # Symbols by axis, for each path of an argument; None for all axes that can be dynamic.
    axes: dict[str, dict[int, str] | None] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    everywhere: bool = False

    @property
    def symbols(self) -> set[str]:
        return {name for axes in self.axes.values() for name in (axes or {}).values()} - {AUTO}


def parse_dynamic(texts: Sequence[str]) -> Dynamic:
    """Parse the occurrences of ``--dynamic``.

    Raises:
        UsageError: One is malformed, contradicts another one, or gives a range for an unused symbol.
    """
    dynamic = Dynamic()
    for text in map(str.strip, texts):
        bounds, sizes = _RANGE.fullmatch(text), _SIZES.fullmatch(text)
        if text == AUTO:
            dynamic.everywhere = True
        elif bounds is not None:
            _set_once(dynamic.ranges, bounds[1], _parse_range(text, bounds[2], bounds[3]), text)
        elif sizes is not None:
            axes = None if sizes[2] == AUTO else _parse_axes(text, sizes[2])
            _set_once(dynamic.axes, _normalize_path(sizes[1]), axes, text)
        else:
            fix = "write NAME:AXIS=SYMBOL, such as x:0=batch,1=seq"
            raise UsageError(f"--dynamic {text}: this names no sizes", fix=fix)
    for name in dynamic.ranges:
        if name not in dynamic.symbols:
            fix = f"name one: --dynamic ARGUMENT:0={name}"
            raise UsageError(f"--dynamic {name}=...: no size is called {name}", fix=fix)
    return dynamic


def _set_once(entries: dict[str, Any], key: str, item: Any, text: str) -> None:
    if key in entries:
        raise UsageError(f"--dynamic {text}: {key} is given twice")
    entries[key] = item


def _parse_range(text: str, low: str, high: str) -> Range:
    range = Range(int(low or 0), int(high) if high else None)
    if range.is_empty:
        raise UsageError(f"--dynamic {text}: no value is in this range")
    return range


def _axes_fix(text: str) -> str:
    arguments = re.split(r",\s*(?=[^,=:]+:)", text)
    if len(arguments) == 1:
        return "axes are counted from 0: 0=batch"
    options = " ".join(f"--dynamic {argument}" for argument in arguments)
    return f"give each argument an option of its own: {options}"


def _parse_axes(text: str, entries: str) -> dict[int, str]:
    axes: dict[int, str] = {}
    for entry in entries.split(","):
        match = _AXIS.fullmatch(entry.strip())
        if match is None:
            raise UsageError(f"--dynamic {text}: {entry.strip()!r} is not AXIS=SYMBOL", fix=_axes_fix(text))
        if int(match[1]) in axes:
            raise UsageError(f"--dynamic {text}: axis {match[1]} is given twice")
        try:
            symbol(match[2])
        except GraphError as error:
            raise UsageError(f"--dynamic {text}: {error.message}", fix=error.fix) from error
        axes[int(match[1])] = match[2]
    return axes


def _normalize_path(path: str) -> str:
    """Return the path of an argument as `_iterate_leaves` formats it, with any quotes around its keys."""

    def step(match: re.Match[str]) -> str:
        key = match[1].strip().strip("'\"")
        return f"[{key}]" if key.isdecimal() else f"[{key!r}]"

    return _SUBSCRIPT.sub(step, path)


def dynamic_shapes(
    dynamic: Dynamic, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``dynamic`` in the form that `npu_ir.extract_ir` takes.

    Raises:
        UsageError: The model does not accept these arguments, or has no such argument or axis.
    """
    require_arguments(model, args, kwargs)
    passed = _bind_arguments(model, args, kwargs)
    leaves = dict(leaf for name, item in passed.items() for leaf in _iterate_leaves(item, name))
    for path, axes in dynamic.axes.items():
        _require_dynamic_axes(path, axes, leaves)
    ranges = {name: dynamic.ranges.get(name, Range(None)) for name in sorted(dynamic.symbols)}
    dims = {name: Dim(name, min=range.low, max=range.high) for name, range in ranges.items()}
    return {name: _shapes_of(item, name, dynamic, dims) for name, item in passed.items()}


def _bind_arguments(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the arguments of the model's forward, by name."""
    signature = inspect.signature(model.forward)
    passed = signature.bind(*args, **kwargs).arguments
    for name in passed:
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            # torch.export fails in its own bookkeeping of dynamic_shapes for **kwargs (torch 2.13).
            raise UsageError(
                f"forward takes {', '.join(map(repr, passed[name]))} in **{name}: "
                "torch.export leaves no sizes open then",
                fix="give these arguments a name in forward",
            )
    return passed


def _iterate_parts(item: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    keys = item if isinstance(item, dict) else range(len(item))
    return ((key, item[key], f"{path}[{key!r}]") for key in keys)


def _iterate_leaves(item: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(item, (list, tuple, dict)):
        yield path, item
        return
    for _, part, inner in _iterate_parts(item, path):
        yield from _iterate_leaves(part, inner)


def _require_dynamic_axes(path: str, axes: dict[int, str] | None, leaves: Mapping[str, Any]) -> None:
    tensors = [name for name, item in leaves.items() if isinstance(item, torch.Tensor)]
    if path not in leaves:
        raise UsageError(
            f"--dynamic {path}: the model gets no such argument",
            fix=f"its tensors: {', '.join(tensors) or 'none'}",
        )
    item = leaves[path]
    if not isinstance(item, torch.Tensor):
        if axes is None and type(item) is int:
            return
        raise UsageError(
            f"--dynamic {path}: this is {item!r}, which has no sizes",
            fix="only tensors have sizes; of an integer, NAME:auto leaves its value open",
        )
    for axis in axes or ():
        if axis >= item.dim():
            raise UsageError(f"--dynamic {path}: a tensor of {item.dim()} dimensions has no axis {axis}")


def _shapes_of(item: Any, path: str, dynamic: Dynamic, dims: Mapping[str, Any]) -> Any:
    """Return the dynamic_shapes of one argument for torch.export."""
    if isinstance(item, (dict, list, tuple)):
        parts = _iterate_parts(item, path)
        shapes = {key: _shapes_of(part, inner, dynamic, dims) for key, part, inner in parts}
        return shapes if isinstance(item, dict) else type(item)(shapes.values())
    if not isinstance(item, torch.Tensor):
        return Dim.DYNAMIC if path in dynamic.axes else None
    axes = dynamic.axes.get(path, None if dynamic.everywhere else {})
    if axes is None:
        axes = dict.fromkeys(range(item.dim()), AUTO)
    return {axis: Dim.AUTO if name == AUTO else dims[name] for axis, name in axes.items()}


def suggest_options(definitions: Sequence[str]) -> str:
    """Return the command line changes for torch.export's suggestions, such as ``s = Dim('s', max=512)``."""
    return "; ".join(text for text in map(_suggest_option, definitions) if text)


def _suggest_option(definition: str) -> str:
    name, _, value = definition.partition(" = ")
    if bounds := _DIM.fullmatch(value):
        low, high = (end if end and end.isdecimal() else "" for end in bounds.groups())
        return "" if name.startswith("_") else f"write --dynamic {name}={low}..{high}"
    if value.isdecimal():
        return f"leave out {name}, which is always {value}"
    if value.isidentifier():
        return f"write {value} in place of {name}"
    return (
        f"{name} is always {value}: "
        f"let FACTORY return the model and its dynamic_shapes, where {name} is written so"
    )
