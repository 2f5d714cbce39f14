"""The build backend: scikit-build-core with the Python versions that the library supports.

With nanobind 3 there is one library for every Python from 3.10 (abi3). With nanobind 2, or with ``-C
cmake.define.NPU_SPLIT=OFF``, there is one per Python, from 3.12 one for all that follow; then the tag of
the wheel has to say so.

The build tag of a wheel says what is in it: ``1cuda`` is built with CUDA, and pip prefers it; ``0host`` and
``0emulated`` are without. Without ``-C cmake.define.NPU_CUDA=ON`` CUDA is used where nvcc works, and the tag
is ``0auto``: nobody can take such a wheel for one with CUDA.
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

BUILD_TAGS = {"ON": "1cuda", "OFF": "0host", "EMULATE": "0emulated", "AUTO": "0auto"}

Settings: TypeAlias = "dict[str, list[str] | str]"


def build_wheel(directory: str, settings: Settings | None = None, metadata: str | None = None) -> str:
    return backend.build_wheel(directory, with_tags(settings), metadata)


def build_editable(directory: str, settings: Settings | None = None, metadata: str | None = None) -> str:
    return backend.build_editable(directory, with_tags(settings), metadata)


def prepare_metadata_for_build_wheel(directory: str, settings: Settings | None = None) -> str:
    return backend.prepare_metadata_for_build_wheel(directory, with_tags(settings))


def prepare_metadata_for_build_editable(directory: str, settings: Settings | None = None) -> str:
    return backend.prepare_metadata_for_build_editable(directory, with_tags(settings))


def with_tags(settings: Settings | None) -> Settings:
    """Return the settings with the build tag and the stable ABI of the library, unless they name them."""
    settings = dict(settings or {})
    mode = str(settings.get("cmake.define.NPU_CUDA", "AUTO")).upper()
    settings.setdefault("wheel.build-tag", BUILD_TAGS.get(mode, BUILD_TAGS["AUTO"]))
    if not is_split(settings):
        settings.setdefault("wheel.py-api", "cp312")  # ignored on Pythons before
    return settings


def is_split(settings: Settings) -> bool:
    asked = str(settings.get("cmake.define.NPU_SPLIT", "AUTO")).upper()
    return int(metadata.version("nanobind").partition(".")[0]) >= 3 if asked == "AUTO" else asked == "ON"
