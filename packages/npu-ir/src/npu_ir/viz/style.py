"""Styles of the kinds of boxes and edges, for every output format.

Text is dark on light fills, with a contrast of at least 7 to 1 (WCAG 2.1, level AAA); kinds differ in
shape as well as in colour.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir.viz.diagram import BoxKind, EdgeKind

TEXT = "#1f2328"
MUTED = "#374151"
LINE = "#6b7280"
FRAME = "#c3cad3"
FRAME_FILL = "#f6f8fa"
FONTS = "Helvetica, Arial, DejaVu Sans, sans-serif"


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a kind of box.

    Attributes:
        fill: Colour inside.
        stroke: Colour of the border.
        svg: Shape in drawings of `npu_ir.viz.svg`.
        dot: Shape of a graphviz node, and its style besides filled.
        mermaid: Delimiters around the text of a mermaid node.
        dashed: The border is dashed.
    """

    fill: str
    stroke: str
    svg: str
    dot: tuple[str, ...]
    mermaid: tuple[str, str]
    dashed: bool = False


STYLES = {
    BoxKind.INPUT: Style("#d8f3dc", "#2d6a4f", "pill", ("oval",), ("([", "])")),
    BoxKind.OP: Style("#ffffff", "#57606a", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.WEIGHTED: Style("#dbeafe", "#1d4ed8", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.MODULE: Style("#ede9fe", "#5b21b6", "double", ("box", "rounded"), ("[[", "]]")),
    BoxKind.PARAMETER: Style("#fef3c7", "#92400e", "note", ("note",), ("[(", ")]")),
    BoxKind.BUFFER: Style("#ffe4d6", "#9a3412", "note", ("note",), ("[(", ")]")),
    BoxKind.STATE: Style("#f3e8d2", "#713f12", "note", ("note",), ("[(", ")]")),
    BoxKind.CONSTANT: Style("#e5e7eb", "#374151", "note", ("note",), ("[/", "/]")),
    BoxKind.OUTPUT: Style("#cffafe", "#155e75", "pill", ("oval",), ("([", "])")),
    BoxKind.UPDATE: Style("#fce7f3", "#9d174d", "hexagon", ("box", "diagonals"), ("{{", "}}")),
    BoxKind.MORE: Style("#ffffff", "#57606a", "rounded", ("box", "rounded"), ("(", ")"), dashed=True),
    BoxKind.UNCHANGED: Style("#f3f4f6", "#9ca3af", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.REMOVED: Style("#fee2e2", "#b91c1c", "rounded", ("box", "rounded"), ("(", ")"), dashed=True),
    BoxKind.ADDED: Style("#dcfce7", "#15803d", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.CHANGED: Style("#fde68a", "#b45309", "double", ("box", "rounded"), ("[[", "]]")),
}


@dataclass(frozen=True, slots=True)
class EdgeStyle:
    """Style of a kind of edge: its colour, and dashed or solid."""

    colour: str
    dashed: bool = False


EDGE_STYLES = {
    EdgeKind.PLAIN: EdgeStyle(LINE),
    EdgeKind.REMOVED: EdgeStyle("#b91c1c", dashed=True),
    EdgeKind.ADDED: EdgeStyle("#15803d"),
}
