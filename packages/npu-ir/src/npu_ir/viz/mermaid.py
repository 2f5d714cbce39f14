"""Drawings as mermaid flowcharts, which Markdown viewers show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from npu_ir.viz.diagram import (
    EDGE_STYLES,
    FRAME,
    FRAME_FILL,
    LINE,
    STYLES,
    TEXT,
    Box,
    BoxKind,
    Diagram,
    EdgeKind,
    Frame,
)

# Characters with a meaning in mermaid, Markdown (not an underscore within a word, nor a colon before a
# space) or HTML.
_SPECIAL = re.compile(r"[^\w ,.=+/():_-]|(?<![^\W_])_|_(?![^\W_])|:(?=\S)")
# Mermaid decodes these and then reads line breaks, formulas and icons, unless a zero-width space follows.
_STILL_SPECIAL = frozenset("\\$:")
# Titles take no entity codes: full-width characters replace these.
_TITLE = str.maketrans({"<": "\uff1c", ">": "\uff1e", "&": "\uff06"})
# A label that starts like a Markdown list is rendered as one.
_LIST = re.compile(r"^(\s*\d*)([-+.)])(?=\s)")


def format_mermaid(diagram: Diagram) -> str:
    title = f"{diagram.title}: {diagram.summary}".translate(_TITLE)
    lines = [
        "---",
        f"title: {json.dumps(title, ensure_ascii=False)}",
        "---",
        "flowchart TD",
        *_items(diagram.items, 1),
    ]
    for edge in diagram.edges:
        label = f"|{_quote(edge.label)}| " if edge.label else ""
        lines.append(f"  {edge.source} --> {label}{edge.target}")
    lines += _styles(diagram)
    return "\n".join(lines) + "\n"


def _items(items: tuple[Box | Frame, ...], level: int) -> Iterator[str]:
    indent = "  " * level
    for item in items:
        if isinstance(item, Box):
            before, after = STYLES[item.kind].mermaid
            label = "<br>".join(map(_escape, (item.title, *item.details)))
            yield f'{indent}{item.id}{before}"{label}"{after}:::{_class_name(item.kind)}'
        else:
            yield f"{indent}subgraph {item.id}[{_quote(item.title)}]"
            yield from _items(item.items, level + 1)
            yield f"{indent}end"


def _styles(diagram: Diagram) -> Iterator[str]:
    for kind in diagram.kinds:
        style = STYLES[kind]
        dashes = ",stroke-dasharray:4" if style.dashed else ""
        yield f"  classDef {_class_name(kind)} fill:{style.fill},stroke:{style.stroke},color:{TEXT}{dashes}"
    if diagram.frames:
        yield f"  classDef frame fill:{FRAME_FILL},stroke:{FRAME},color:{TEXT}"
        yield f"  class {','.join(frame.id for frame in diagram.frames)} frame"
    if diagram.edges:
        yield f"  linkStyle default stroke:{LINE}"
    for index, edge in enumerate(diagram.edges):
        if edge.kind is not EdgeKind.PLAIN:
            looks = EDGE_STYLES[edge.kind]
            yield f"  linkStyle {index} stroke:{looks.colour}{',stroke-dasharray:4' if looks.dashed else ''}"


def _class_name(kind: BoxKind) -> str:
    return kind.name.lower()


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'


def _escape(text: str) -> str:
    """Return ``text`` with mermaid's entity codes for special characters."""
    coded = _SPECIAL.sub(lambda match: _entity_code(match[0]), text)
    return _LIST.sub(lambda match: match[1] + _entity_code(match[2]), coded)


def _entity_code(char: str) -> str:
    return f"#{ord(char)};#8203;" if char in _STILL_SPECIAL else f"#{ord(char)};"
