"""Executors that tests register."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from npu_ir import register_executor
from npu_ir.ops import unregister_executor

Register = Callable[[str, Callable[[list[Any], Any], list[Any]]], None]


@pytest.fixture
def register() -> Iterator[Register]:
    """Register an executor of an op until the test ends."""
    op_types: list[str] = []

    def add(op_type: str, executor: Callable[[list[Any], Any], list[Any]]) -> None:
        register_executor(op_type)(executor)
        op_types.append(op_type)

    yield add
    for op_type in op_types:
        unregister_executor(op_type)
