"""Objects whose content is hashed."""

from __future__ import annotations

import os
from typing import Any

from npu_runtime.training.cache.content_hash import ContentHash


def digest(item: Any) -> str:
    content = ContentHash()
    content.add(item)
    return content.digest()


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


class WithUnusedFile:
    def __init__(self, value: Any) -> None:
        self.value, self.file = value, open(os.devnull)  # noqa: SIM115

    def __call__(self) -> Any:
        return self.value
