"""Drawings as text or files, in the format that the file's suffix names."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from npu_ir.errors import VisualizationError
from npu_ir.serial.atomic_write import staged_files
from npu_ir.viz.build import DEFAULT_MAX_NODES, build_diagram
from npu_ir.viz.diagram import Diagram
from npu_ir.viz.diff_diagram import build_diff_diagram
from npu_ir.viz.dot import format_dot
from npu_ir.viz.mermaid import format_mermaid
from npu_ir.viz.svg import format_svg

if TYPE_CHECKING:
    from npu_ir.diff import GraphDiff
    from npu_ir.graph.graph import Graph

_TIMEOUT_S = 120
_GRAPHVIZ_FORMATS = ("svg", "png", "pdf")
_TEXT_FORMATS = {"svg": format_svg, "dot": format_dot, "gv": format_dot, "mmd": format_mermaid}
_INSTALL = "install graphviz (https://graphviz.org/download), or write an .svg file"


def to_mermaid(
    graph: Graph, *, max_nodes: int = DEFAULT_MAX_NODES, depth: int | None = None, weights: bool = False
) -> str:
    """Return a drawing of ``graph`` as a mermaid flowchart, for Markdown pages.

    Nodes of large graphs are grouped by the module that ran them, as deep as ``max_nodes`` allows. Where
    that does not suffice, repeated blocks are shown once, and then the end is left out, with a note.

    Args:
        graph: Any graph.
        max_nodes: Maximum number of boxes for nodes.
        depth: Open modules to this depth: 0 is one box, 1 the top modules; None for as deep as fits.
        weights: Draw parameters, buffers, optimizer state and constants as boxes, not only as a line in
            the boxes of their readers.

    Raises:
        VisualizationError: ``max_nodes`` is less than 2 or ``depth`` less than 0.
    """
    return format_mermaid(build_diagram(graph, max_nodes, depth, weights))


def to_dot(
    graph: Graph, *, max_nodes: int = DEFAULT_MAX_NODES, depth: int | None = None, weights: bool = False
) -> str:
    """Return a drawing of ``graph`` in DOT, the graphviz language; arguments as for `to_mermaid`."""
    return format_dot(build_diagram(graph, max_nodes, depth, weights))


def to_svg(
    graph: Graph, *, max_nodes: int = DEFAULT_MAX_NODES, depth: int | None = None, weights: bool = False
) -> str:
    """Return a drawing of ``graph`` as an SVG image, with a layout computed without graphviz.

    Arguments as for `to_mermaid`.
    """
    return format_svg(build_diagram(graph, max_nodes, depth, weights))


def draw(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    max_nodes: int = DEFAULT_MAX_NODES,
    depth: int | None = None,
    weights: bool = False,
) -> Path:
    """Write a drawing of ``graph`` and return its path; after an error, an old file is unchanged.

    The layout of an ``.svg`` is by graphviz if it is installed, else by `to_svg`; ``.png`` and ``.pdf`` need
    graphviz; ``.dot`` or ``.gv`` and ``.mmd`` (mermaid) are text. Other arguments as for `to_mermaid`.

    Raises:
        VisualizationError: The suffix is none of these, graphviz is needed and is missing or
            fails, the file cannot be written, or another argument is invalid.
    """
    format = require_format(Path(path))
    return _write(build_diagram(graph, max_nodes, depth, weights), Path(path), format)


def draw_diff(diff: GraphDiff, path: str | os.PathLike[str], *, max_nodes: int = DEFAULT_MAX_NODES) -> Path:
    """Write a drawing of the difference of two graphs and return its path.

    One picture shows both: removed nodes are red and dashed, added ones green, changed ones amber, and the
    rest grey. Unchanged nodes that are not next to a change are grouped.

    Args:
        diff: The result of `npu_ir.diff_ir`.
        path: Formats as for `draw`.
        max_nodes: Maximum number of boxes for nodes.

    Raises:
        VisualizationError: As for `draw`.
    """
    format = require_format(Path(path))
    return _write(build_diff_diagram(diff, max_nodes), Path(path), format)


def _write(diagram: Diagram, path: Path, format: str) -> Path:
    content = _render(diagram, format)
    try:
        with staged_files(path.parent) as files:
            files.write(lambda file: (file.write(content), path.name)[1])
    except OSError as error:
        raise VisualizationError(f"cannot write the drawing: {error.strerror}", where=str(path)) from error
    return path


def require_format(path: Path) -> str:
    """Return the format that the suffix of a drawing names.

    Raises:
        VisualizationError: No format has this suffix.
    """
    format = path.suffix.removeprefix(".").lower()
    if format not in (*_GRAPHVIZ_FORMATS, *_TEXT_FORMATS):
        raise VisualizationError(
            f"no drawing is written to a file that ends in {path.suffix!r}",
            where=str(path),
            fix="use .svg, .png, .pdf, .dot, .gv or .mmd",
        )
    return format


def _render(diagram: Diagram, format: str) -> bytes:
    program = shutil.which("dot") if format in _GRAPHVIZ_FORMATS else None
    if program is not None:
        return _run_graphviz(program, format_dot(diagram), format)
    if format not in _TEXT_FORMATS:
        raise VisualizationError(f"a .{format} needs graphviz: there is no program 'dot'", fix=_INSTALL)
    return _TEXT_FORMATS[format](diagram).encode()


def _run_graphviz(program: str, source: str, format: str) -> bytes:
    try:
        process = subprocess.run(
            [program, f"-T{format}"],
            input=source.encode(),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise VisualizationError(
            f"graphviz did not finish in {_TIMEOUT_S} seconds", where=program, fix="use a smaller max_nodes"
        ) from error
    except subprocess.CalledProcessError as error:
        problem = error.stderr.decode(errors="replace").strip()[:500]
        raise VisualizationError(f"graphviz failed: {problem}", where=program, fix=_INSTALL) from error
    except OSError as error:
        raise VisualizationError(
            f"graphviz cannot be run: {error.strerror}", where=program, fix=_INSTALL
        ) from error
    return process.stdout
