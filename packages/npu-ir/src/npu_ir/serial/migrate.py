"""Compatibility of graph files with the PyTorch of this process: the report on a file, and its migration."""

from __future__ import annotations

import os

import torch

from npu_ir.errors import SerializationError
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import require_path
from npu_ir.plugins import plugin_manager
from npu_ir.serial.compatibility.comparison import calls_by_op, compare_op
from npu_ir.serial.compatibility.edits import migrate_rows
from npu_ir.serial.compatibility.report import CompatibilityReport, Verdict
from npu_ir.serial.load import open_document, read_graph_unchecked, translate_damage


def check_compatibility(path: str | os.PathLike[str]) -> CompatibilityReport:
    """Return how the ops of the graph saved at ``path`` have changed since, and what that means for it.

    Plugins are loaded: they register ops, too. `load_ir` reads a file whose calls mean what they did; and one
    with unknown ops, which cannot run.

    Raises:
        SerializationError: The file is missing, damaged, or from a newer version; says where.
    """
    path = require_path(path, SerializationError)
    plugin_manager.get_plugins()
    with open_document(path) as (document, place, tensors), translate_damage(path):
        graph = read_graph_unchecked(document, place, tensors)
        calls = calls_by_op(graph).items()
        ops = tuple(compare_op(name, document["schemas"].get(name), nodes) for name, nodes in calls)
    return CompatibilityReport(document["torch"], str(torch.__version__), ops)


def migrate_ir(path: str | os.PathLike[str]) -> Graph:
    """Return the graph saved at ``path`` with its calls edited so that they mean here what they did.

    An old default is written out, a renamed argument gets its new name, one that is gone is left out if it
    had its default, and an op that is gone is replaced by the one that computes the same, where that is
    known; `check_compatibility` lists these edits.

    Raises:
        SerializationError: An op has changed in a way that no edit makes up for, or the file is damaged.
    """
    path = require_path(path, SerializationError)
    report = check_compatibility(path)
    for op in report.ops:
        if op.verdict is Verdict.INCOMPATIBLE:
            change = next(change for change in op.changes if change.verdict is Verdict.INCOMPATIBLE)
            raise SerializationError(
                f"{op.op_type} cannot be migrated: {change.text}", where=str(path), fix=change.fix
            )
    with open_document(path) as (document, place, tensors), translate_damage(path):
        graph = read_graph_unchecked(migrate_rows(document, report.ops), place, tensors)
        graph.check()
    return graph
