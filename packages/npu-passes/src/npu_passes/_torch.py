"""The private torch APIs that passes need, each behind one name; nothing else touches them."""

from __future__ import annotations

from torch._ops import OpOverload

__all__ = ["OpOverload"]
