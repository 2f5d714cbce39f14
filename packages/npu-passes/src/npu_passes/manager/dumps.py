"""The states of a graph on the way through passes, as text files."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from npu_ir import Graph
from npu_ir.serial.atomic_write import staged_files
from npu_passes.errors import PassError


class Dumps:
    """Writes ``00-input.ir``, ``01-canonicalize.ir``, ... into a folder, which is made if it is not there.

    Args:
        folder: Where to.
        graph: In its first state.

    Raises:
        PassError: The folder cannot be made or written to, or holds dumps already.
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
        """Write the next state.

        Raises:
            PassError: It cannot be written.
        """
        path = self._folder / f"{self._count:02d}-{name}.ir"

        def content(file: BinaryIO) -> str:
            file.write(f"{graph}\n".encode())
            return path.name

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with staged_files(self._folder) as staging:
                staging.write(content)
        except OSError as error:
            raise PassError(
                f"the graph cannot be dumped: {error.strerror or error}",
                where=str(path),
                fix="check that the folder may be written to",
            ) from error
        self._count += 1
