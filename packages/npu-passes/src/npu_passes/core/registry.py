"""Registry of passes and of pipelines, which are named sequences of passes, built-in and of other plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from npu_ir.core.user_code import did_you_mean
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.distributions import install_hint
from npu_passes.core.base import Pass
from npu_passes.errors import PassError


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named sequence of passes; plugins provide pipelines in the hook ``npu_pipelines``.

    Passes of any plugin join a pipeline by naming it in their ``pipelines``.

    Attributes:
        name: Kebab-case, and unique among all plugins.
        passes: The passes, as text: ``"canonicalize,constant-folding{max_bytes=1024}"``; "" for none.
        doc: What it is for, in a sentence.
    """

    name: str
    passes: str
    doc: str = ""


MINIMAL = "canonicalize,elim-identity,cse,dead-code"
DEFAULT = f"{MINIMAL},conv-bn-folding,conv-add-folding,constant-folding"
_GRADIENTS = f"{MINIMAL},dead-gradients,gather-gradients,narrow-expand"
_CONSTANTS = "hoist-fill,constant-folding{weights=false}"
TRAIN = f"{_GRADIENTS},{_CONSTANTS},fuse-optimizer"
PIPELINES = (
    Pipeline("minimal", MINIMAL, "Exact clean-up: the same ops on the same values, fewer of them."),
    Pipeline("default", DEFAULT, "Clean-up, folding of norms and biases into convolutions, and constants."),
    Pipeline(
        "fuse",
        f"{DEFAULT},fuse-attention,fuse-rms-norm,fuse-rotary,fuse-add-norm,fuse-linear-activation,"
        "gather-gradients,fuse-loss-gradient,fuse-linear-backward",
        "The default, then groups of ops that backends run as one.",
    ),
    Pipeline("train", TRAIN, "Training steps: clean-up, no gradients in vain, one op per optimizer."),
    Pipeline(
        "train-fuse",
        f"{_GRADIENTS},fuse-loss-gradient,fuse-linear-backward,fuse-linear-activation,{_CONSTANTS},"
        "fuse-optimizer",
        "The same, and groups of ops, forward and backward, that backends run as one.",
    ),
    Pipeline(
        "train-device",
        f"{TRAIN},scalars-to-tensors",
        "The train pipeline, then learning rates as tensors: for steps that a device records until betas"
        " change.",
    ),
    Pipeline(
        "train-tensors",
        f"{_GRADIENTS},{_CONSTANTS},scalars-to-tensors",
        "Every number as a tensor, and the ops of the optimizer as they are: for steps that a device"
        " records once.",
    ),
)


def all_passes() -> Mapping[str, type[Pass]]:
    """Return the passes of all plugins by name."""
    passes = plugin_manager.get_plugins().passes
    return MappingProxyType({name: passes[name] for name in sorted(passes)})


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
    if not isinstance(name, str):
        raise PassError(f"a pass is found by its name, not by {name!r}", fix="npu passes lists the names")
    passes = plugin_manager.get_plugins().passes
    if name not in passes:
        pipelines = plugin_manager.get_plugins().pipelines
        if name in pipelines:
            raise PassError(f"{name!r} is a pipeline, not a pass", fix=f"passes_of({name!r}) are its passes")
        raise PassError(
            f"there is no pass {name!r}{did_you_mean(name, (*passes, *pipelines))}",
            fix=install_hint("pipelines", name) or "npu passes lists them",
        )
    if not (isinstance(passes[name], type) and issubclass(passes[name], Pass)):
        raise PassError(
            f"{name!r} is not a pass but {passes[name]!r}",
            where=origin_of(name),
            fix="the hook npu_passes returns classes derived from npu_passes.Pass",
        )
    return passes[name]  # type: ignore[no-any-return]


def find_pipeline(name: str) -> Pipeline:
    """Return the pipeline called ``name``.

    Raises:
        PassError: No plugin provides it.
    """
    pipelines = plugin_manager.get_plugins().pipelines
    if not isinstance(name, str):
        raise PassError(
            f"a pipeline is given by its name, not {name!r}", fix="PassManager(passes).run(graph) runs passes"
        )
    if name not in pipelines:
        fix = install_hint("pipelines", name) or "npu passes lists them"
        if name in plugin_manager.get_plugins().passes:
            fix = f"it is a pass: PassManager({name!r}), or --passes {name}"
        elif set(name) & set(",{"):
            fix = f"to run passes, PassManager({name!r}).run(graph), or --passes"
        raise PassError(f"there is no pipeline {name!r}{did_you_mean(name, pipelines)}", fix=fix)
    return pipelines[name]  # type: ignore[no-any-return]
