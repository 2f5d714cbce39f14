"""The CPU rewrites, through an entry point of their own: block ``npu-runtime-cpu`` to go without them."""

from __future__ import annotations
