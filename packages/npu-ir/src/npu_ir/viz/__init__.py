"""Drawings of graphs and of differences: Mermaid, DOT, SVG without any other program, and HTML pages.

In: a graph or a `GraphDiff`. Out: text of a drawing. The names below are the only door: other folders import
no module of this one. Open `drawings.py` first, then `build.py` (graph to diagram) and `layout.py`; pages are
in `page/`.
"""

from npu_ir.viz.drawings import (
    DEFAULT_MAX_NODES,
    DRAWING_SUFFIXES,
    draw,
    draw_diff,
    require_format,
    to_dot,
    to_mermaid,
    to_svg,
)
from npu_ir.viz.page.html import notebook_html, to_html, write_html

__all__ = [
    "DEFAULT_MAX_NODES",
    "DRAWING_SUFFIXES",
    "draw",
    "draw_diff",
    "notebook_html",
    "require_format",
    "to_dot",
    "to_html",
    "to_mermaid",
    "to_svg",
    "write_html",
]
