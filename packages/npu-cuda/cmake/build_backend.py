"""The build backend: scikit-build-core with the Python versions that the library supports.

With nanobind 3 there is one library for every Python from 3.10 (abi3). With nanobind 2, or with ``-C
cmake.define.NPU_SPLIT=OFF``, there is one per Python, from 3.12 one for all that follow; then the tag of
the wheel has to say so.
"""

from __future__ import annotations

from importlib import metadata
from typing import TypeAlias

from scikit_build_core import build as backend
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings: TypeAlias = "dict[str, list[str] | str]"


def build_wheel(directory: str, settings: Settings | None = None, metadata: str | None = None) -> str:
    return backend.build_wheel(directory, with_tag(settings), metadata)


def build_editable(directory: str, settings: Settings | None = None, metadata: str | None = None) -> str:
    return backend.build_editable(directory, with_tag(settings), metadata)


def prepare_metadata_for_build_wheel(directory: str, settings: Settings | None = None) -> str:
    return backend.prepare_metadata_for_build_wheel(directory, with_tag(settings))


def prepare_metadata_for_build_editable(directory: str, settings: Settings | None = None) -> str:
    return backend.prepare_metadata_for_build_editable(directory, with_tag(settings))


def with_tag(settings: Settings | None) -> Settings:
    """Return the settings with the stable ABI that the library will have, unless they name one."""
    settings = dict(settings or {})
    if not is_split(settings):
        settings.setdefault("wheel.py-api", "cp312")  # ignored on Pythons before
    return settings


def is_split(settings: Settings) -> bool:
    asked = str(settings.get("cmake.define.NPU_SPLIT", "AUTO")).upper()
    return int(metadata.version("nanobind").partition(".")[0]) >= 3 if asked == "AUTO" else asked == "ON"
