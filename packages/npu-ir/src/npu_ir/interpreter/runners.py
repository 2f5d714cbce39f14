"""Runners of graphs: the interpreter, and those that plugins offer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_ir.core.user_code import did_you_mean
from npu_ir.errors import UsageError
from npu_ir.interpreter.interpreter import Interpreter
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.distributions import install_hint
from npu_ir.plugins.plugin_manager import INTERPRETER

EXECUTOR = "executor"  # from npu-runtime


class Runner(Protocol):
    """The interface of a runnable graph with bound weights, as `npu_ir.Interpreter` implements it."""

    def run_flat(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        observe: Observer | None = None,
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Return the results as a flat list, and the new content of mutated state by name."""


# Called with a graph, its weights and its constants; that of the executor also with names of backends.
MakeRunner = Callable[..., Runner]


def all_runners() -> dict[str, MakeRunner]:
    """Return the factories of all runners, by name."""
    return {INTERPRETER: Interpreter, **plugin_manager.get_plugins().runners}


def default_runner() -> str:
    """Return the name of the fastest available runner: the executor, if npu-runtime is installed."""
    return EXECUTOR if EXECUTOR in all_runners() else INTERPRETER


def find_runner(name: str, backends: Sequence[str] | None = None) -> MakeRunner:
    """Return the factory of the runner of this name, restricted to these backends if any are given.

    Raises:
        UsageError: There is no such runner, or backends are given for one that has none.
    """
    runners = all_runners()
    if name not in runners:
        raise UsageError(
            f"there is no runner {name!r}{did_you_mean(name, runners)}",
            fix=install_hint("runners", name)
            or f"there {'are' if len(runners) > 1 else 'is'} {', '.join(sorted(runners))}; "
            "plugins provide others",
        )
    if not backends:
        return runners[name]
    if name != EXECUTOR:
        fix = f"--on {EXECUTOR}, which npu-runtime provides, or no --backend"
        raise UsageError(f"the {name} has no backends", fix=fix)
    return functools.partial(runners[name], backends=list(backends))
