"""Drawings in DOT, the graphviz language."""

from __future__ import annotations

import html
from collections.abc import Iterator

from npu_ir.viz.diagram import (
    EDGE_STYLES,
    FRAME,
    FRAME_FILL,
    LINE,
    MUTED,
    STYLES,
    TEXT,
    Box,
    Diagram,
    Edge,
    EdgeKind,
    Frame,
)

_DEFAULTS = f"""\
  rankdir=TB; ranksep=0.4; nodesep=0.3; labelloc=t; fontname="Helvetica"; fontsize=16; fontcolor="{TEXT}";
  bgcolor=white; pad=0.3;
  node [fontname="Helvetica", fontsize=12, fontcolor="{TEXT}", margin="0.14,0.06"];
  edge [fontname="Helvetica", fontsize=10, fontcolor="{MUTED}", color="{LINE}", arrowsize=0.7];"""


def format_dot(diagram: Diagram) -> str:
    lines = [
        f"digraph {_quote(diagram.title)} {{",
        _DEFAULTS,
        f"  label=<{_format_heading(diagram)}>;",
        *_items(diagram.items, 1),
    ]
    lines += [f"  {edge.source} -> {edge.target}{_edge_attributes(edge)};" for edge in diagram.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _edge_attributes(edge: Edge) -> str:
    looks = [f"label={_quote(f' {edge.label} ')}"] if edge.label else []
    if edge.kind is not EdgeKind.PLAIN:
        style = EDGE_STYLES[edge.kind]
        looks.append(f'color="{style.colour}"{", style=dashed" if style.dashed else ""}')
    return f" [{', '.join(looks)}]" if looks else ""


def _items(items: tuple[Box | Frame, ...], level: int) -> Iterator[str]:
    indent = "  " * level
    for item in items:
        if isinstance(item, Box):
            yield f"{indent}{item.id} [{_box_attributes(item)}];"
            continue
        yield f"{indent}subgraph cluster_{item.id} {{"
        yield (
            f"{indent}  label={_quote(item.title)}; labeljust=l; fontsize=12; "
            f'style="rounded,filled"; color="{FRAME}"; fillcolor="{FRAME_FILL}";'
        )
        yield from _items(item.items, level + 1)
        yield f"{indent}}}"


def _box_attributes(box: Box) -> str:
    style = STYLES[box.kind]
    shape, *looks = style.dot
    looks += ["filled", "dashed"] if style.dashed else ["filled"]
    text = f"<B>{_escape_html(box.title)}</B>" + "".join(
        f'<BR/><FONT POINT-SIZE="10" COLOR="{MUTED}">{_escape_html(line)}</FONT>' for line in box.details
    )
    return (
        f'label=<{text}>, shape={shape}, style="{",".join(looks)}", fillcolor="{style.fill}", '
        f'color="{style.stroke}", tooltip={_quote(box.tooltip or box.title)}'
        f"{', peripheries=2' if style.svg == 'double' else ''}"
    )


def _format_heading(diagram: Diagram) -> str:
    """Return the title, the summary and the legend as an HTML-like table."""
    cells = "".join(
        f'<TD BGCOLOR="{STYLES[kind].fill}" COLOR="{STYLES[kind].stroke}" BORDER="1">'
        f'<FONT POINT-SIZE="10">{kind.value}</FONT></TD>'
        for kind in diagram.kinds
    )
    legend = f'<TR><TD><TABLE BORDER="0" CELLSPACING="6" CELLPADDING="3"><TR>{cells}</TR></TABLE></TD></TR>'
    return (
        f'<TABLE BORDER="0"><TR><TD><B>{_escape_html(diagram.title)}</B></TD></TR>'
        f'<TR><TD><FONT POINT-SIZE="11" COLOR="{MUTED}">{_escape_html(diagram.summary)}</FONT></TD></TR>'
        f"{legend if cells else ''}</TABLE>"
    )


def _escape_html(text: str) -> str:
    return html.escape(text) or "&#160;"  # graphviz rejects empty elements


def _quote(text: str) -> str:
    """Return a quoted DOT string; backslashes are doubled, because labels interpret escapes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
