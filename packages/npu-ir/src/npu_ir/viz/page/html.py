"""Assembly of a page: its data, scripts and styles in one file that needs no network."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_ir.diff.graph_diff import GraphDiff
from npu_ir.errors import VisualizationError
from npu_ir.graph.requirement import require_graph, require_path
from npu_ir.serial.atomic_write import write_file, writing
from npu_ir.viz.captions import make_printable
from npu_ir.viz.page.difference import diff_documents, diff_summary
from npu_ir.viz.page.document import GraphDocument
from npu_ir.viz.page.overlays import place_overlays, read_overlays

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph
_SCRIPTS = (
    "model",
    "texts",
    "layout",
    "routes",
    "overlays",
    "palette",
    "painter",
    "view",
    "details",
    "search",
    "legend",
    "main",
)
_FRAME_HEIGHT_PX = 640
# A notebook keeps every page that it shows: larger graphs are named only.
_MAX_NOTEBOOK_NODES = 20_000


def to_html(
    item: Graph | GraphDiff, *, overlays: Sequence[str | os.PathLike[str] | Mapping[str, Any]] = ()
) -> str:
    """Return a page to explore a graph, or both graphs of a difference side by side.

    The page is one file without references to others. Modules are closed boxes that open on a click.

    Args:
        item: A graph, or the difference of two (`diff_ir`).
        overlays: Measurements to colour boxes by: files that ``npu profile``, ``npu compare`` and ``npu
            explain`` write with ``--json``, or the same as plain data: ``to_dict()`` of a profile, a
            comparison, an explanation or a memory plan.

    Raises:
        VisualizationError: An overlay cannot be read, is none of these, or most of its nodes are not in the
            graph.
    """
    if isinstance(overlays, (str, os.PathLike, Mapping)):
        raise VisualizationError("overlays= is one measurement", fix="give a list of them: overlays=[...]")
    data = [read_overlays(overlay) for overlay in overlays]
    if isinstance(item, GraphDiff):
        documents = diff_documents(item)
        title, summary = f"{item.a.name} → {item.b.name}", diff_summary(item)
    else:
        require_graph(item)
        documents = [GraphDocument(item)]
        title, summary = item.name, ""
    graphs = [document.to_dict() for document in documents]
    for graph, placed in zip(graphs, place_overlays(documents, data), strict=True):
        graph["overlays"] = placed
    return _assemble(make_printable(title, 120), {"graphs": graphs, "summary": summary})


def write_html(
    item: Graph | GraphDiff,
    path: str | os.PathLike[str],
    *,
    overlays: Sequence[str | os.PathLike[str] | Mapping[str, Any]] = (),
) -> Path:
    """Write the page of `to_html` to a file and return its path; after an error, an old file is unchanged.

    Raises:
        VisualizationError: As for `to_html`, or the file cannot be written.
    """
    file = require_path(path, VisualizationError)
    content = to_html(item, overlays=overlays).encode()
    with writing("the page", path, VisualizationError):
        write_file(file, content)
    return file


def notebook_html(item: Graph | GraphDiff) -> str:
    """Return the page in a frame, for the output of a notebook; the name alone of a very large graph."""
    sides = (item.a, item.b) if isinstance(item, GraphDiff) else (item,)
    if sum(map(len, sides)) > _MAX_NOTEBOOK_NODES:
        return f"<pre>{html.escape(make_printable(repr(item), 400))}</pre>"
    return (
        f'<iframe srcdoc="{html.escape(to_html(item))}" title="graph" '
        f'style="width:100%;height:{_FRAME_HEIGHT_PX}px;border:0;border-radius:8px"></iframe>'
    )


def _assemble(title: str, data: dict[str, Any]) -> str:
    assets = resources.files(__package__) / "assets"
    # In a script element only "<" can end the text early, or begin a comment.
    parts = {
        "title": html.escape(title),
        "style": (assets / "page.css").read_text("utf-8"),
        "engine": (assets / "dagre.min.js").read_text("utf-8"),
        "script": "\n".join((assets / f"{name}.js").read_text("utf-8") for name in _SCRIPTS),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    page = (assets / "page.html").read_text("utf-8")
    pieces = page.split("{{")  # each placeholder once, so that no content is taken for one
    return pieces[0] + "".join(
        parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:])
    )
