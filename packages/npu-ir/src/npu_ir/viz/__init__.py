"""Drawings of graphs and of differences: Mermaid, DOT, and SVG without any other program.

In: a graph or a `GraphDiff`. Out: text of a drawing. Open `draw.py` first, then `build.py` (graph to
diagram) and `layout.py` (positions of boxes).
"""

from npu_ir.viz.draw import draw, draw_diff, to_dot, to_mermaid, to_svg

__all__ = ["draw", "draw_diff", "to_dot", "to_mermaid", "to_svg"]
