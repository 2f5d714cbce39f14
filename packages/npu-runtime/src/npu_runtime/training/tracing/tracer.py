"""Tracing of a step function into one graph: forward, backward and optimizer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from npu_ir import NpuError
from npu_ir.capture.export_messages import HeldMessages
from npu_ir.capture.model_guard import restored
from npu_ir.core.paused_gc import no_collection
from npu_ir.core.structure import Structure, flatten, unflatten
from npu_runtime._torch.tracing import TracingWorld, is_tracing
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.cleanup import clean
from npu_runtime.training.tracing.components import Subjects
from npu_runtime.training.tracing.module_attributes import Attributes
from npu_runtime.training.tracing.optimizers import require_traceable
from npu_runtime.training.tracing.rng_state import RandomStates
from npu_runtime.training.tracing.step_graph import step_graph, take_gradients
from npu_runtime.training.tracing.substitution import Originals
from npu_runtime.training.tracing.traced_step import TracedStep
from npu_runtime.training.tracing.unsupported import (
    refuse_write,
    require_no_hooks,
    require_no_strangers,
    require_no_sync,
    require_no_writes_outside,
    require_tensor,
    scalers_refused,
    untraceable,
)

# Tracing patches modules and functions of PyTorch for the whole process: one trace at a time.
_ONE_AT_A_TIME = threading.RLock()


def trace_function(
    function: Callable[..., Any],
    subjects: Subjects,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "step",
) -> TracedStep:
    """Trace a step function into a graph; modules, optimizers and arguments are left unchanged, bit by bit.

    Args:
        function: Computes gradients with ``backward()``, and calls ``step()`` of the optimizers.
        subjects: Its training components.
        args: An example batch: numbers, and the shapes and dtypes of tensors matter, not their contents.
        kwargs: The named arguments of the batch.
        name: The name of the graph.

    Raises:
        TracingError: The step needs the contents of a tensor in Python, or does something that a graph would
            not repeat.
        ConversionError: An op cannot be represented in a graph.
    """
    for optimizer in subjects.optimizers.values():
        require_traceable(optimizer)
    require_no_hooks(subjects)
    with _ONE_AT_A_TIME, no_collection():
        if is_tracing():
            raise TracingError(
                "a step is called by a step that is being traced",
                fix="let the outer step do what the inner one does",
            )
        leaves, structure = flatten((tuple(args), dict(kwargs or {})))
        return _Tracing(function, Originals(subjects), (structure, leaves), name).run()


class _Tracing:
    """The trace of one step."""

    def __init__(
        self,
        function: Callable[..., Any],
        originals: Originals,
        batch: tuple[Structure, Sequence[Any]],
        name: str,
    ) -> None:
        self._function = function
        self._originals = originals
        self._batch = batch
        self._name = name
        self._world = TracingWorld()
        self._attributes = Attributes(originals.subjects)
        self._found: dict[str, torch.Tensor] = {}  # the gradients at the optimizer step, by parameter
        self._results: Structure | None = None

    def run(self) -> TracedStep:
        originals, world = self._originals, self._world
        # The placeholders, in the order that `_step`, `take_gradients` and `step_graph` rely on.
        module = self._traced(
            [
                *map(world.tensor, originals.weights.values()),
                *(world.number(key, value) for key, value in originals.numbers.items()),
                *(world.tensor(item) for item in self._batch[1] if isinstance(item, torch.Tensor)),
                *map(world.tensor, originals.gradients.values()),
            ]
        )
        gradients = take_gradients(module, list(self._found), len(originals.gradients))
        assert self._results is not None
        graph = step_graph(module, originals, self._batch, self._results, self._name)
        state = {key: tensor for key, tensor in originals.state.items() if key in graph.optimizer_state}
        return TracedStep(graph, state, world.branches(), gradients, originals.subjects)

    def _traced(self, fakes: Sequence[Any]) -> GraphModule:
        """Return the functionalized FX graph of the step."""
        with contextlib.ExitStack() as stack:
            for item in self._originals.subjects.modules.values():
                stack.enter_context(restored(item))
            stack.enter_context(_random_numbers_kept())
            states = RandomStates()
            try:
                with HeldMessages(), states.noted(), scalers_refused():
                    module = self._world.trace(self._step, fakes, refuse_write)
                require_no_sync(module)
                require_no_strangers(module)
                self._attributes.require_unread(module)
                require_no_writes_outside(module)
                # Both rewrite in-place random ops: they must run before functionalization removes the writes.
                states.draw_again(module)
                clean(module)
                return self._world.functional(module, fakes)
            except NpuError:
                raise
            except Exception as error:
                raise untraceable(error) from error

    def _step(self, *items: Any) -> tuple[list[Any], list[torch.Tensor]]:
        """Run the step function on traced tensors; return its results, and the gradients optimizers saw."""
        originals = self._originals
        rest = iter(items)
        weights = {key: next(rest) for key in originals.weights}
        numbers = {key: next(rest) for key in originals.numbers}
        structure, leaves = self._batch
        filled = [next(rest) if isinstance(item, torch.Tensor) else item for item in leaves]
        gradients = {key: next(rest) for key in originals.gradients}
        args, kwargs = unflatten(structure, filled)
        with originals.replaced(weights, numbers, gradients, self._found.update):
            results, self._results = flatten(self._function(*args, **kwargs))
            self._attributes.require_same_numbers()
        return list(map(_plain, results)), list(self._found.values())


def _plain(result: Any) -> torch.Tensor:
    return require_tensor(result).detach()


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    is_initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    # Asking for the devices of CUDA must not initialize it.
    devices = range(torch.cuda.device_count()) if is_initialized else []
    with torch.random.fork_rng(devices=list(devices)):
        yield
