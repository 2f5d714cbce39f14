"""Texts of SVG drawings: elements, and estimates of their width."""

from __future__ import annotations

import html
import unicodedata

TITLE_SIZE, DETAIL_SIZE = 14.0, 12.0
_NARROW = frozenset("iljtfrI.,:;|!'()[]/ ")
_WIDE = frozenset("mwMW@%…")


def text_width(text: str, size: float) -> float:
    """Return a generous estimate of the width of ``text`` in a sans-serif font of ``size`` pixels."""
    return size * sum(map(_char_width, text))


def _char_width(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if char in _NARROW:
        return 0.36
    return 0.86 if char in _WIDE else 0.72 if char.isupper() else 0.61


def text_element(text: str, x: float, y: float, size: float, attributes: str = "") -> str:
    start = f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" {attributes}>'
    return f"{start}{html.escape(text, quote=False)}</text>"


def halo(colour: str) -> str:
    """Return the attributes of a text that stands out from the lines behind it."""
    return f'stroke="{colour}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
