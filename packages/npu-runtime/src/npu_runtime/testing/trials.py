"""Base of the contract tests: the parts of graphs that a backend supports, prepared and run."""

from __future__ import annotations

import contextlib
import functools
import itertools
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch

from npu_ir import Graph, Interpreter, OpNode, TensorType, Value
from npu_ir.errors import BackendError
from npu_ir.graph.partition import PartitionGraph
from npu_ir.ops.effects import is_pure
from npu_ir.plugins.backend import Backend, BackendOp
from npu_runtime.backends.partition import extract_partition
from npu_runtime.backends.registry import find_backend
from npu_runtime.testing.data import make_inputs, output_problem
from npu_runtime.testing.zoo import zoo

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module

_CPU = torch.device("cpu")
# Returns None for inputs that it does not take.
QuickRun: TypeAlias = "Callable[[list[Any]], Sequence[Any] | None]"


@dataclass(frozen=True)
class Part:
    """Consecutive nodes of a graph that a backend supports, as a graph of their own.

    Attributes:
        name: The name of the whole graph, and of the first node if these are not all.
        graph: The nodes, as the executor passes them to a backend.
        outer_values: The values of the whole graph by those of this one.
    """

    name: str
    graph: PartitionGraph
    outer_values: Mapping[Value, Value]

    @property
    def ops(self) -> str:
        return ", ".join(dict.fromkeys(node.op_type for node in self.graph.nodes))

    def outer(self, value: Value) -> Value:
        """Return the value of the whole graph."""
        return self.outer_values[value]


@dataclass(frozen=True)
class Trial:
    """A partition as the executor passes it to a backend, with the ops and the program of the backend."""

    backend: Backend
    name: str
    graph: PartitionGraph
    ops: Sequence[BackendOp]
    program: Any
    device: torch.device
    tolerance: tuple[float | None, float | None]

    def inputs(self, **how: Any) -> list[Any]:
        """Return inputs on the device of the backend, as `npu_runtime.testing.data.make_inputs` does."""
        return make_inputs(self.graph, self.device, **how)

    def compute_expected(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of the interpreter."""
        on_host = [item.detach().to(_CPU) if isinstance(item, torch.Tensor) else item for item in inputs]
        return self._interpreter.run_flat(on_host)[0]

    @functools.cached_property
    def _interpreter(self) -> Interpreter:
        return Interpreter(self.graph)

    def run(self, inputs: Sequence[Any], program: Any = None) -> Sequence[Any]:
        """Return the outputs of the backend."""
        with error_context("run", self.name), torch.no_grad():
            return self.backend.run(self.program if program is None else program, inputs)

    def make_quick_run(self) -> QuickRun:
        """Return the quick run of the backend; where it has none, a function that takes no inputs."""
        with error_context("make_quick_run", self.name):
            quick_run = self.backend.make_quick_run(self.program)

        def run(inputs: list[Any]) -> Sequence[Any] | None:
            with error_context("a quick run", self.name), torch.no_grad():
                return None if quick_run is None else quick_run(inputs)

        return run

    def prepare(self) -> Any:
        """Return another program of the same graph."""
        with error_context("prepare", self.name):
            return self.backend.prepare(self.graph, self.ops, self.device)

    def require(self, outputs: Sequence[Any], inputs: Sequence[Any], when: str) -> None:
        """Refuse outputs that are not what the interpreter returns; the message says ``when``."""
        problem = output_problem(
            self.graph, outputs, self.compute_expected(inputs), self.device, self.tolerance
        )
        if problem is not None:
            raise BackendError(
                f"{when}: {problem}",
                where=f"{self.name}\n{str(self.graph).rstrip()}",
                fix="correct the kernel, or have supports() refuse the node with a reason",
            )


class Trials:
    """The backend under test, and the graphs to test it on.

    Attributes:
        backend: The backend under test, or its name; names are looked up among the installed plugins.
        device: The device to test on; the first one of the backend if not given.
        rtol: The relative tolerance to results of the interpreter; that of the dtype if not given.
        atol: The absolute tolerance.
    """

    backend: ClassVar[Backend]
    device: ClassVar[torch.device | None] = None
    rtol: ClassVar[float | None] = None
    atol: ClassVar[float | None] = None
    _trials: ClassVar[list[Trial] | None] = None

    def __init_subclass__(cls) -> None:
        """Look up a backend that is given by name."""
        super().__init_subclass__()
        named: Any = vars(cls).get("backend")
        if isinstance(named, str):
            cls.backend = find_backend(named)

    def graphs(self) -> Mapping[str, Graph]:
        """Return the graphs to test on, by name; to add some: ``{**super().graphs(), "mine": graph}``."""
        return zoo()

    def the_device(self) -> torch.device:
        """Return the device to test on; skip the test if there is none."""
        devices = self.backend.devices()
        if not devices:
            raise unittest.SkipTest(f"{self.backend.name} cannot run here: {self.backend.absence()}")
        return self.device or devices[0]

    def trials(self) -> list[Trial]:
        """Return the supported parts of the graphs, prepared once for all tests of a class."""
        kind = type(self)
        if "_trials" not in vars(kind) or kind._trials is None:
            kind._trials = list(self._prepare_trials(self.the_device()))
        if not kind._trials:
            raise BackendError(
                "it supports no node of the graphs that it is tested on",
                where="supports",
                fix="give some: override graphs()",
            )
        return kind._trials

    def _prepare_trials(self, device: torch.device) -> Iterator[Trial]:
        for name, graph in self.graphs().items():
            for part in self.parts_of(name, graph):
                yield self.prepare_trial(part, device)

    def prepare_trial(self, part: Part, device: torch.device) -> Trial:
        """Return a part of a graph, lowered and prepared."""
        with error_context("lower", part.name):
            ops = self.backend.lower(part.graph)
        with error_context("prepare", part.name):
            program = self.backend.prepare(part.graph, ops, device)
        return Trial(self.backend, part.name, part.graph, ops, program, device, (self.rtol, self.atol))

    def parts(self) -> Iterator[tuple[str, PartitionGraph]]:
        """Yield the supported parts of the graphs: partitions of consecutive nodes, without weights."""
        for name, graph in self.graphs().items():
            yield from ((part.name, part.graph) for part in self.parts_of(name, graph))

    def parts_of(self, name: str, graph: Graph) -> Iterator[Part]:
        """Yield the supported parts of one graph."""
        for is_supported, consecutive in itertools.groupby(graph.body, self._is_supported):
            nodes = list(consecutive)
            if not is_supported:
                continue
            partition, values = extract_partition(nodes, name)
            if partition.outputs:
                where = name if len(nodes) == len(graph.body) else f"{name}: {nodes[0].name}"
                yield Part(where, partition, {inner: outer for outer, inner in values.items()})

    def _is_supported(self, node: OpNode) -> bool:
        return _can_be_tested(node) and self.backend.supports(node) is None


def _can_be_tested(node: OpNode) -> bool:
    """Return whether a node is deterministic, and sample inputs of its types can be generated."""
    types = [value.type for value in (*node.inputs, *node.outputs)]
    are_plain = all(not isinstance(type, TensorType) or type.layout is torch.strided for type in types)
    return are_plain and is_pure(node) and not any(type.symbols for type in types)


@contextlib.contextmanager
def error_context(what: str, where: str) -> Iterator[None]:
    """Add the operation and the graph to an error of a backend."""
    try:
        yield
    except Exception as error:
        raise BackendError(
            f"{what} failed: {type(error).__name__}: {error}",
            where=where,
            fix=f"correct {what}, or have supports() refuse the node with a reason",
        ) from error
