"""What the contract tests have in common: parts of graphs that a backend takes, prepared and run."""

from __future__ import annotations

import contextlib
import itertools
import unittest
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from npu_ir import Graph, Interpreter, OpNode, TensorType
from npu_ir.errors import BackendError
from npu_ir.ops.effects import is_pure
from npu_ir.plugins.backend import Backend, BackendOp
from npu_runtime.backends.partition import segment_of
from npu_runtime.testing.data import make_inputs, output_problem
from npu_runtime.testing.zoo import zoo

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Trial:
    """A part of a graph as the executor hands it to a backend, and what the backend made of it."""

    backend: Backend
    name: str
    graph: Graph
    ops: Sequence[BackendOp]
    program: Any
    device: torch.device
    tolerance: tuple[float | None, float | None]

    def inputs(self, **how: Any) -> list[Any]:
        """Return inputs on the device of the backend, as `npu_runtime.testing.data.make_inputs` does."""
        return make_inputs(self.graph, self.device, **how)

    def expected(self, inputs: Sequence[Any]) -> list[Any]:
        """Return what the interpreter makes of inputs."""
        on_host = [item.detach().to(_CPU) if isinstance(item, torch.Tensor) else item for item in inputs]
        return Interpreter(self.graph).run_flat(on_host)[0]

    def run(self, inputs: Sequence[Any], program: Any = None) -> Sequence[Any]:
        """Return what the backend makes of inputs."""
        with explained("run", self.name), torch.no_grad():
            return self.backend.run(self.program if program is None else program, inputs)

    def prepare(self) -> Any:
        """Return a further program of the same graph."""
        with explained("prepare", self.name):
            return self.backend.prepare(self.graph, self.ops, self.device)

    def require(self, outputs: Sequence[Any], inputs: Sequence[Any], when: str) -> None:
        """Refuse outputs that are not what the interpreter returns.

        Args:
            outputs: What the backend returned.
            inputs: What it was given.
            when: What was done, for the message.
        """
        problem = output_problem(self.graph, outputs, self.expected(inputs), self.device, self.tolerance)
        if problem is not None:
            raise BackendError(f"{when}: {problem}", where=f"{self.name}\n{str(self.graph).rstrip()}")


class Trials:
    """The backend under test, and the graphs to test it on.

    Attributes:
        backend: What is tested.
        device: Which of its devices to test on; the first if not given.
        rtol: Tolerance of results in relation to the interpreter's; that of the dtype if not given.
        atol: The same in absolute terms.
    """

    backend: ClassVar[Backend]
    device: ClassVar[torch.device | None] = None
    rtol: ClassVar[float | None] = None
    atol: ClassVar[float | None] = None
    _trials: ClassVar[list[Trial] | None] = None

    def graphs(self) -> Mapping[str, Graph]:
        """Return the graphs to test on, by name; to add some: ``{**super().graphs(), "mine": graph}``."""
        return zoo()

    def the_device(self) -> torch.device:
        """Return the device to test on; where there is none, the test is skipped."""
        devices = self.backend.devices()
        if not devices:
            raise unittest.SkipTest(f"{self.backend.name} cannot run here: {self.backend.absence()}")
        return self.device or devices[0]

    def trials(self) -> list[Trial]:
        """Return the parts of the graphs that the backend takes, prepared; once for all tests of a class."""
        kind = type(self)
        if "_trials" not in vars(kind) or kind._trials is None:
            kind._trials = list(self._prepared(self.the_device()))
        if not kind._trials:
            raise BackendError(
                "it supports no node of the graphs that it is tested on",
                where="supports",
                fix="give some: override graphs()",
            )
        return kind._trials

    def _prepared(self, device: torch.device) -> Iterator[Trial]:
        for name, graph in self.parts():
            with explained("lower", name):
                ops = self.backend.lower(graph)
            with explained("prepare", name):
                program = self.backend.prepare(graph, ops, device)
            yield Trial(self.backend, name, graph, ops, program, device, (self.rtol, self.atol))

    def parts(self) -> Iterator[tuple[str, Graph]]:
        """Yield the parts of the graphs that the backend takes: nodes in a row, as graphs without weights."""
        for name, graph in self.graphs().items():
            for is_taken, nodes in itertools.groupby(graph.body, self._takes):
                row = list(nodes)
                part = segment_of(row, name).graph if is_taken else None
                if part is not None and part.outputs:
                    yield (name if len(row) == len(graph.body) else f"{name}: {row[0].name}"), part

    def _takes(self, node: OpNode) -> bool:
        return _can_be_tested(node) and self.backend.supports(node) is None


def _can_be_tested(node: OpNode) -> bool:
    """Whether a node computes the same each time, of types that inputs can be made of."""
    types = [value.type for value in (*node.inputs, *node.outputs)]
    are_plain = all(not isinstance(type, TensorType) or type.layout is torch.strided for type in types)
    return are_plain and is_pure(node) and not any(type.symbols for type in types)


@contextlib.contextmanager
def explained(what: str, where: str) -> Iterator[None]:
    """Say what was done to which graph when a backend fails."""
    try:
        yield
    except Exception as error:
        raise BackendError(f"{what} failed: {type(error).__name__}: {error}", where=where) from error
