"""Drawings of graphs: mermaid, graphviz, and SVG without an external program."""

from npu_ir.viz.draw import draw, draw_diff, to_dot, to_mermaid, to_svg

__all__ = ["draw", "draw_diff", "to_dot", "to_mermaid", "to_svg"]
