"""The backend that is always there keeps what every backend promises."""

import pytest

from npu_runtime.backends.registry import find_backend
from npu_runtime.executor.aten_backend import AtenBackend
from npu_runtime.testing import BackendContract, zoo


@pytest.mark.exhaustive
class TestAten(BackendContract):
    backend = AtenBackend()


def test_it_is_found_by_name() -> None:
    assert isinstance(find_backend("aten"), AtenBackend)


def test_it_takes_every_node() -> None:
    assert {AtenBackend().supports(node) for graph in zoo().values() for node in graph.nodes} == {None}
