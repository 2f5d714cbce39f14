"""What a pass is.

```python
class DropAlias(Pass):
    \"\"\"Replace ``alias(x)`` by ``x``.\"\"\"

    name = "drop-alias"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of("aten.alias.default"))
        for node in found:
            with self.rewrite(graph, "alias", node) as edit:
                edit.replace(node.outputs[0], node.inputs[0])
        return bool(found)
```
"""

from __future__ import annotations

import dataclasses
import re
from contextlib import AbstractContextManager
from typing import ClassVar

from typing_extensions import dataclass_transform

from npu_ir import Graph, OpNode
from npu_passes.core import journal
from npu_passes.core.edit import Edit, rewriting
from npu_passes.core.numerics import EXACT, Numerics
from npu_passes.core.options import require_right_types
from npu_passes.errors import PassError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """A rewrite of graphs. Subclasses become frozen dataclasses: their annotated fields are options.

    Options are bools, numbers, strings or tuples of strings, each with a default; the section "Attributes:"
    of the docstring says what they do. Equality, repr, the text form (`npu_passes.parse_passes`) and the
    reference pages come from them. What else must hold of them, a subclass checks in ``__post_init__``: it calls
    ``super().__post_init__()``, and raises `PassError`.

    Attributes:
        name: Kebab-case, and unique among all passes of all plugins.
        numerics: What is promised of results: ``EXACT``, or ``within(rtol)``.
        before: The names of passes that come later than this one, where both are in a pipeline.
        after: The names of passes that come earlier.
        pipelines: The named pipelines that the pass joins when its plugin is installed.
        is_idempotent: Whether a second run right after the first changes nothing; it is then left out.
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
                f"{cls.__name__}: a pass is not called {name!r}", fix="use lower-case words: my-rewrite"
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
        require_right_types(self)

    def run(self, graph: Graph) -> bool:
        """Rewrite ``graph``; return True exactly when it was edited."""
        raise PassError(
            f"{type(self).__name__} does not say what to do with graph {graph.name!r}",
            fix="define run(self, graph), which returns True exactly when it edited the graph",
        )

    def requires(self, graph: Graph) -> str | None:  # noqa: ARG002 - for subclasses
        """Return what the graph lacks for this pass to run; None if nothing."""
        return None

    def ensures(self, graph: Graph) -> str | None:  # noqa: ARG002 - for subclasses
        """Return what the graph lacks though the pass has run; None if nothing."""
        return None

    def rewrite(self, graph: Graph, rule: str, *nodes: OpNode) -> AbstractContextManager[Edit]:
        """Begin one rewrite of ``nodes``, the last of which it takes the place of.

        Nodes that are made inside carry the provenance of all of them. In the end those of them that nothing
        reads any more are erased, and the journal has an entry. What draws random numbers or has other effects is
        erased if it was replaced.

        Args:
            graph: The graph that is rewritten.
            rule: What is done, in a word or two.
            *nodes: The nodes it is about, in the order of the graph.
        """
        return rewriting(self.name, graph, rule, nodes)

    def refuse(self, node: OpNode, reason: str, rule: str = "") -> None:
        """Say why a rewrite of ``node`` that looked possible is not made: ``npu opt --explain`` shows it."""
        journal.refuse(self.name, rule, node, reason)

    def __str__(self) -> str:
        """Return the text form: ``constant-folding{max_bytes=1024}``, with the options that differ from the defaults."""
        from npu_passes.core.pass_text import format_pass

        return format_pass(self)
