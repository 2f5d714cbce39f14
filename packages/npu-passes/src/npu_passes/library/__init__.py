"""The passes that come with npu-passes, one per module."""

from __future__ import annotations

from npu_passes.base import Pass

PASSES: tuple[type[Pass], ...] = ()
