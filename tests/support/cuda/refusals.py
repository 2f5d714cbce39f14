"""Refusals of npu_cuda, by their text."""

from __future__ import annotations

import pytest

from npu_cuda.errors import InvalidArgumentError


def refused(text: str, error: type[BaseException] = InvalidArgumentError) -> pytest.RaisesExc[BaseException]:
    """Expect an error whose text matches."""
    return pytest.raises(error, match=text)
