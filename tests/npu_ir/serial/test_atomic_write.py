"""Files appear whole; what is not a file is written into, and stays what it is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from npu_ir.serial.atomic_write import write_file


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()

    write_file(pipe, b"content")
    reader.join(timeout=60)

    assert received == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_link_is_replaced_and_what_it_pointed_to_stays(tmp_path: Path) -> None:
    old, link = tmp_path / "old", tmp_path / "link"
    old.write_bytes(b"old")
    link.symlink_to(old)

    write_file(link, b"new")

    assert (link.read_bytes(), old.read_bytes(), link.is_symlink()) == (b"new", b"old", False)


def test_a_folder_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    with pytest.raises(IsADirectoryError, match="Is a directory"):
        write_file(folder, b"content")

    assert os.listdir(tmp_path) == ["folder"]
