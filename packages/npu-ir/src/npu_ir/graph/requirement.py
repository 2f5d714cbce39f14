"""The refusal of arguments that are not what a function of graphs takes: another object, or a bare tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from npu_ir.errors import ExecutionError, GraphError, NpuError, WeightError
from npu_ir.graph.graph import Graph


def require_graph(item: object) -> None:
    """Raise unless ``item`` is a graph.

    Raises:
        GraphError: It is not; says how to get one from what was given.
    """
    if isinstance(item, Graph):
        return
    given = f"the class {item.__name__}" if isinstance(item, type) else type(item).__name__
    if isinstance(item, (str, os.PathLike)):
        fix = "load_ir(path) reads one from a file"
    elif isinstance(item, torch.export.ExportedProgram):
        fix = "convert_exported_program(program) makes one of it"
    elif hasattr(item, "graph") and isinstance(item.graph, Graph):
        fix = "pass its graph: .graph"
    else:
        fix = "extract_ir(model, args) makes one of a model"
    raise GraphError(f"expected a graph, got {given}", fix=fix)


def require_path(path: object, error: type[NpuError]) -> Path:
    """Return ``path`` as a `Path`; raise an ``error`` unless it is the path of a file."""
    if isinstance(path, (str, os.PathLike)) and path and isinstance(os.fspath(path), str):
        return Path(path)
    given = repr(path) if isinstance(path, (str, bytes)) else type(path).__name__
    raise error(f"a file is given by its path, a string or a pathlib.Path, not {given}", fix="give its path")


def require_weights(weights: object, where: str | None = None) -> None:
    """Raise unless ``weights`` are tensors by name, or None.

    Raises:
        WeightError: They are not, such as a module in place of its ``state_dict``.
    """
    if weights is not None and not isinstance(weights, Mapping):
        raise WeightError(
            f"weights are tensors by name, not {type(weights).__name__}",
            where=where,
            fix="pass model.state_dict(), or load_weights(path)",
        )
    for key in weights or ():
        if not isinstance(key, str):
            raise WeightError(f"weights have names, not {key!r}", where=where, fix="pass model.state_dict()")


def positional_tuple(args: Sequence[Any], error: type[NpuError] = ExecutionError) -> tuple[Any, ...]:
    """Return positional arguments as a tuple.

    Raises an ``error`` unless they are a tuple or list; a bare tensor would be split into rows.
    """
    if not isinstance(args, (tuple, list)):
        raise error(
            f"the positional arguments are a tuple, not {type(args).__name__}", where="args", fix="pass (x,)"
        )
    return tuple(args)


def keyword_dict(kwargs: Mapping[str, Any] | None, error: type[NpuError] = ExecutionError) -> dict[str, Any]:
    """Return keyword arguments as a dict; None for none.

    Raises an ``error`` unless they are a mapping by name, such as for weights in their place.
    """
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise error(
            f"the keyword arguments are a dict by name, not {type(kwargs).__name__}",
            where="kwargs",
            fix="pass {'name': x}; weights are an argument of their own",
        )
    for key in kwargs or ():
        if not isinstance(key, str):
            raise error(
                f"the keyword arguments are a dict by name, not by {key!r}",
                where="kwargs",
                fix="pass {'name': x}",
            )
    return dict(kwargs or {})
