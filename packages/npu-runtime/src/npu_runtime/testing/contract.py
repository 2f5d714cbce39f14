"""What every backend must keep to, as tests: one per promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from npu_ir import Graph
from npu_ir.plugins.backend import Backend
from npu_runtime.testing.bindings import BindContract
from npu_runtime.testing.captures import CaptureContract
from npu_runtime.testing.questions import QuestionContract
from npu_runtime.testing.runs import RunContract


class BackendContract(BindContract, CaptureContract, RunContract, QuestionContract):
    """Tests for a backend; subclass it, state ``backend``, and pytest finds them.

    The graphs are `npu_runtime.testing.zoo`, of which those parts are run that the backend takes; override `graphs`
    to give more. Where the backend finds no device, what needs one is skipped.

    A test that fails raises `BackendError`: which promise is broken, and on which graph.
    """

    @classmethod
    def promises(cls) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the name and function of each test."""
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
        yield from ((name, getattr(cls(), name)) for name in names if name.startswith("test_"))


def check_backend(backend: Backend, graphs: Mapping[str, Graph] | None = None) -> int:
    """Run the contract tests without pytest; return on how many parts of graphs.

    Args:
        backend: What is tested.
        graphs: Further graphs to test on, by name.

    Raises:
        BackendError: A promise is broken; says which, and on which graph.
        unittest.SkipTest: The backend finds no device here.
    """

    class Contract(BackendContract):
        def graphs(self) -> Mapping[str, Graph]:
            return {**super().graphs(), **(graphs or {})}

    Contract.backend = backend
    for _, test in Contract.promises():
        test()
    return len(Contract().trials())
