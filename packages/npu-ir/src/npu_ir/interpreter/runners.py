"""What can run a graph: the interpreter, and the runners that plugins offer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_ir.core.call_signature import did_you_mean
from npu_ir.errors import UsageError
from npu_ir.interpreter.interpreter import Interpreter
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.distributions import how_to_get
from npu_ir.plugins.plugin_manager import INTERPRETER

EXECUTOR = "executor"  # that of npu-runtime


class Runner(Protocol):
    """A graph with its weights bound, ready to be run: what `npu_ir.Interpreter` is, and what plugins offer."""

    def run_flat(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        observe: Observer | None = None,
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Return the results as a flat list, and the new content of what the model updates, by name."""


# Of a graph, its weights and its constants; the executor takes the names of backends besides.
MakeRunner = Callable[..., Runner]


def all_runners() -> dict[str, MakeRunner]:
    """Return what makes a runner of a graph, its weights and its constants, by name."""
    return {INTERPRETER: Interpreter, **plugin_manager.loaded().runners}


def default_runner() -> str:
    """Return the name of the quickest runner there is: the executor, where npu-runtime is installed."""
    return EXECUTOR if EXECUTOR in all_runners() else INTERPRETER


def find_runner_on(name: str, backends: Sequence[str] | None) -> MakeRunner:
    """Return what makes the runner of this name, which runs graphs on these backends if they are given.

    Raises:
        UsageError: There is no such runner, or it is not the one that has backends.
    """
    make = find_runner(name)
    if not backends:
        return make
    if name != EXECUTOR:
        raise UsageError(
            f"the {name} has no backends", fix=f"--on {EXECUTOR}, which npu-runtime brings, or no --backend"
        )
    return functools.partial(make, backends=list(backends))


def find_runner(name: str) -> MakeRunner:
    """Return what makes the runner of this name.

    Raises:
        UsageError: There is none.
    """
    runners = all_runners()
    if name not in runners:
        raise UsageError(
            f"there is no runner {name!r}{did_you_mean(name, runners)}",
            fix=how_to_get("runners", name)
            or f"there {'are' if len(runners) > 1 else 'is'} {', '.join(sorted(runners))}; plugins bring others",
        )
    return runners[name]
