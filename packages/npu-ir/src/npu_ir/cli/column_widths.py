"""Column widths of tables that fit a terminal: text wraps, long names are shortened, numbers stay whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf|nan)( ?(%|x|[um]?s|[KMGTP]?B?))?|\?|")
_WHOLE = re.compile(rf"^({_NUMBER.pattern})$|\[\d|\d[],]")  # shapes are numbers, too
_WORD = re.compile(r"(?:\[[^\]]*\]|\S)+")  # f32[2, 8] is one word
_GAP = "..."


def fit_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[list[str]]]:
    """Return the lines of each cell, wrapped so that the columns have at most ``width`` characters in total.

    The total is exceeded if numbers and the minimum width of names need more.

    Args:
        columns: Names of the columns.
        rows: Their cells.
        width: Characters, without the space between columns.
    """
    widths = [max(_width(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    cells_of = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    names = [index for index, cells in enumerate(cells_of) if not all(map(_NUMBER.fullmatch, cells))]
    texts = [index for index in names if any(len(_WORD.findall(cell)) > 1 for cell in cells_of[index])]
    for chosen, least in ((texts, 24), (texts, 16), (names, 10), (names, 8)):
        _shrink(widths, {index: max(least, len(columns[index])) for index in chosen}, width)
    return [[_wrap_cell(cell, size) for cell, size in zip(row, widths, strict=True)] for row in rows]


def shorten(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters, with its middle left out if it is longer."""
    if len(text) <= width:
        return text
    kept = width - len(_GAP)
    if kept < 2:
        return text[:width]
    return f"{text[: (kept + 1) // 2]}{_GAP}{text[-(kept // 2) :]}"


def _width(cell: str) -> int:
    return max(map(len, cell.split("\n")))


def _shrink(widths: list[int], least: dict[int, int], width: int) -> None:
    """Shrink the widest of these columns until all fit, or each has its minimum width."""
    while sum(widths) > width:
        wide = [index for index in least if widths[index] > least[index]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def _wrap_cell(cell: str, width: int) -> list[str]:
    return [line for part in cell.split("\n") for line in _wrap_line(part, width)]


def _wrap_line(text: str, width: int) -> list[str]:
    """Return ``text`` wrapped between words to lines of at most ``width`` characters."""
    if len(text) <= width:
        return [text]
    lines = [""]
    parts = [part for word in _WORD.findall(text) for part in _split_type(word, width)]
    for word in parts:
        shown = word if _WHOLE.search(word) else shorten(word, width)
        if lines[-1] and len(lines[-1]) + 1 + len(shown) <= width:
            lines[-1] += f" {shown}"
        else:
            lines.append(shown)
    return lines[1:]


def _split_type(word: str, width: int) -> list[str]:
    """Return a word, or the parts of a tensor type that is too long: f32[128, and 256]."""
    return word.split() if len(word) > width else [word]
