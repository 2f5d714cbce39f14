"""Specializations of a training step: one traced graph per batch signature and modes, bound to the model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import Graph
from npu_ir.core.structure import flatten, make_unflatten
from npu_ir.ops.effects import is_random
from npu_ir.plugins.backend import Backend
from npu_runtime._torch.state import record_gradients
from npu_runtime.errors import FallbackWarning
from npu_runtime.executor.options import Passes
from npu_runtime.training.capture.runners import OFF
from npu_runtime.training.capture.snapshots import Snapshot
from npu_runtime.training.compile import CompileArtifact, compile_and_capture
from npu_runtime.training.shared_state import has_same_type
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.hyperparameters import HyperparameterReader
from npu_runtime.training.tracing.substitution import ParameterSubstitution
from npu_runtime.training.tracing.traced_step import TracedStep
from npu_runtime.training.tracing.tracer import trace_function


def batch_signature(batch: Sequence[Any], named: Mapping[str, Any]) -> Hashable:
    """Return the signature of a batch: structure, types of its tensors, and its other leaves by value."""
    leaves, structure = flatten((tuple(batch), dict(named)))
    return structure, tuple(map(_leaf_signature, leaves))


def _leaf_signature(item: Any) -> Hashable:
    if isinstance(item, torch.Tensor):
        return type(item), item.shape, item.stride(), item.dtype, item.device
    return type(item), repr(item)


def make_specialization(
    function: Callable[..., Any],
    components: TrainingComponents,
    batch: Sequence[Any],
    named: Mapping[str, Any],
    backend: str | Backend | Sequence[str | Backend],
    passes: Passes,
    capture: str,
) -> Specialization:
    """Trace a step for a batch, and capture it.

    Raises:
        TracingError: The step cannot be traced into a graph.
        UnknownStateError: Only a first step reveals what state an optimizer keeps.
        CaptureError: It cannot be captured, and ``capture`` is ``"require"``.
    """
    name = getattr(function, "__name__", "step")
    traced = trace_function(function, components, batch, named, name=name)
    artifact = compile_and_capture(traced, backend=backend, passes=passes, capture=capture)
    if capture == "prefer" and artifact.capture_state == OFF:
        warnings.warn(f"the step runs op by op: {artifact.reason}", FallbackWarning, stacklevel=5)
    return Specialization(traced, artifact, batch, named)


class Specialization:
    """A traced step, specialized for one batch signature and bound to the tensors of its training components.

    Args:
        traced: The step.
        artifact: The compiled step.
        batch: The positional arguments that it was traced on.
        named: The named ones.
    """

    def __init__(
        self, traced: TracedStep, artifact: CompileArtifact, batch: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        self.traced = traced
        self.artifact = artifact
        self._signature = batch_signature(batch, named)
        leaves, _ = flatten((tuple(batch), dict(named)))
        # A batch of tensors only, the usual case, is compared without flattening it and building its key.
        is_flat = not named and all(isinstance(item, torch.Tensor) for item in batch)
        self._tensor_signatures = (
            [(item.shape, item.stride(), item.dtype, item.device) for item in leaves] if is_flat else None
        )
        self._tensor_leaves = [index for index, item in enumerate(leaves) if isinstance(item, torch.Tensor)]
        self._unflatten = make_unflatten(self.graph.results[0])
        self._is_random = any(map(is_random, self.graph.nodes))
        self._devices = list(dict.fromkeys(item.device for item in traced.weights().values()))
        self._values: list[float] = []
        self._bind()

    @property
    def graph(self) -> Graph:
        """The graph, after the passes."""
        return self.artifact.graph

    def matches(self, batch: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        """Return whether it was traced for this batch signature, and its guards on hyperparameters hold."""
        return self._has_same_signature(batch, named) and self.branches_hold()

    def branches_hold(self) -> bool:
        """Return whether Python would again take the branches that the trace took on hyperparameters."""
        values = self._read_numbers()
        if values != self._values:
            current = dict(zip(self._names, values, strict=True))
            changed = {
                name for name, old in zip(self._names, self._values, strict=True) if current[name] != old
            }
            # A scheduler may change the learning rate at each step: only branches on it are evaluated.
            affected = (branch for branch in self.traced.branches if not changed.isdisjoint(branch.names))
            if not all(branch.holds(current) for branch in affected):
                return False
            self._values = values
        return True

    def run(self, batch: tuple[Any, ...], named: Mapping[str, Any], *, borrow: bool) -> Any:
        """Take a step; the caller has just checked the batch and the guards."""
        leaves: Sequence[Any] = (
            batch if self._tensor_signatures is not None else flatten((batch, dict(named)))[0]
        )
        before = torch.is_grad_enabled()
        record_gradients(False)  # copies of tensors that require gradients would record a graph of autograd
        try:
            for fixed, index in self._staged_inputs:
                fixed.copy_(leaves[index])
        finally:
            record_gradients(before)
        results = self._launch()
        for fixed, index in self._mutated_inputs:
            _write_back(leaves[index], fixed)
        if not borrow:
            results = [item.clone() for item in results]
        return self._unflatten(results)

    def rebind(self) -> bool:
        """Bind to the current tensors of the components; False where state is missing or of another type."""
        state = ParameterSubstitution(self.traced.components).state
        for name, old in self.traced.state.items():
            new = state.get(name)
            if new is None or not has_same_type(new, old):
                return False
        self.traced.state.update({name: state[name] for name in self.traced.state})
        self.artifact.rebind(self.traced.weights())
        self._bind()
        return True

    def __str__(self) -> str:
        return str(self.artifact)

    # Inside

    def _has_same_signature(self, batch: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        if self._tensor_signatures is None or named:
            return batch_signature(batch, named) == self._signature
        if len(batch) != len(self._tensor_signatures):
            return False
        # Lengths are equal; strict=True would cost time in each call.
        for item, (shape, stride, dtype, device) in zip(batch, self._tensor_signatures):  # noqa: B905
            if type(item) is not torch.Tensor or item.shape != shape:
                return batch_signature(batch, named) == self._signature
            if item.stride() != stride or item.dtype is not dtype or item.device != device:
                return False
        return True

    def _bind(self) -> None:
        components = self.traced.components
        graph = self.graph
        inputs = {
            value.argument.target: index
            for index, value in enumerate(graph.inputs)
            if value.argument is not None
        }
        batch = sorted((name for name in inputs if name.startswith("batch")), key=lambda name: int(name[5:]))
        written = {value.argument.target for value in graph.updates if value.argument is not None}
        self._staged_inputs: list[tuple[torch.Tensor, int]] = []
        self._mutated_inputs: list[
            tuple[torch.Tensor, int]
        ] = []  # tensors of the batch that the step mutates
        for number, leaf in enumerate(self._tensor_leaves):
            fixed = self.artifact.inputs[inputs[f"batch{number}"]] if f"batch{number}" in batch else None
            if fixed is not None:
                self._staged_inputs.append((fixed, leaf))
                if f"batch{number}" in written:
                    self._mutated_inputs.append((fixed, leaf))
        self._scalar_inputs = [name for name in inputs if name not in batch]
        # The inputs of the graph first, in its order: `_launch` passes a prefix of the values on.
        self._names = list(self._branch_names() | set(self._scalar_inputs))
        self._names.sort(key=lambda name: (name not in inputs, inputs.get(name, 0)))
        self._read_numbers = HyperparameterReader(components.optimizers, self._names)
        self._values = self._read_numbers()

    def _branch_names(self) -> set[str]:
        return {name for branch in self.traced.branches for name in branch.names}

    def _launch(self) -> Sequence[Any]:
        numbers = self._values[: len(self._scalar_inputs)]
        if not self._is_random:
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
