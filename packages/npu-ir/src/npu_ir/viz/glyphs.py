"""Shapes of boxes in SVG drawings, and estimates of text sizes."""

from __future__ import annotations

import unicodedata

from npu_ir.viz.diagram import Box
from npu_ir.viz.style import Style

TITLE_SIZE, DETAIL_SIZE = 14.0, 12.0
LINE_HEIGHT = 17.0
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


def box_size(box: Box) -> tuple[float, float]:
    """Return the width and height that the text of ``box`` needs."""
    widths = [
        text_width(box.title, TITLE_SIZE) * 1.06,
        *(text_width(line, DETAIL_SIZE) for line in box.details),
    ]
    return max(80.0, max(widths) + 30), LINE_HEIGHT * (1 + len(box.details)) + 15


def shape_element(style: Style, x: float, y: float, width: float, height: float) -> str:
    """Return the SVG element of a box whose top left corner is at x, y."""
    looks = f'fill="{style.fill}" stroke="{style.stroke}" stroke-width="1.3"'
    if style.dashed:
        looks += ' stroke-dasharray="5 4"'
    right, bottom = x + width, y + height
    if style.svg == "hexagon":
        tip = min(10.0, width / 4)
        return (
            f'<path d="M{x:.1f} {y + height / 2:.1f}L{x + tip:.1f} {y:.1f}H{right - tip:.1f}'
            f'L{right:.1f} {y + height / 2:.1f}L{right - tip:.1f} {bottom:.1f}H{x + tip:.1f}Z" {looks}/>'
        )
    if style.svg == "note":
        fold = min(10.0, width / 3)
        return (
            f'<path d="M{x:.1f} {y:.1f}H{right - fold:.1f}L{right:.1f} {y + fold:.1f}V{bottom:.1f}H{x:.1f}Z'
            f'M{right - fold:.1f} {y:.1f}V{y + fold:.1f}H{right:.1f}" {looks}/>'
        )
    if style.svg == "double":
        inset = min(5.0, width / 6)
        return (
            f'<path d="M{x:.1f} {y:.1f}H{right:.1f}V{bottom:.1f}H{x:.1f}Z'
            f'M{x + inset:.1f} {y:.1f}V{bottom:.1f}M{right - inset:.1f} {y:.1f}V{bottom:.1f}" {looks}/>'
        )
    radius = height / 2 if style.svg == "pill" else min(6.0, height / 3)
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}" {looks}/>'
    )
