"""Console output: with rich on a terminal if it is installed, else as plain text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from npu_ir.cli.column_widths import fit_columns

if TYPE_CHECKING:
    from rich.console import Console


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
    console = rich_console()
    if console is None:
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            print(f"{name:{width}}  " + value.replace("\n", "\n" + " " * (width + 2)))
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")  # a path, or a list of passes, is one word
    for name, value in facts.items():
        grid.add_row(Text(name, style="bold"), Text(value))
    console.print(grid)


def print_diff(text: str) -> None:
    """Print the lines of a diff: removed ones red, added ones green and changed ones yellow."""
    console = rich_console()
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
    if not sys.stdout.isatty():
        print(Table(columns, rows))
        return
    width = shutil.get_terminal_size().columns
    if max(map(len, str(Table(columns, rows)).split("\n"))) > width:
        columns, rows = _drop_empty_columns(columns, rows)
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


def _drop_empty_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    filled = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    return [columns[index] for index in filled], [[row[index] for index in filled] for row in rows]


def print_report(parts: Iterable[str | Table]) -> None:
    """Print the parts of a report, each on its own lines."""
    for part in parts:
        if isinstance(part, Table):
            print_table(part.columns, part.rows)
        else:
            print(part)


def _format_plain(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
