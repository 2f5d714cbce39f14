"""Executors that tests register."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.registration import Executor, registered


@pytest.fixture
def register() -> Iterator[Callable[[str, Executor], None]]:
    with ExitStack() as stack:
        yield lambda op_type, executor: stack.enter_context(registered(op_type, executor))
