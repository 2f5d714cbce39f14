"""Drawings as mermaid flowcharts, which Markdown viewers show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from npu_ir.viz.diagram import Box, BoxKind, Diagram, Frame
from npu_ir.viz.style import FRAME, FRAME_FILL, LINE, STYLES, TEXT

# What means something to mermaid, to Markdown (an underscore inside a word does not) or to HTML.
_SPECIAL = re.compile(r"[^\w ,.=+/()-]|(?<![^\W_])_|_(?![^\W_])")
# A label that starts like a list is taken for one.
_LIST = re.compile(r"^(\s*\d*)([-+.)])")


def format_mermaid(diagram: Diagram) -> str:
    """Return ``diagram`` as a mermaid flowchart."""
    lines = [
        "---",
        f"title: {json.dumps(f'{diagram.title}: {diagram.summary}', ensure_ascii=False)}",
        "---",
        "flowchart TD",
        *_items(diagram.items, 1),
    ]
    for edge in diagram.edges:
        label = f"|{_quoted(edge.label)}| " if edge.label else ""
        lines.append(f"  {edge.source} --> {label}{edge.target}")
    lines += _styles(diagram)
    return "\n".join(lines) + "\n"


def _items(items: tuple[Box | Frame, ...], level: int) -> Iterator[str]:
    indent = "  " * level
    for item in items:
        if isinstance(item, Box):
            before, after = STYLES[item.kind].mermaid
            label = "<br>".join(map(_escaped, (item.title, *item.details)))
            yield f'{indent}{item.id}{before}"{label}"{after}:::{_class(item.kind)}'
        else:
            yield f"{indent}subgraph {item.id}[{_quoted(item.title)}]"
            yield from _items(item.items, level + 1)
            yield f"{indent}end"


def _styles(diagram: Diagram) -> Iterator[str]:
    for kind in diagram.kinds:
        style = STYLES[kind]
        dashes = ",stroke-dasharray:4" if style.dashed else ""
        yield f"  classDef {_class(kind)} fill:{style.fill},stroke:{style.stroke},color:{TEXT}{dashes}"
    if diagram.frames:
        yield f"  classDef frame fill:{FRAME_FILL},stroke:{FRAME},color:{TEXT}"
        yield f"  class {','.join(frame.id for frame in diagram.frames)} frame"
    if diagram.edges:
        yield f"  linkStyle default stroke:{LINE}"


def _class(kind: BoxKind) -> str:
    return kind.name.lower()


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Return ``text`` with mermaid's entity codes for whatever is special anywhere."""
    coded = _SPECIAL.sub(lambda match: f"#{ord(match[0])};", text)
    return _LIST.sub(lambda match: f"{match[1]}#{ord(match[2])};", coded)
