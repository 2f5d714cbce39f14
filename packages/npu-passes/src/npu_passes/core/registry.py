"""Registry of passes and pipelines by name, both built-in and from other plugins."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from npu_ir.plugins import plugin_manager
from npu_passes.core.base import Pass
from npu_passes.core.pipeline import Pipeline
from npu_passes.errors import PassError


def all_passes() -> Mapping[str, type[Pass]]:
    """Return the passes of all plugins by name."""
    return MappingProxyType(
        {
            name: plugin_manager.get_plugins().passes[name]
            for name in sorted(plugin_manager.get_plugins().passes)
        }
    )


def all_pipelines() -> Mapping[str, Pipeline]:
    """Return the pipelines of all plugins by name."""
    pipelines = plugin_manager.get_plugins().pipelines
    return MappingProxyType({name: pipelines[name] for name in sorted(pipelines)})


def origin_of(name: str, kind: str = "passes") -> str:
    """Return the plugin and distribution that provide a pass or pipeline; "" if there is none."""
    return next(
        (
            f"{report.name} ({report.distribution})"
            for report in plugin_manager.get_plugins().reports
            if name in report.offers.get(kind, ())
        ),
        "",
    )


def find_pass(name: str) -> type[Pass]:
    """Return the pass called ``name``.

    Raises:
        PassError: No plugin provides it, or the object of this name is not a pass.
    """
    passes = plugin_manager.get_plugins().passes
    if name not in passes:
        fix = suggest_name(name, passes, "npu passes")
        if name in plugin_manager.get_plugins().pipelines:
            fix = f"it is a pipeline: PassManager.of_pipeline({name!r}), or --pipeline {name}"
        raise PassError(f"there is no pass {name!r}", fix=fix)
    if not (isinstance(passes[name], type) and issubclass(passes[name], Pass)):
        raise PassError(
            f"{name!r} is not a pass but {passes[name]!r}",
            where=origin_of(name),
            fix="the hook npu_passes returns classes derived from npu_passes.Pass",
        )
    return passes[name]  # type: ignore[no-any-return]


def suggest_name(name: str, known: Iterable[Any], command: str) -> str:
    """Return a hint at the known name that is closest, or at the command that lists them."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"{command} lists them"
