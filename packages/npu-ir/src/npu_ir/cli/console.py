"""Printing facts: with rich on a terminal that has it, as plain text everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def terminal() -> Console | None:
    """Return a rich console if rich is installed and stdout is a terminal: the one place that decides."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print one line per fact, the values aligned; further lines of a value below its first."""
    console = terminal()
    if console is None:
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            print(f"{name:{width}}  " + value.replace("\n", "\n" + " " * (width + 2)))
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(name, style="bold"), Text(value))
    console.print(grid)


def print_diff(text: str) -> None:
    """Print the lines of a diff, those that are gone red, new ones green and changed ones yellow."""
    console = terminal()
    if console is None:
        print(text)
        return
    from rich.text import Text

    styles = {"-": "red", "+": "green", "~": "yellow", "@": "cyan"}
    for line in text.split("\n"):
        console.print(Text(line, style=styles.get(line.lstrip(" ")[:1], "")), soft_wrap=True)


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows below the names of their columns, as plain text."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (columns, *rows)
    ]
    return "\n".join(lines)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below the names of their columns."""
    console = terminal()
    if console is None:
        print(table_text(columns, rows))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
