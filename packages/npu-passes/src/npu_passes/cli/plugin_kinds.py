"""Kinds of plugins that ``npu new-plugin`` writes; each has a folder of templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plugin.

    Attributes:
        content: The content of the distribution.
        dependencies: The distributions that it needs.
        tested_with: The distributions that its tests need besides.
        see: A command that shows what it provides; ``{name}`` stands for its name.
        install: Options of ``pip install``.
    """

    content: str
    dependencies: tuple[str, ...]
    tested_with: tuple[str, ...]
    see: str = ""
    install: str = "-e "


EXAMPLE = "example"  # the folder of templates without --kind
KINDS: Mapping[str, Kind] = {
    EXAMPLE: Kind(
        "an op, a pass and a pipeline",
        ("npu-ir", "npu-passes"),
        ("npu-passes[testing]",),
        "npu passes",
    ),
    "passes": Kind(
        "a pass and a pipeline",
        ("npu-ir", "npu-passes"),
        ("npu-passes[testing]",),
        "npu passes {name}-div-to-mul",
    ),
    "ops": Kind("an op that models call", ("npu-ir",), ("npu-ir[testing]",)),
    "executor": Kind(
        "an op with its own form in graphs: a conversion and an executor",
        ("npu-ir",),
        ("npu-ir[testing]",),
    ),
    "backend": Kind(
        "a backend",
        ("npu-ir",),
        ("npu-runtime[testing]",),
        "npu explain NET.json --backend {name}",
    ),
    # pip builds it with the header of npu-cuda that is installed.
    "kernels": Kind(
        "a library of kernels in C",
        ("npu-cuda", "npu-ir"),
        ("npu-cuda[testing]", "npu-runtime[testing]"),
        install="--no-build-isolation ",
    ),
}
