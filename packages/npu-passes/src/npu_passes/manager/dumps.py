"""Dumps of a graph before and after each pass, as text files."""

from __future__ import annotations

from pathlib import Path

from npu_ir import Graph
from npu_ir.serial.atomic_write import write_file, writing
from npu_passes.errors import PassError


class Dumps:
    """Writer of ``00-input.ir``, ``01-canonicalize.ir``, ... into a folder, which is created if missing.

    Raises:
        PassError: The folder cannot be created or written to, or already holds dumps.
    """

    def __init__(self, folder: Path, graph: Graph) -> None:
        self._folder = folder
        self._count = 0
        if folder.is_dir() and any(folder.glob("*.ir")):
            raise PassError(
                "the folder holds dumps already", where=str(folder), fix="name another one, or empty it"
            )
        self.write("input", graph)

    def write(self, name: str, graph: Graph) -> None:
        """Write the next state of the graph."""
        path = self._folder / f"{self._count:02d}-{name}.ir"
        with writing("the graph", path, PassError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_file(path, f"{graph}\n".encode())
        self._count += 1
