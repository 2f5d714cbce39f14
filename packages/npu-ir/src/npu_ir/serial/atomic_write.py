"""Several files that appear together or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO


@dataclass(slots=True)
class Staging:
    """Files that are written in full under other names before any gets its own.

    Attributes:
        folder: Where they go.
    """

    folder: Path
    _files: list[tuple[Path, Path]] = field(default_factory=list)

    def write(self, content: Callable[[BinaryIO], str]) -> str:
        """Write a file; ``content`` gets it open and returns the name it is to have."""
        temporary = self.folder / f".npu-ir-{secrets.token_hex(8)}.tmp"
        self._files.append((temporary, temporary))
        with open(temporary, "xb") as file:
            name = content(file)
            file.flush()
            os.fsync(file.fileno())
        self._files[-1] = temporary, self.folder / name
        return name

    def _publish(self) -> None:
        """Give the files their names in the order they were written: the last one is the commit."""
        created: list[Path] = []
        try:
            for temporary, final in self._files:
                if temporary == self._files[-1][0]:
                    _sync_folder(self.folder)
                existed = final.exists()
                os.replace(temporary, final)
                if not existed:
                    created.append(final)
        except BaseException:
            if self._files[-1][0].exists():
                for path in created:
                    path.unlink()
            raise
        _sync_folder(self.folder)

    def _discard(self) -> None:
        for temporary, _ in self._files:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def staged_files(folder: Path) -> Iterator[Staging]:
    """Yield a `Staging` whose files appear when the block ends; on any error none is left behind."""
    staging = Staging(folder)
    try:
        yield staging
        staging._publish()
    except BaseException:
        staging._discard()
        raise


def _sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable where the file system can; it is no error where it cannot."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
