"""Capturing a model without weights, and whose fault it is where that fails."""

import contextlib
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_map

import npu_ir
from npu_ir import Graph
from tests.models.case import Case
from tests.support.coverage_runs.outcomes import first_line


class ExportRefusesError(Exception):
    """torch.export itself gives no program; the message is its own."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """A graph and how it came about.

    Attributes:
        graph: The graph.
        copied: Why the model could not be built on ``meta`` and was copied there; "" where it was built.
        export_s: Seconds in torch.export.
        conversion_s: Seconds in the rest of `extract_ir`.
    """

    graph: Graph
    copied: str
    export_s: float
    conversion_s: float


def extract(case: Case, sizes: tuple[str, ...] = ()) -> Extraction:
    """Return the graph of a model without weights, called with arguments without content.

    Args:
        case: The model.
        sizes: Those that vary.

    Raises:
        ExportRefusesError: There is no program, with real weights and arguments neither.
        Exception: Any other reason why there is no graph.
    """
    shapes = case.dynamic_shapes(sizes) if sizes else None
    try:
        with torch.device("meta"):
            model = case.build().eval()
        return _extract(case, model, shapes, "")
    except Exception as error:  # noqa: BLE001 - code that reads the content of a tensor is given a copy
        reason = first_line(error)
    model = case.build().eval()
    try:
        return _extract(case, copy.deepcopy(model).to("meta"), shapes, reason)
    except Exception as error:
        refusal = _refusal(case, model, shapes)
        if refusal:
            raise ExportRefusesError(refusal) from error
        raise


def _refusal(case: Case, model: torch.nn.Module, shapes: Any) -> str:
    """Return why torch.export gives no program of a real model; "" where it does."""
    try:
        torch.export.export(model, (), case.examples(), dynamic_shapes=shapes, strict=False)
    except Exception as refusal:  # noqa: BLE001 - this is what is asked for
        return first_line(refusal)
    return ""


def _extract(case: Case, model: torch.nn.Module, shapes: Any, copied: str) -> Extraction:
    kwargs = tree_map(lambda tensor: tensor.to("meta"), case.examples())
    with _export_clock() as clock:
        start = time.perf_counter()
        options = {"dynamic_shapes": shapes} if shapes else {}
        graph = npu_ir.extract_ir(model, (), kwargs, name=case.name, **options)
        total = time.perf_counter() - start
    return Extraction(graph, copied, sum(clock), total - sum(clock))


@contextlib.contextmanager
def _export_clock() -> Iterator[list[float]]:
    """Collect how many seconds each call of torch.export.export takes."""
    seconds: list[float] = []
    export = torch.export.export

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return export(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - start)

    with mock.patch.object(torch.export, "export", timed):
        yield seconds
