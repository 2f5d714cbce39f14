"""Executors of ops that are registered for a while."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from npu_ir.ops import register_executor, unregister_executor

Executor = Callable[..., Any]


@contextlib.contextmanager
def registered(op_type: str, executor: Executor) -> Iterator[None]:
    register_executor(op_type)(executor)
    try:
        yield
    finally:
        unregister_executor(op_type)
