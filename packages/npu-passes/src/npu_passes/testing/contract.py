"""The contract of passes as tests, one per promise."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, TypeAlias

from npu_ir import Graph, NpuError
from npu_ir.testing import COMMON_OPERATORS, Sample, operator_samples, random_samples
from npu_passes.core.base import Pass
from npu_passes.core.pass_text import parse_passes
from npu_passes.errors import PassError
from npu_passes.manager.checked_mode import Checked
from npu_passes.testing.check import check_pass, check_text_form

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module

_SHOWN = 4

AnyPass: TypeAlias = "Pass | type[Pass]"


class PassContract:
    """Contract tests for passes: subclass it and set ``passes``, for pytest to collect.

    Override `graphs` to return graphs that they change. What passes promise is also tested on PyTorch's
    samples of ``operators`` and on ``random_graphs``. A failing test raises `PassError`, which names the
    pass, the broken promise and the graph.

    Attributes:
        passes: A pass, its class, or its name with options, such as ``"my-pass{limit=3}"``; or several.
        operators: The names of PyTorch's operators to take samples of, as `npu_ir.testing.operators` lists
            them; none if empty.
        samples_per_operator: How many samples of each.
        random_graphs: How many random graphs.
    """

    passes: ClassVar[AnyPass | str | Sequence[AnyPass | str]]
    operators: ClassVar[Sequence[str]] = COMMON_OPERATORS
    samples_per_operator: ClassVar[int] = 1
    random_graphs: ClassVar[int] = 20

    def graphs(self) -> Iterable[Graph]:
        """Return graphs, of which each of the passes changes at least one."""
        return ()

    @classmethod
    def promises(cls) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the name and function of each test."""
        yield from ((name, getattr(cls(), name)) for name in dir(cls) if name.startswith("test_"))

    def test_it_is_described(self) -> None:
        for item in self._items():
            if not (type(item).__doc__ or "").strip() or type(item).__doc__ == Pass.__doc__:
                raise PassError(
                    f"{item.name} has no description",
                    where=f"{type(item).__module__}.{type(item).__name__}",
                    fix="give the class a docstring: npu passes shows its first line",
                )

    def test_options_survive_their_text_form(self) -> None:
        for item in self._items():
            check_text_form(item)

    def test_graphs_that_it_is_made_for_are_changed(self) -> None:
        graphs = list(self.graphs())
        if not graphs:
            raise unittest.SkipTest("there is no graph that it is made for: override graphs()")
        for item in self._items():
            if check_pass(item, graphs) == 0:
                raise PassError(
                    f"{item} changes none of the {len(graphs)} graphs",
                    where=", ".join(repr(graph.name) for graph in graphs),
                    fix="have graphs() return one that it changes; npu opt --explain says what it refuses",
                )

    def test_samples_of_operators_compute_the_same(self) -> None:
        self._require_kept(list(operator_samples(self.operators, count=self.samples_per_operator)))

    def test_random_graphs_compute_the_same(self) -> None:
        self._require_kept(list(random_samples(self.random_graphs)))

    def _require_kept(self, samples: Sequence[Sample]) -> None:
        for item in self._items():
            problems = [text for sample in samples if (text := _problem(item, sample)) is not None]
            if not problems:
                continue
            more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
            raise PassError(
                "\n  ".join(
                    [f"{item} fails on {len(problems)} of {len(samples)} graphs:", *problems[:_SHOWN], *more]
                ),
                where=f"class {type(item).__module__}.{type(item).__name__}",
                fix="rewrite only what computes the same: check ops, attributes, shapes and dtypes first",
            )

    def _items(self) -> list[Pass]:
        given = self.passes
        listed = [given] if isinstance(given, (str, Pass, type)) else list(given)
        items: list[Pass] = []
        for item in listed:
            if isinstance(item, str):
                items += parse_passes(item)
            else:
                items.append(item() if isinstance(item, type) else item)
        for item in items:
            if not isinstance(item, Pass):
                raise PassError(
                    f"{item!r} is not a pass", where="passes", fix="give a class derived from Pass, or a name"
                )
        return items


def _problem(item: Pass, sample: Sample) -> str | None:
    """Return the promise that a pass breaks on a sample; None if it breaks none, or is not made for it."""
    if item.requires(sample.graph) is not None:
        return None
    data = Checked(weights=sample.weights, calls=[(sample.args, {})])
    try:
        check_pass(item, sample.graph, data=data)
    except NpuError as error:
        return f"{sample.name}: {error.message}"
    return None
