"""The contract of backends as tests, one per promise."""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence

from npu_ir import Graph
from npu_ir.plugins.backend import Backend
from npu_runtime.testing.captures import BindContract, CaptureContract
from npu_runtime.testing.runs import RunContract
from npu_runtime.testing.samples import SampleContract
from npu_runtime.testing.support import SupportContract


class BackendContract(SampleContract, BindContract, CaptureContract, RunContract, SupportContract):
    """Contract tests for a backend: subclass it and set ``backend``, for pytest to collect.

    The graphs are those of `npu_runtime.testing.zoo`; the tests run the parts that the backend supports.
    Override `graphs` to add some. Results are also tested on PyTorch's samples of ``operators`` and on
    ``random_graphs``. Without a device, tests that need one are skipped.

    A failing test raises `BackendError`, which names the broken promise and the graph.
    """

    @classmethod
    def promises(cls) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the name and function of each test."""
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
        yield from ((name, getattr(cls(), name)) for name in names if name.startswith("test_"))


def check_backend(
    backend: Backend,
    graphs: Mapping[str, Graph] | None = None,
    *,
    operators: Sequence[str] = (),
    random_graphs: int = 0,
) -> int:
    """Run the contract tests without pytest; return the number of graph parts that were tested.

    Args:
        backend: The backend under test.
        graphs: Additional graphs, by name.
        operators: As in `BackendContract`; PyTorch's samples take seconds to load.
        random_graphs: As in `BackendContract`.

    Raises:
        BackendError: A promise is broken; names the promise and the graph.
        unittest.SkipTest: The backend has no device here.
    """

    class Contract(BackendContract):
        def graphs(self) -> Mapping[str, Graph]:
            return {**super().graphs(), **(graphs or {})}

    Contract.backend, Contract.operators, Contract.random_graphs = backend, operators, random_graphs
    Contract().the_device()
    for _, test in Contract.promises():
        with contextlib.suppress(unittest.SkipTest):
            test()
    return len(Contract().trials())
