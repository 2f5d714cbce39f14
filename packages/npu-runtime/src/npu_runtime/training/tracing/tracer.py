"""Tracing of a step function into one graph: forward, backward and optimizer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from npu_ir import NpuError
from npu_ir._torch.tracing import is_tracing
from npu_ir.capture.export_messages import HeldMessages
from npu_ir.capture.model_guard import restore_model
from npu_ir.core.isolation import pause_gc
from npu_ir.core.structure import Structure, flatten, unflatten
from npu_runtime._torch.tracing_context import TracingContext
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.functional_writes import replace_writes
from npu_runtime.training.tracing.lstm_layers import layers_of_lstms
from npu_runtime.training.tracing.optimizers import require_traceable
from npu_runtime.training.tracing.python_state import StepPythonState
from npu_runtime.training.tracing.random_draws import RandomStates, clean_up
from npu_runtime.training.tracing.substitution import ParameterSubstitution
from npu_runtime.training.tracing.traced_step import (
    HYPERPARAMETERS,
    TracedStep,
    build_step_graph,
    extract_gradients,
)
from npu_runtime.training.tracing.unsupported import (
    reject_external_writes,
    reject_fake_tensors,
    reject_hooks,
    reject_host_sync,
    reject_scalers,
    reject_sparse_tensors,
    reject_unregistered_parameters,
    reject_write,
    require_tensor,
    tracing_error,
)

# Tracing patches modules and functions of PyTorch for the whole process: one trace at a time.
_TRACE_LOCK = threading.RLock()


def trace_function(
    function: Callable[..., Any],
    components: TrainingComponents,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
) -> TracedStep:
    """Trace a step function into a graph; modules, optimizers and arguments are left unchanged, bit by bit.

    Args:
        function: Computes gradients with ``backward()``, and calls ``step()`` of the optimizers.
        components: Its training components.
        args: An example batch: numbers, and the shapes and dtypes of tensors matter, not their contents.
        kwargs: The named arguments of the batch.
        name: The name of the graph; by default that of the function.

    Raises:
        TracingError: The step needs the contents of a tensor in Python, or does something that a graph would
            not repeat.
        ConversionError: An op cannot be represented in a graph.
    """
    # A step records gradients in any mode of its caller, and its state is ordinary tensors.
    with _TRACE_LOCK, pause_gc(), torch.inference_mode(False):
        if is_tracing():
            raise TracingError(
                "a step is called by a step that is being traced",
                fix="let the outer step do what the inner one does",
            )
        for optimizer in components.optimizers.values():
            require_traceable(optimizer)
        reject_fake_tensors(components)
        reject_sparse_tensors(components)
        reject_hooks(components)
        if kwargs and HYPERPARAMETERS in kwargs:
            raise TracingError(
                f"a batch has an argument called {HYPERPARAMETERS!r}: a graph takes the numbers of the "
                "optimizers by this name",
                fix="call the argument something else",
            )
        leaves, structure = flatten((tuple(args), dict(kwargs or {})))
        _require_separate_batch(leaves, components)
        name = name or str(getattr(function, "__name__", "step"))
        return _StepTracer(function, ParameterSubstitution(components), (structure, leaves), name).run()


def _require_separate_batch(leaves: Sequence[Any], components: TrainingComponents) -> None:
    """Refuse a parameter in a batch: its gradient would lack what the step computes of it as an input."""
    names = {id(item): name for name, item in components.parameters().items()}
    for leaf in leaves:
        if id(leaf) in names:
            raise TracingError(
                f"the batch contains the parameter {names[id(leaf)]!r} of the step",
                fix="let the step read it from its module; or pass its detach(), without a gradient",
            )


class _StepTracer:
    """The trace of one step."""

    def __init__(
        self,
        function: Callable[..., Any],
        substitution: ParameterSubstitution,
        batch: tuple[Structure, Sequence[Any]],
        name: str,
    ) -> None:
        self._function = function
        self._substitution = substitution
        self._batch = batch
        self._name = name
        self._world = TracingContext()
        self._python_state = StepPythonState(substitution.components, function)
        self._gradients: dict[str, torch.Tensor] = {}  # the gradients at the optimizer step, by parameter
        self._results: Structure | None = None

    def run(self) -> TracedStep:
        substitution, world = self._substitution, self._world
        # The placeholders, in the order that `_run_step`, `extract_gradients` and `build_step_graph` rely on.
        module = self._trace(
            [
                *map(world.fake_tensor, substitution.weights.values()),
                *(world.symbolic_number(key, value) for key, value in substitution.numbers.items()),
                *(world.fake_tensor(item) for item in self._batch[1] if isinstance(item, torch.Tensor)),
                *map(world.fake_tensor, substitution.gradients.values()),
            ]
        )
        extract_gradients(module, list(self._gradients), len(substitution.gradients))
        assert self._results is not None
        graph = build_step_graph(module, substitution, self._batch, self._results, self._name)
        state = {key: tensor for key, tensor in substitution.state.items() if key in graph.optimizer_state}
        return TracedStep(graph, state, world.branches(), substitution.components)

    def _trace(self, fakes: Sequence[Any]) -> GraphModule:
        """Return the functionalized FX graph of the step."""
        with contextlib.ExitStack() as stack:
            for item in self._substitution.components.modules.values():
                stack.enter_context(restore_model(item))
            stack.enter_context(_preserve_rng_state())
            states = RandomStates()
            try:
                with HeldMessages(), states.recording(), reject_scalers(), layers_of_lstms():
                    module = self._world.trace(
                        self._run_step, fakes, self._substitution.components.modules, reject_write
                    )
                reject_host_sync(module)
                reject_unregistered_parameters(module)
                self._python_state.require_replaced_unread(module)
                reject_external_writes(module)
                # Both rewrite in-place random ops: they must run before functionalization removes the writes.
                states.reuse_draws(module)
                clean_up(module)
                return module if replace_writes(module) else self._world.functionalize(module, fakes)
            except NpuError:
                raise
            except Exception as error:
                raise tracing_error(error) from error

    def _run_step(self, *items: Any) -> tuple[list[Any], list[torch.Tensor]]:
        """Run the step function on traced tensors; return its results, and the gradients optimizers saw."""
        substitution = self._substitution
        rest = iter(items)
        weights = {key: next(rest) for key in substitution.weights}
        numbers = {key: next(rest) for key in substitution.numbers}
        structure, leaves = self._batch
        filled = [next(rest) if isinstance(item, torch.Tensor) else item for item in leaves]
        gradients = {key: next(rest) for key in substitution.gradients}
        args, kwargs = unflatten(structure, filled)
        with substitution.substitute(weights, numbers, gradients, self._gradients.update):
            results, self._results = flatten(self._function(*args, **kwargs))
            self._python_state.require_unchanged()
        return list(map(_detach, results)), list(self._gradients.values())


def _detach(result: Any) -> torch.Tensor:
    return require_tensor(result).detach()


@contextlib.contextmanager
def _preserve_rng_state() -> Iterator[None]:
    is_initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    # Asking for the devices of CUDA must not initialize it.
    devices = range(torch.cuda.device_count()) if is_initialized else []
    with torch.random.fork_rng(devices=list(devices)):
        yield
