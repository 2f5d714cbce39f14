"""Drawings of graphs and of differences: Mermaid, DOT, and SVG without any other program.

In: a graph or a `GraphDiff`. Out: text of a drawing. The names below are the only door: other folders import
no module of this one. Open `drawings.py` first, then `build.py` (graph to diagram) and `layout.py`.
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

__all__ = [
    "DEFAULT_MAX_NODES",
    "DRAWING_SUFFIXES",
    "draw",
    "draw_diff",
    "require_format",
    "to_dot",
    "to_mermaid",
    "to_svg",
]
