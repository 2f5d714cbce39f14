"""The folder of caches: what takes long to make and can be made again at any time.

``NPU_CACHE`` names it by an absolute path, or turns caches off; without it, it is ``npu`` in
``XDG_CACHE_HOME`` or ``~/.cache``. Each kind of content has a folder in it, whose size is bounded: files that
were not used for longest go. Nothing is listed or removed but files with the names that a cache gives, in
folders that are not links: whatever else is there is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from npu_ir.errors import UsageError

VARIABLE = "NPU_CACHE"
OFF = "off"
KINDS = ("steps",)
# Keys of an environment and of content, and files that a process wrote and did not finish.
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}\.safetensors|\.npu-ir-[0-9a-f]{16}\.tmp")


def cache_root() -> Path | None:
    """Return the folder of all caches; None if they are off, or there is no home.

    Raises:
        UsageError: The variable has a relative path, or one that is not a folder.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given.lower() == OFF:
        return None
    if given:
        return _given_root(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "npu")
    with contextlib.suppress(RuntimeError):
        return Path.home() / ".cache" / "npu"
    return None


def _given_root(given: str) -> Path:
    path = Path(os.path.expanduser(given))
    if not path.is_absolute():
        raise UsageError(f"{VARIABLE}={given} is relative: give an absolute path, or {OFF!r}")
    if path.exists() and not path.is_dir():
        raise UsageError(f"{VARIABLE}={given} is a file: give the path of a folder, or {OFF!r}")
    return path


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """The folder of one kind of content.

    Attributes:
        path: Its path; it may not exist.
        max_bytes: The most that its files take.
    """

    path: Path
    max_bytes: int = 1 << 30

    def files(self) -> list[Path]:
        """Return the files that a cache has made, those that were not used for longest first."""
        found: list[tuple[int, str]] = []
        if self.path.is_symlink():
            return []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.path):
                with contextlib.suppress(OSError):  # another process removes it
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        found.append((entry.stat().st_mtime_ns, entry.name))
        return [self.path / name for _, name in sorted(found)]

    def size_bytes(self) -> int:
        """Return the size of its files."""
        return sum(_size_bytes(file) for file in self.files())

    def touch(self, file: Path) -> None:
        """Take note that a file is used."""
        with contextlib.suppress(OSError):
            os.utime(file)

    def make_room(self) -> None:
        """Remove files until the rest fits, except for the last one."""
        files = self.files()
        sizes = [_size_bytes(file) for file in files]
        total = sum(sizes)
        for file, size in zip(files[:-1], sizes, strict=False):
            if total <= self.max_bytes:
                return
            total -= size
            _remove(file)

    def clear(self) -> int:
        """Remove its files, and return their number."""
        return sum(_remove(file) for file in self.files())


def cache_folder(kind: str) -> CacheFolder | None:
    """Return the folder of a kind of content, such as ``"steps"``; None if caches are off."""
    root = cache_root()
    return None if root is None else CacheFolder(root / kind)


def all_cache_folders() -> list[CacheFolder]:
    """Return the folders of the known kinds that exist and are not links."""
    root = cache_root()
    if root is None:
        return []
    paths = [root / kind for kind in KINDS]
    return [CacheFolder(path) for path in paths if path.is_dir() and not path.is_symlink()]


def _size_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # another process has removed it
        return 0


def _remove(file: Path) -> bool:
    try:
        file.unlink()
    except OSError:
        return False
    return True
