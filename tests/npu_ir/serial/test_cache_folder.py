"""The folder of caches: where it is, how large it gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npu_ir.serial.cache_folder import CacheFolder, all_cache_folders, cache_folder, cache_root


@pytest.mark.parametrize(
    ("variables", "root"),
    [
        ({"NPU_CACHE": "/a"}, Path("/a")),
        ({"NPU_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"NPU_CACHE": "off", "XDG_CACHE_HOME": "/b"}, None),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/npu")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/c"}, Path("/c/.cache/npu")),
        ({"HOME": "/c"}, Path("/c/.cache/npu")),
    ],
)
def test_variables_choose_the_folder(monkeypatch, variables, root):
    for name in ("NPU_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    found = cache_root()

    assert found == root
    assert cache_folder("steps") == (None if root is None else CacheFolder(root / "steps"))


def test_what_was_not_used_for_longest_makes_room(tmp_path):
    folder = CacheFolder(tmp_path, max_bytes=20)
    for index, name in enumerate("abc"):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (index, index))
    folder.touch(tmp_path / "a")

    folder.make_room()

    assert [file.name for file in folder.files()] == ["c", "a"]
    assert folder.size_bytes() == 20


def test_the_last_file_stays_even_if_it_is_too_large(tmp_path):
    (tmp_path / "a").write_bytes(bytes(10))

    CacheFolder(tmp_path, max_bytes=1).make_room()

    assert (tmp_path / "a").exists()


def test_a_cleared_folder_is_empty(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_CACHE", str(tmp_path))
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "a").write_bytes(bytes(10))

    removed = [folder.clear() for folder in all_cache_folders()]

    assert removed == [1]
    assert all_cache_folders()[0].files() == []


def test_a_folder_that_is_not_there_has_no_files(tmp_path):
    folder = CacheFolder(tmp_path / "none")

    assert (folder.files(), folder.size_bytes(), folder.clear()) == ([], 0, 0)
