"""Console output: with rich on a terminal if it is installed, else as plain text.

What comes from files is printed by these functions: they show control characters, which a terminal obeys.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf|nan)( ?(%|x|[um]?s|[KMGTP]?B?))?|\?|")
_WHOLE = re.compile(rf"^({_NUMBER.pattern})$|\[\d|\d[],]")  # shapes are numbers, too
_WORD = re.compile(r"(?:\[[^\]]*\]|\S)+")  # f32[2, 8] is one word
_GAP = "..."
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but line feeds and tabs


def escape_controls(text: str) -> str:
    r"""Return ``text`` with control characters as ``\x1b``, but for line feeds and tabs.

    The name of a graph that someone else has made may have some that clear a screen, or forge its lines.
    """
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def fit_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[list[str]]]:
    """Return the lines of each cell, wrapped so that the columns have at most ``width`` characters in total.

    The total is exceeded if numbers and the minimum width of names need more.
    """
    widths = [max(_width(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    cells_of = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    names = [index for index, cells in enumerate(cells_of) if not all(map(_NUMBER.fullmatch, cells))]
    texts = [index for index in names if any(len(_WORD.findall(cell)) > 1 for cell in cells_of[index])]
    for chosen, least in ((texts, 24), (texts, 16), (names, 10), (names, 8)):
        _shrink(widths, {index: max(least, len(columns[index])) for index in chosen}, width)
    return [
        [
            [line for part in cell.split("\n") for line in _wrap_line(part, size)]
            for cell, size in zip(row, widths, strict=True)
        ]
        for row in rows
    ]


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


def join_lines(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines())


def _wrap_line(text: str, width: int) -> list[str]:
    """Return ``text`` wrapped between words to lines of at most ``width`` characters."""
    if len(text) <= width:
        return [text]
    lines = [""]
    # A tensor type that is too long is split: f32[128, and 256].
    words = [part for word in _WORD.findall(text) for part in (word.split() if len(word) > width else [word])]
    for word in words:
        shown = word if _WHOLE.search(word) else shorten(word, width)
        if lines[-1] and len(lines[-1]) + 1 + len(shown) <= width:
            lines[-1] += f" {shown}"
        else:
            lines.append(shown)
    return lines[1:]


def rich_console() -> Console | None:
    """Return a rich console if rich is installed and stdout is a terminal, else None."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print one line per fact, with aligned values; further lines of a value are below its first."""
    console, lines = rich_console(), [tuple(map(escape_controls, fact)) for fact in facts.items()]
    if console is None:
        width = max((len(name) for name, _ in lines), default=0)
        for name, value in lines:
            print(f"{name:{width}}  " + value.replace("\n", "\n" + " " * (width + 2)))
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")  # a path, or a list of passes, is one word
    for name, value in lines:
        grid.add_row(Text(name, style="bold"), Text(value))
    console.print(grid)


def print_diff(text: str) -> None:
    """Print the lines of a diff: removed ones red, added ones green and changed ones yellow."""
    console, text = rich_console(), escape_controls(text)
    if console is None:
        print(text)
        return
    from rich.text import Text

    styles = {"-": "red", "+": "green", "~": "yellow", "@": "cyan"}
    for line in text.split("\n"):
        console.print(Text(line, style=styles.get(line.lstrip(" ")[:1], "")), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below the names of their columns; ``str`` returns plain text without shortening."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        return _format_plain([self.columns, *self.rows])


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below the names of their columns, fitted to the terminal if there is one.

    Empty columns are left out if the others would not fit otherwise.
    """
    columns, *rows = [list(map(escape_controls, row)) for row in (columns, *rows)]
    if not sys.stdout.isatty():
        print(Table(columns, rows))
        return
    width = shutil.get_terminal_size().columns
    if max(map(len, str(Table(columns, rows)).split("\n"))) > width:
        filled = [index for index in range(len(columns)) if any(row[index] for row in rows)]
        columns, rows = (
            [columns[index] for index in filled],
            [[row[index] for index in filled] for row in rows],
        )
    fitted = fit_columns(columns, rows, width - 2 * (len(columns) - 1))
    console = rich_console()
    if console is None:
        lines = [line for cells in fitted for line in zip_longest(*cells, fillvalue="")]
        print(_format_plain([columns, *lines]))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        size = max(map(len, (column, *(line for cells in fitted for line in cells[index]))))
        table.add_column(Text(column), width=size, no_wrap=True)
    for cells in fitted:
        table.add_row(*(Text("\n".join(lines)) for lines in cells))
    needed = sum(column.width or 0 for column in table.columns) + 2 * len(columns)
    console.width = max(width, needed)  # rich would truncate numbers that need more than the terminal
    console.print(table, soft_wrap=True)


def print_report(parts: Iterable[str | Table]) -> None:
    """Print the parts of a report, each on its own lines."""
    for part in parts:
        if isinstance(part, Table):
            print_table(part.columns, part.rows)
        else:
            print(escape_controls(part))


def _format_plain(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
