"""Pieces of HTML: escaped text, tables, highlighted graphs, images of digits."""

from __future__ import annotations

import base64
import html
import re
import struct
import zlib
from collections.abc import Iterable, Sequence

from torch import Tensor

_TOKENS = re.compile(
    r"(?P<comment>#[^\n]*)"
    r"|(?P<value>%[\w.#]+)"
    r"|(?P<type>\b(?:f|bf|i|u|c)\d+\[[\d, ]*\](?:@\w+|@\[[\d, ]*\])?|\bbool\[[\d, ]*\])"
    r"|(?P<op>\b\w+\.\w+\.\w+(?=\())"
    r"|(?P<keyword>^ *(?:graph|input|param|buffer|const|call|update|return)\b)",
    re.MULTILINE,
)
_WEIGHTS = re.compile(r"(?:^  (?:param|buffer) [^\n]*\n){3,}", re.MULTILINE)


def text(value: object) -> str:
    """Return ``value`` as text that HTML shows as it is."""
    return html.escape(str(value), quote=True)


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a table of two columns."""
    body = "".join(
        f"<tr><th scope='row'>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows
    )
    return f"<table class='facts'>{body}</table>"


def grid_table(header: Sequence[str], rows: Iterable[Sequence[str]], css_class: str = "grid") -> str:
    """Return a table with a header; the cells of ``rows`` are HTML."""
    head = "".join(f"<th scope='col'>{text(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        "<div class='wide'><table "
        f"class='{css_class}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def graph_text(source: str) -> str:
    """Return a graph's text form with its parts coloured and its weights folded away."""
    pieces, end = [], 0
    for run in _WEIGHTS.finditer(source):
        count = run.group().count("\n")
        pieces.append(_coloured(source[end : run.start()]))
        pieces.append(
            f"<details><summary>  {count} parameters and buffers</summary>{_coloured(run.group())}</details>"
        )
        end = run.end()
    pieces.append(_coloured(source[end:]))
    return f"<pre class='ir'>{''.join(pieces)}</pre>"


def _coloured(source: str) -> str:
    pieces, end = [], 0
    for match in _TOKENS.finditer(source):
        pieces.append(html.escape(source[end : match.start()], quote=False))
        pieces.append(f"<span class='{match.lastgroup}'>{html.escape(match.group(), quote=False)}</span>")
        end = match.end()
    return "".join([*pieces, html.escape(source[end:], quote=False)])


def digit_image(image: Tensor) -> str:
    """Return an image of a digit, dark ink on light paper; ``image`` is [1, 8, 8] from 0 to 1."""
    rows = (255 - image[0] * 235).round().to(int).tolist()
    data = base64.b64encode(png(rows)).decode("ascii")
    return f"<img src='data:image/png;base64,{data}' alt='' width='56' height='56'>"


def png(rows: Sequence[Sequence[int]]) -> bytes:
    """Return a greyscale PNG; ``rows`` hold values from 0 to 255.

    Source: Portable Network Graphics Specification, third edition, sections 5 and 9 to 11.
    """

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    lines = b"".join(b"\0" + bytes(row) for row in rows)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )
