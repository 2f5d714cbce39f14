"""The folder of caches: where it is, how large it gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npu_ir.errors import UsageError
from npu_ir.serial.cache_folder import CacheFolder, all_cache_folders, cache_folder, cache_root


def name_of(digit: str) -> str:
    """Return the name of a file that a cache makes."""
    return f"{digit * 16}-{digit * 64}.safetensors"


@pytest.mark.parametrize(
    ("variables", "root"),
    [
        ({"NPU_CACHE": "/a"}, Path("/a")),
        ({"NPU_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"NPU_CACHE": "off", "XDG_CACHE_HOME": "/b"}, None),
        ({"NPU_CACHE": "OFF", "XDG_CACHE_HOME": "/b"}, None),
        ({"NPU_CACHE": "~/a", "HOME": "/c"}, Path("/c/a")),
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


@pytest.mark.parametrize("variable", ["cache", "./cache", "../cache"])
def test_a_relative_path_is_refused(monkeypatch, variable):
    monkeypatch.setenv("NPU_CACHE", variable)

    with pytest.raises(UsageError, match="is relative: give an absolute path, or 'off'"):
        cache_root()


def test_a_path_of_a_file_is_refused(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NPU_CACHE", str(tmp_path / "file"))

    with pytest.raises(UsageError, match="is a file: give the path of a folder, or 'off'"):
        cache_root()


def test_what_was_not_used_for_longest_makes_room(tmp_path):
    folder = CacheFolder(tmp_path, max_bytes=20)
    for index, name in enumerate(map(name_of, "abc")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (index, index))
    folder.touch(tmp_path / name_of("a"))

    folder.make_room()

    assert [file.name for file in folder.files()] == [name_of("c"), name_of("a")]
    assert folder.size_bytes() == 20


def test_the_last_file_stays_even_if_it_is_too_large(tmp_path):
    (tmp_path / name_of("a")).write_bytes(bytes(10))

    CacheFolder(tmp_path, max_bytes=1).make_room()

    assert (tmp_path / name_of("a")).exists()


def test_a_cleared_folder_is_empty(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_CACHE", str(tmp_path))
    (tmp_path / "steps").mkdir()
    for name in (name_of("a"), f".npu-ir-{'0' * 16}.tmp"):
        (tmp_path / "steps" / name).write_bytes(bytes(10))

    removed = [folder.clear() for folder in all_cache_folders()]

    assert removed == [2]
    assert list((tmp_path / "steps").iterdir()) == []


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return files that no cache has made, at places where a cache looks."""
    monkeypatch.setenv("NPU_CACHE", str(tmp_path / "home"))
    (tmp_path / "linked").mkdir()
    (tmp_path / "home" / "steps" / "folder").mkdir(parents=True)
    (tmp_path / "home" / "documents").mkdir()
    files = [
        tmp_path / "linked" / name_of("a"),
        tmp_path / "home" / name_of("a"),
        tmp_path / "home" / "documents" / name_of("a"),
        tmp_path / "home" / "steps" / "folder" / name_of("a"),
        tmp_path / "home" / "steps" / "model.safetensors",
        tmp_path / "home" / "steps" / f"{name_of('a')}.old",
        tmp_path / "home" / "steps" / "letter",
    ]
    for file in files:
        file.write_bytes(bytes(10))
    (tmp_path / "home" / "steps" / name_of("b")).symlink_to(files[0])
    return files


@pytest.mark.parametrize("action", [CacheFolder.clear, CacheFolder.make_room])
def test_files_of_others_stay(others, action):
    folder = cache_folder("steps")
    assert folder is not None

    for each in (*all_cache_folders(), CacheFolder(folder.path, max_bytes=1)):
        action(each)

    assert all(file.exists() for file in others)


def test_a_folder_behind_a_link_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / name_of("a")
    file.touch()
    (tmp_path / "cache" / "steps").symlink_to(tmp_path / "elsewhere")

    CacheFolder(tmp_path / "cache" / "steps").clear()

    assert all_cache_folders() == []
    assert file.exists()


def test_a_folder_that_is_not_there_has_no_files(tmp_path):
    folder = CacheFolder(tmp_path / "none")

    assert (folder.files(), folder.size_bytes(), folder.clear()) == ([], 0, 0)
