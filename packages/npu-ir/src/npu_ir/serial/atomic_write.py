"""Atomic writing of several files: they appear together or not at all.

Each file is written in full under a temporary name, synced and then renamed, which POSIX makes atomic; the
rename of the last file, which refers to the others, is the commit. A rename would replace a device or a pipe
by a file: into these, the content is copied.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from npu_ir.errors import NpuError


@contextlib.contextmanager
def writing(what: str, path: str | os.PathLike[str], error: type[NpuError]) -> Iterator[None]:
    """Raise an error of ours where the block cannot write ``what`` to a file or folder."""
    try:
        yield
    except OSError as cause:
        raise error(
            f"{what} cannot be written: {cause.strerror or cause}",
            where=str(path),
            fix="check that the folder exists, may be written to and has space left",
        ) from cause


@dataclass(slots=True)
class Staging:
    """Files that are written in full under temporary names before any gets its final name."""

    folder: Path  # also of the temporary files: a rename works within a file system only
    _files: list[tuple[Path, Path]] = field(default_factory=list)

    def write(self, content: Callable[[BinaryIO], str]) -> str:
        """Write a file; ``content`` writes to it and returns its final name."""
        temporary = self.folder / f".npu-ir-{secrets.token_hex(8)}.tmp"
        self._files.append((temporary, temporary))
        with open(temporary, "xb") as file:
            name = content(file)
            file.flush()
            os.fsync(file.fileno())
        self._files[-1] = temporary, self.folder / name
        return name

    def _commit(self) -> None:
        """Rename the files to their final names in the order they were written; the last is the commit."""
        created: list[Path] = []
        try:
            for temporary, final in self._files:
                if temporary == self._files[-1][0]:
                    _sync_folder(self.folder)  # a crash must not leave the commit without the others
                existed = final.exists()
                _publish(temporary, final)
                if not existed:
                    created.append(final)
        except BaseException:
            if self._files[-1][0].exists():  # not committed: remove what did not exist before
                for path in created:
                    path.unlink()
            raise
        _sync_folder(self.folder)


@contextlib.contextmanager
def staged_files(folder: Path) -> Iterator[Staging]:
    """Yield a `Staging` whose files appear when the block ends; after an error no new file is left."""
    staging = Staging(folder)
    try:
        yield staging
        staging._commit()
    except BaseException:
        for temporary, _ in staging._files:
            temporary.unlink(missing_ok=True)
        raise


def write_file(path: Path, content: bytes) -> None:
    """Write one file: it appears complete, or not at all."""
    with staged_files(path.parent) as files:
        files.write(lambda file: (file.write(content), path.name)[1])


def _publish(temporary: Path, final: Path) -> None:
    if not _is_device(final):
        os.replace(temporary, final)
        return
    with open(temporary, "rb") as source, open(final, "wb") as target:
        shutil.copyfileobj(source, target)
    temporary.unlink()


def _is_device(path: Path) -> bool:
    """Return whether a path is a device, a pipe or a socket, or a link in /dev, such as /dev/stdout."""
    is_other = path.exists() and not path.is_file() and not path.is_dir()
    return is_other or (path.is_symlink() and path.parent == Path("/dev"))


def _sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable, if the file system can."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
