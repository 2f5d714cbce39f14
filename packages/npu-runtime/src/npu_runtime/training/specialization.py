"""One graph of a step, bound to the memory of its model: for one shape of the batch, and one set of modes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import Graph
from npu_ir.core.structure import LEAF, flatten, unflatten
from npu_ir.ops.effects import is_random
from npu_ir.plugins.backend import Backend
from npu_runtime._torch import record_gradients
from npu_runtime.errors import FallbackWarning
from npu_runtime.executor.options import Passes
from npu_runtime.training.capture.snapshots import Snapshot
from npu_runtime.training.compile import CompileArtifact, compile_and_capture
from npu_runtime.training.compiled_step import OFF
from npu_runtime.training.shared_state import is_alike
from npu_runtime.training.tracing.components import Subjects
from npu_runtime.training.tracing.hyperparameters import Reader
from npu_runtime.training.tracing.substitution import Originals
from npu_runtime.training.tracing.traced_step import TracedStep
from npu_runtime.training.tracing.tracer import trace_function


def batch_key(batch: Sequence[Any], named: Mapping[str, Any]) -> Hashable:
    """Return what a step is traced for of a batch: its nest, shapes, dtypes and devices, and what is no tensor."""
    leaves, structure = flatten((tuple(batch), dict(named)))
    return structure, tuple(map(_leaf_key, leaves))


def _leaf_key(item: Any) -> Hashable:
    if isinstance(item, torch.Tensor):
        return type(item), item.shape, item.stride(), item.dtype, item.device
    return type(item), repr(item)


def make_variant(
    function: Callable[..., Any],
    subjects: Subjects,
    batch: Sequence[Any],
    named: Mapping[str, Any],
    backend: str | Backend | Sequence[str | Backend],
    passes: Passes,
    capture: str,
) -> Variant:
    """Trace a step, and capture it.

    Raises:
        TracingError: The step cannot become a graph.
        UnknownStateError: Only a first step tells what state an optimizer keeps.
        CaptureError: It cannot be captured, and has to be.
    """
    name = getattr(function, "__name__", "step")
    traced = trace_function(function, subjects, batch, named, name=name)
    artifact = compile_and_capture(traced, backend=backend, passes=passes, capture=capture)
    if capture == "prefer" and artifact.capture_state == OFF:
        warnings.warn(f"the step runs op by op: {artifact.reason}", FallbackWarning, stacklevel=5)
    return Variant(traced, artifact, batch, named)


class Variant:
    """A traced step that runs on the tensors of its modules and optimizers.

    Args:
        traced: The step.
        artifact: What runs it.
        batch: What it was traced on.
        named: Likewise.
    """

    def __init__(
        self, traced: TracedStep, artifact: CompileArtifact, batch: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        self.traced = traced
        self.artifact = artifact
        self._key = batch_key(batch, named)
        leaves, _ = flatten((tuple(batch), dict(named)))
        is_flat = not named and all(isinstance(item, torch.Tensor) for item in batch)
        self._flat = (
            [(item.shape, item.stride(), item.dtype, item.device) for item in leaves] if is_flat else None
        )
        self._places = [index for index, item in enumerate(leaves) if isinstance(item, torch.Tensor)]
        self._structure = self.graph.results[0]
        self._draws = any(map(is_random, self.graph.nodes))
        self._devices = list(dict.fromkeys(item.device for item in traced.weights().values()))
        self._values: list[float] = []
        self._bind()

    @property
    def graph(self) -> Graph:
        """The graph, after the passes."""
        return self.artifact.graph

    def is_for(self, batch: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        """Whether it was traced for such a batch, and for what the hyperparameters are now."""
        return self._is_like(batch, named) and self.holds()

    def holds(self) -> bool:
        """Whether Python would take the branches again that it took by the value of hyperparameters."""
        values = self._read()
        if values != self._values:
            given = dict(zip(self._names, values, strict=True))
            changed = {
                name for name, old in zip(self._names, self._values, strict=True) if given[name] != old
            }
            asked = (branch for branch in self.traced.branches if not changed.isdisjoint(branch.names))
            if not all(branch.holds(given) for branch in asked):
                return False
            self._values = values
        return True

    def run(self, batch: tuple[Any, ...], named: Mapping[str, Any], *, borrow: bool) -> Any:
        """Take a step; `is_for` has said yes just before."""
        leaves: Sequence[Any] = batch if self._flat is not None else flatten((batch, dict(named)))[0]
        before = torch.is_grad_enabled()
        record_gradients(False)
        try:
            for fixed, index in self._copies:
                fixed.copy_(leaves[index])
        finally:
            record_gradients(before)
        results = self._launched()
        for fixed, index in self._written:
            _write_back(leaves[index], fixed)
        if not borrow:
            results = [item.clone() for item in results]
        return results[0] if self._structure.kind == LEAF else unflatten(self._structure, list(results))

    def rebind(self) -> bool:
        """Work on the tensors that modules and optimizers have now; False where the state is of another kind."""
        state = Originals(self.traced.subjects).state
        for name, old in self.traced.state.items():
            new = state.get(name)
            if new is None or not is_alike(new, old):
                return False
        self.traced.state.update({name: state[name] for name in self.traced.state})
        self.artifact.rebind(self.traced.weights())
        self._bind()
        return True

    def __str__(self) -> str:
        return str(self.artifact)

    # Inside

    def _is_like(self, batch: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        if self._flat is None or named:
            return batch_key(batch, named) == self._key
        if len(batch) != len(self._flat):
            return False
        for item, (shape, stride, dtype, device) in zip(batch, self._flat):  # noqa: B905 - as many as there are
            if type(item) is not torch.Tensor or item.shape != shape:
                return batch_key(batch, named) == self._key
            if item.stride() != stride or item.dtype is not dtype or item.device != device:
                return False
        return True

    def _bind(self) -> None:
        subjects = self.traced.subjects
        graph = self.graph
        inputs = {
            value.argument.target: index
            for index, value in enumerate(graph.inputs)
            if value.argument is not None
        }
        batch = sorted((name for name in inputs if name.startswith("batch")), key=lambda name: int(name[5:]))
        written = {value.argument.target for value in graph.updates if value.argument is not None}
        self._copies: list[tuple[torch.Tensor, int]] = []
        self._written: list[tuple[torch.Tensor, int]] = []  # what the step changes of the batch
        for number, place in enumerate(self._places):
            fixed = self.artifact.inputs[inputs[f"batch{number}"]] if f"batch{number}" in batch else None
            if fixed is not None:
                self._copies.append((fixed, place))
                if f"batch{number}" in written:
                    self._written.append((fixed, place))
        self._open = [name for name in inputs if name not in batch]
        self._names = list(self._branch_names() | set(self._open))
        self._names.sort(key=lambda name: (name not in inputs, inputs.get(name, 0)))
        self._read = Reader(subjects.optimizers, self._names)
        self._values = self._read()

    def _branch_names(self) -> set[str]:
        return {name for branch in self.traced.branches for name in branch.names}

    def _launched(self) -> Sequence[Any]:
        numbers = self._values[: len(self._open)]
        if not self._draws:
            return self.artifact.launch(numbers)
        before = Snapshot((), devices=self._devices)
        try:
            return self.artifact.launch(numbers)
        except BaseException:
            before.restore()
            raise


def _write_back(tensor: torch.Tensor, content: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(content)
