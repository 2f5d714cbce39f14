"""Progress output of the demo: rich on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from claims import Claim

Advance = Callable[[str], None]
Row = tuple[str, str]


class Terminal(Protocol):
    """The output of the demo."""

    def title(self, text: str) -> None:
        """Begin a chapter."""

    def work(self, text: str, steps: int | None = None) -> contextlib.AbstractContextManager[Advance]:
        """Show that something is being done, and at the end how long it took.

        What it yields is called after each step, or at any time, with how things stand.
        """

    def code(self, text: str) -> None:
        """Show part of a graph."""

    def table(self, rows: Sequence[Row]) -> None:
        """Show names and values."""

    def claim(self, claim: Claim) -> None:
        """Show whether something the demo promises is true."""

    def say(self, text: str) -> None:
        """Show a line."""


class PlainTerminal:
    """One line per fact: for logs and pipes."""

    def title(self, text: str) -> None:
        self.say(f"\n== {text}")

    @contextlib.contextmanager
    def work(self, text: str, steps: int | None = None) -> Iterator[Advance]:  # noqa: ARG002
        state = [""]
        start = time.perf_counter()
        yield lambda status: state.__setitem__(0, f" ({status})")
        self.say(f"{text}: {time.perf_counter() - start:.1f} s{state[0]}")

    def code(self, text: str) -> None:
        self.say("\n".join(f"    {line}" for line in text.splitlines()))

    def table(self, rows: Sequence[Row]) -> None:
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.say(f"  {name:<{width}}  {value}")

    def claim(self, claim: Claim) -> None:
        self.say(f"{'ok' if claim.holds else 'FAILED'}: {claim.text}: {claim.measured}")

    def say(self, text: str) -> None:
        print(text, flush=True)


class RichTerminal:
    """Colours, spinners and a progress bar."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)

    def title(self, text: str) -> None:
        self._console.print()
        self._console.rule(f"[bold]{text}", align="left", style="bright_black")

    @contextlib.contextmanager
    def work(self, text: str, steps: int | None = None) -> Iterator[Advance]:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        bar = [BarColumn(bar_width=24)] if steps else []
        columns = [
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *bar,
            TimeElapsedColumn(),
            TextColumn("{task.fields[status]}"),
        ]
        start = time.perf_counter()
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(text, total=steps, status="")
            yield lambda status: progress.update(task, advance=1, status=status)
            status = progress.tasks[task].fields["status"]
        seconds = f"{time.perf_counter() - start:.1f} s"
        self._console.print(
            f"  [bright_black]{seconds:>7}[/]  {text}{f'  [bright_black]{status}[/]' if status else ''}"
        )

    def code(self, text: str) -> None:
        from rich.padding import Padding
        from rich.text import Text

        shown = Text(text.rstrip("\n"), no_wrap=True, overflow="ellipsis")
        shown.highlight_regex(r"%[\w.#]+", "cyan")
        shown.highlight_regex(r"\b[a-z]+\d*\[[\d, ]*\]", "green")
        shown.highlight_regex(r"= [\w.]+(?=\()", "bold")
        shown.highlight_regex(r"#.*", "bright_black")
        self._console.print(Padding(shown, (1, 4)))

    def table(self, rows: Sequence[Row]) -> None:
        from rich.padding import Padding
        from rich.table import Table

        table = Table.grid(padding=(0, 3))
        table.add_column(style="bright_black")
        table.add_column()
        for name, value in rows:
            table.add_row(name, value)
        self._console.print(Padding(table, (1, 4)))

    def claim(self, claim: Claim) -> None:
        mark = "[bold green]\N{CHECK MARK}[/]" if claim.holds else "[bold red]FAILED[/]"
        self._console.print(f"  {mark} {claim.text}  [bright_black]{claim.measured}[/]")

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False, soft_wrap=True)


def terminal() -> Terminal:
    """Return a rich terminal where there is one, else a plain one."""
    return RichTerminal() if sys.stdout.isatty() else PlainTerminal()
