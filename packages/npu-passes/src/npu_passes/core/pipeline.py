"""Pipelines: named sequences of passes, as text."""

from __future__ import annotations

from dataclasses import dataclass


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
_CONSTANTS = "hoist-fill,constant-folding"
TRAIN = f"{_GRADIENTS},{_CONSTANTS},fuse-optimizer"
PIPELINES = (
    Pipeline("minimal", MINIMAL, "Exact clean-up: the same ops on the same values, fewer of them."),
    Pipeline("default", DEFAULT, "Clean-up, folding of norms and biases into convolutions, and constants."),
    Pipeline(
        "fuse",
        f"{DEFAULT},fuse-attention,fuse-add-norm,fuse-linear-activation,gather-gradients,fuse-loss-gradient,"
        "fuse-linear-backward",
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
