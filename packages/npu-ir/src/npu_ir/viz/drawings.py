"""Drawings as text or files, in the format that the file's suffix names."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from npu_ir.errors import VisualizationError
from npu_ir.graph.requirement import require_path
from npu_ir.serial.atomic_write import write_file, writing
from npu_ir.viz.build import build_diagram
from npu_ir.viz.diagram import Diagram
from npu_ir.viz.diff_diagram import build_diff_diagram
from npu_ir.viz.dot import format_dot
from npu_ir.viz.mermaid import format_mermaid
from npu_ir.viz.svg import format_svg

if TYPE_CHECKING:
    from npu_ir.diff import GraphDiff
    from npu_ir.graph.graph import Graph

DEFAULT_MAX_NODES = 60
_TIMEOUT_S = 120
_GRAPHVIZ_SUFFIXES = (".png", ".pdf")
_TEXT_FORMATS = {".svg": format_svg, ".dot": format_dot, ".gv": format_dot, ".mmd": format_mermaid}
DRAWING_SUFFIXES = (".svg", *_GRAPHVIZ_SUFFIXES, ".dot", ".gv", ".mmd")
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

    An ``.svg`` is that of `to_svg`, on every machine; ``.png`` and ``.pdf`` need graphviz; ``.dot`` or
    ``.gv`` and ``.mmd`` (mermaid) are text. Other arguments as for `to_mermaid`.

    Raises:
        VisualizationError: The suffix is none of these, graphviz is needed and is missing or
            fails, the file cannot be written, or another argument is invalid.
    """
    file = require_path(path, VisualizationError)
    require_format(file)
    return _write(build_diagram(graph, max_nodes, depth, weights), file)


def draw_diff(diff: GraphDiff, path: str | os.PathLike[str], *, max_nodes: int = DEFAULT_MAX_NODES) -> Path:
    """Write a drawing of the difference of two graphs and return its path.

    One picture shows both: removed nodes are red and dashed, added ones green, changed ones amber, and the
    rest grey. Unchanged nodes that are not next to a change are grouped, so that at most ``max_nodes`` boxes
    are drawn. Formats are those of `draw`.

    Raises:
        VisualizationError: As for `draw`.
    """
    file = require_path(path, VisualizationError)
    require_format(file)
    return _write(build_diff_diagram(diff, max_nodes), file)


def _write(diagram: Diagram, path: Path) -> Path:
    content = _render(diagram, path.suffix.lower())
    with writing("the drawing", path, VisualizationError):
        write_file(path, content)
    return path


def require_format(path: Path) -> None:
    """Raise a `VisualizationError` if no format of drawings has the suffix of ``path``."""
    if path.suffix.lower() not in DRAWING_SUFFIXES:
        raise VisualizationError(
            f"no drawing is written to a file that ends in {path.suffix!r}",
            where=str(path),
            fix="use .svg, .png, .pdf, .dot, .gv or .mmd",
        )


def _render(diagram: Diagram, suffix: str) -> bytes:
    if suffix in _TEXT_FORMATS:
        return _TEXT_FORMATS[suffix](diagram).encode()
    program = shutil.which("dot")
    if program is None:
        raise VisualizationError(f"a {suffix} needs graphviz: there is no program 'dot'", fix=_INSTALL)
    return _run_graphviz([program, f"-T{suffix[1:]}"], format_dot(diagram).encode())


def _run_graphviz(command: list[str], source: bytes) -> bytes:
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        problem, fix = f"did not finish in {_TIMEOUT_S} seconds", "use a smaller max_nodes"
        if isinstance(error, subprocess.CalledProcessError):
            problem, fix = f"failed: {error.stderr.decode(errors='replace').strip()[:500]}", _INSTALL
        elif isinstance(error, OSError):
            problem, fix = f"cannot be run: {error.strerror}", _INSTALL
        raise VisualizationError(f"graphviz {problem}", where=command[0], fix=fix) from error
    return done.stdout
