"""Registry of passes and pipelines by name, both built-in and from other plugins."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from npu_ir.plugins import plugin_manager
from npu_ir.plugins.distributions import install_hint
from npu_passes.core.base import Pass
from npu_passes.core.pass_text import format_passes, parse_passes
from npu_passes.core.pipeline import Pipeline, sort_passes
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
        fix = _suggest(name, passes, "npu passes")
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


def passes_of(pipeline: str) -> list[Pass]:
    """Return the passes of a named pipeline, in order, including those of plugins that join it.

    Joining passes follow the pipeline's own, by name, as far as their ``before`` and ``after`` allow: the
    order of installation has no influence, and the pipeline's own passes keep their order.

    Raises:
        PassError: The pipeline is unknown, it names an unknown pass, or no order satisfies all constraints
            without reordering the pipeline's own passes.
    """
    pipelines = plugin_manager.get_plugins().pipelines
    if not isinstance(pipeline, str):
        raise PassError(
            f"a pipeline is given by its name, not {pipeline!r}",
            fix="PassManager(passes).run(graph) runs passes",
        )
    if pipeline not in pipelines:
        fix = install_hint("pipelines", pipeline) or _suggest(pipeline, pipelines, "npu passes")
        if pipeline in plugin_manager.get_plugins().passes:
            fix = f"it is a pass: PassManager({pipeline!r}), or --passes {pipeline}"
        raise PassError(f"there is no pipeline {pipeline!r}", fix=fix)
    own = parse_passes(pipelines[pipeline].passes) if pipelines[pipeline].passes.strip() else []
    present = {item.name for item in own}
    joining = [
        find_pass(name)
        for name, item in all_passes().items()
        if name not in present and pipeline in getattr(item, "pipelines", ())
    ]
    return _join_passes(pipeline, own, [item() for item in joining])


def _join_passes(pipeline: str, own: list[Pass], joining: list[Pass]) -> list[Pass]:
    """Return the passes of a pipeline with those that join it, none of which may reorder it."""
    fixed = sort_passes(own)
    # First none, then each joining pass alone, so that an error names the one at fault; then all of them.
    for many in ([], *([item] for item in joining), joining):
        try:
            order = sort_passes([*fixed, *many], fixed=len(fixed))
        except PassError as error:
            origins = list(dict.fromkeys(origin_of(item.name) for item in many))
            disabled = ",".join(origin.partition(" ")[0] for origin in origins)
            raise PassError(
                f"{', '.join(item.name for item in many)} cannot join the pipeline {pipeline!r},"
                f" whose own passes run as {format_passes(fixed)}: {error.message}",
                where=", ".join(origins),
                fix=f"set NPU_DISABLE_PLUGINS={disabled}; the author can change before=, after= or"
                " pipelines=",
            ) from error
    return order


def _suggest(name: str, known: Iterable[Any], command: str) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"{command} lists them"
