"""The contract of backends as tests, one per promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from npu_ir import Graph
from npu_ir.plugins.backend import Backend
from npu_runtime.testing.captures import BindContract, CaptureContract
from npu_runtime.testing.runs import RunContract
from npu_runtime.testing.support import SupportContract


class BackendContract(BindContract, CaptureContract, RunContract, SupportContract):
    """Contract tests for a backend: subclass it and set ``backend``, for pytest to collect.

    The graphs are those of `npu_runtime.testing.zoo`; the tests run the parts that the backend supports.
    Override `graphs` to add some. Without a device, tests that need one are skipped.

    A failing test raises `BackendError`, which names the broken promise and the graph.
    """

    @classmethod
    def promises(cls) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the name and function of each test."""
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
        yield from ((name, getattr(cls(), name)) for name in names if name.startswith("test_"))


def check_backend(backend: Backend, graphs: Mapping[str, Graph] | None = None) -> int:
    """Run the contract tests without pytest; return the number of graph parts that were tested.

    Args:
        backend: The backend under test.
        graphs: Additional graphs, by name.

    Raises:
        BackendError: A promise is broken; names the promise and the graph.
        unittest.SkipTest: The backend has no device here.
    """

    class Contract(BackendContract):
        def graphs(self) -> Mapping[str, Graph]:
            return {**super().graphs(), **(graphs or {})}

    Contract.backend = backend
    for _, test in Contract.promises():
        test()
    return len(Contract().trials())
