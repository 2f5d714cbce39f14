"""What tests of ops share."""

from collections.abc import Iterator

import pytest

from npu_cuda import _C


@pytest.fixture
def threads() -> Iterator[None]:
    """Restore the number of threads, which the test sets."""
    before = _C.thread_count()
    yield
    _C.set_thread_count(before)
