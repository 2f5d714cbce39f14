"""Base class of passes, and the tolerances that they promise."""

from __future__ import annotations

import dataclasses
import math
import re
from contextlib import AbstractContextManager
from typing import ClassVar

import torch
from typing_extensions import dataclass_transform

from npu_ir import Graph, OpNode
from npu_passes.core import journal
from npu_passes.core.edit import Edit, open_rewrite
from npu_passes.core.options import check_option_types, format_options
from npu_passes.errors import PassError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclasses.dataclass(frozen=True, slots=True)
class Numerics:
    """Tolerance that a pass promises for results.

    Attributes:
        rtol: Largest difference, relative to the largest magnitude of the tensor; 0.0 if results are
            equal, with NaN equal to NaN and 0.0 to -0.0.
    """

    rtol: float = 0.0

    def __post_init__(self) -> None:
        is_number = isinstance(self.rtol, (int, float))
        if not (is_number and math.isfinite(self.rtol) and self.rtol >= 0):
            raise PassError(
                f"a tolerance is finite and not negative, not {self.rtol!r}", fix="such as within(1e-5)"
            )

    @property
    def is_exact(self) -> bool:
        return self.rtol == 0.0

    def allowed_difference(self, dtype: torch.dtype) -> float:
        """Return the allowed difference for a dtype, relative to the largest magnitude of the tensor.

        Exact results may not differ. Dtypes coarser than float32 are allowed 16 of their rounding units
        more, up to 0.25: layers that round differently add up to that much.
        """
        unit = torch.finfo(dtype).eps
        is_coarse = unit > torch.finfo(torch.float32).eps
        return self.rtol + min(16 * unit, 0.25) if self.rtol and is_coarse else self.rtol

    def __str__(self) -> str:
        return "exact" if self.is_exact else f"within {self.rtol:g}"


EXACT = Numerics()


def within(rtol: float) -> Numerics:
    """Return a tolerance for float32 results of ``rtol``, relative to the tensor's largest magnitude."""
    return Numerics(rtol)


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """A rewrite of graphs. Subclasses become frozen dataclasses: their annotated fields are options.

    Options are bools, numbers, strings or tuples of strings, each with a default; the section "Attributes:"
    of the docstring describes them. Equality, repr, the text form (`npu_passes.parse_passes`) and the
    reference pages are derived from them. A subclass checks further conditions in ``__post_init__``, which
    calls ``super().__post_init__()`` and raises `PassError`.

    Attributes:
        name: Kebab-case, and unique among all passes of all plugins.
        numerics: Promised tolerance of results: ``EXACT``, or ``within(rtol)``.
        before: Names of passes that run later than this one, where both are in a pipeline.
        after: Names of passes that run earlier.
        pipelines: Named pipelines that the pass joins when its plugin is installed.
        is_idempotent: Whether a second run right after the first changes nothing; it is then skipped.
    """

    name: ClassVar[str]
    numerics: ClassVar[Numerics] = EXACT
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    pipelines: ClassVar[tuple[str, ...]] = ()
    is_idempotent: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name = getattr(cls, "name", None)
        if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise PassError(
                f"{cls.__name__}: {name!r} is not a valid pass name", fix="use lower-case words: my-rewrite"
            )
        for field in ("before", "after", "pipelines"):
            names = getattr(cls, field)
            if not (isinstance(names, tuple) and all(isinstance(item, str) for item in names)):
                raise PassError(f"{cls.__name__}.{field} is a tuple of names, not {names!r}")
            if name in names and field != "pipelines":
                raise PassError(f"{cls.__name__}.{field} names the pass itself", fix="name other passes")
        if not isinstance(cls.numerics, Numerics):
            raise PassError(
                f"{cls.__name__}.numerics is {cls.numerics!r}", fix="write EXACT, or within(1e-5)"
            )
        doc = cls.__dict__.get("__doc__") or ""
        try:
            dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        except ValueError as error:
            raise PassError(
                f"{cls.__name__}: {error}", fix="lists of strings are tuples: ('a', 'b')"
            ) from error
        cls.__doc__ = doc  # where there is none, dataclass puts the signature there

    def __post_init__(self) -> None:
        if not isinstance(getattr(self, "name", None), str):
            raise PassError(
                f"{type(self).__name__} has no name", fix='give the class one: name = "my-rewrite"'
            )
        check_option_types(self, self.name)

    def run(self, graph: Graph) -> bool:
        """Rewrite ``graph``; return True if and only if it was edited."""
        raise PassError(
            f"{type(self).__name__} does not say what to do with graph {graph.name!r}",
            fix="define run(self, graph), which returns True exactly when it edited the graph",
        )

    def requires(self, graph: Graph) -> str | None:  # noqa: ARG002 - for subclasses
        """Return the precondition that ``graph`` violates; None if it meets all."""
        return None

    def ensures(self, graph: Graph) -> str | None:  # noqa: ARG002 - for subclasses
        """Return the postcondition that ``graph`` violates after the pass; None if it meets all."""
        return None

    def rewrite(self, graph: Graph, rule: str, *nodes: OpNode) -> AbstractContextManager[Edit]:
        """Begin one rewrite of ``nodes``; new nodes are inserted before the last of them.

        New nodes carry the provenance of all of ``nodes``. On exit, those of ``nodes`` that nothing reads are
        erased, and the rewrite is recorded in the journal. Nodes that draw random numbers or have other
        effects are erased only if they were replaced.

        Args:
            graph: The graph to rewrite.
            rule: Name of the rewrite, in a word or two.
            *nodes: The nodes to rewrite, in the order of the graph.
        """
        return open_rewrite(self.name, graph, rule, nodes)

    def refuse(self, node: OpNode, reason: str, rule: str = "") -> None:
        """Record why a rewrite of ``node`` that looked possible is not made; see ``npu opt --explain``."""
        refusal = journal.Refusal(self.name, rule, node.name, reason, journal.region_path(node.graph))
        journal.current_journal().refuse(refusal)

    def __str__(self) -> str:
        """Return the text form, with non-default options: ``constant-folding{max_bytes=1024}``."""
        return f"{self.name}{format_options(self)}"
