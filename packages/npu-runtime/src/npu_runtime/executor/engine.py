"""Execution of a compiled graph: argument checks, the call itself, result ownership, mutated state."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from npu_ir import ExecutionError, Graph, Value
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.node import external_names
from npu_ir.core.storage import shares_storage
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs, flatten_arguments
from npu_ir.interpreter.run_nodes import Observer, require_in_range
from npu_ir.ops.execution import describe, is_of_type
from npu_runtime._torch.state import (
    active_tracer,
    below_autograd_with,
    has_default_torch_state,
    kernel_settings,
    may_be_traced,
    record_gradients,
)
from npu_runtime.codegen.call_binder import make_binder
from npu_runtime.codegen.compiled_function import BoundFunction
from npu_runtime.codegen.compiler import Compiled, mutated_state
from npu_runtime.executor.bound_call import BoundCall, are_in_place, bind_call
from npu_runtime.executor.bound_weights import BoundWeights
from npu_runtime.executor.fixed_sizes import FixedSizes
from npu_runtime.executor.held_state import HeldState
from npu_runtime.executor.node_by_node import run_node_by_node
from npu_runtime.executor.overwritten_inputs import OverwrittenInputs, ReadMemory
from npu_runtime.executor.result_ownership import plan_results
from npu_runtime.executor.weight_versions import WeightVersions
from npu_runtime.probing.storage import layouts_of, with_stated_strides

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor

_T = TypeVar("_T")
_NO_CONTEXT = contextlib.nullcontext()


class Engine:
    """A compiled graph with its bound weights and its mutated state.

    Args:
        graph: The graph.
        compiled: The same, compiled.
        bound: Its weights.
        device: The device to run on.
        threads: The number of intra-op threads during calls; None for that of the process.
        donated: The inputs in whose memory every call may write.
        share: The engine whose state this one works on, too, where the names are the same.

    Attributes:
        bound: The weights.
        fixed_sizes: Executors that run the calls of their sizes in place of this engine; None without any.
        kept_inputs: Of an engine for fixed sizes, the inputs of the graph with open sizes that it takes.
    """

    def __init__(
        self,
        graph: Graph,
        compiled: Compiled,
        bound: BoundWeights,
        device: torch.device,
        threads: int | None,
        donated: Collection[Value] = (),
        share: Engine | None = None,
    ) -> None:
        self._graph = graph
        self._compiled = compiled
        self._device = device
        self._threads = threads
        self._plan = plan_results(graph, compiled.alias_sets, compiled.in_place)
        self._overwritten = OverwrittenInputs.of(graph, compiled.overwritten, donated)
        # Calls that change neither state, nor their arguments, nor the process-wide thread count may run
        # concurrently.
        self._is_concurrent = not self._plan.state and not compiled.overwritten and threads is None
        self._bind_arguments = make_binder(graph, device)
        self._arguments = (*graph.inputs, *mutated_state(graph))
        replaced = graph.replacements
        self._replaced_buffers = [item for item in enumerate(mutated_state(graph)) if item[1] in replaced]
        self._has_partitions = any(item.is_partition for item in compiled.instructions)
        self._has_aten = any(not item.is_partition for item in compiled.instructions)
        self._outside_autograd = below_autograd_with(layouts_of(graph))
        self._settings = kernel_settings()
        self.bound = bound
        self.fixed_sizes: FixedSizes | None = None
        self.kept_inputs: Sequence[int] | None = None
        self._state: HeldState = HeldState(graph, bound.state, None if share is None else share._state)
        self._active_binding = bound.prologue, compiled.program.bind(bound.values)
        self._read_weights = self._memory_of_weights()
        self._written_apart: tuple[ReadMemory, list[int]] | None = None
        self._versions = WeightVersions(graph, bound.tensors, bound.values)

    def _memory_of_weights(self) -> ReadMemory:
        # Of those that the caller has passed, too, some of which only the prologue has read.
        is_written = self._overwritten.places or not self._graph.updates.keys().isdisjoint(self._graph.inputs)
        return ReadMemory({**self.bound.tensors, **self.bound.values} if is_written else {})

    def require_apart_from_weights(self, inputs: Mapping[Value, torch.Tensor]) -> None:
        """Refuse tensors to write to in which a weight is: calls would read it as it was before.

        Raises:
            ExecutionError: One shares memory with a weight.
        """
        places = self._read_weights, [tensor.data_ptr() for tensor in inputs.values()]
        if places == self._written_apart:
            return
        for value, tensor in inputs.items():
            weight = self._read_weights.find_sharing(tensor)
            if weight is not None:
                raise ExecutionError(
                    f"the model writes to its input %{value.name}, but the tensor that is given shares "
                    f"memory with %{weight}",
                    where=f"graph {self._graph.name!r}",
                    fix="pass a copy of it (clone)",
                )
        self._written_apart = places

    def bind(self, bound: BoundWeights) -> None:
        """Bind other weights."""
        binding = bound.prologue, self._compiled.program.bind(bound.values)
        versions = WeightVersions(self._graph, bound.tensors, bound.values)
        with self._state.lock:
            self._state.require_idle()
            if self._state.is_shared:
                raise ExecutionError(
                    "other weights for one executor of several that share state would not reach the others",
                    where=f"graph {self._graph.name!r}",
                    fix="make the executors anew",
                )
            self.bound = bound
            self._read_weights = self._memory_of_weights()
            self._versions = versions
            self._state.reset(bound.state)
            # One attribute, swapped atomically: a concurrent call sees all of the old weights or all of the
            # new ones.
            self._active_binding = binding
        if self.fixed_sizes is not None:
            self.fixed_sizes.bind(bound)

    @property
    def resets(self) -> int:
        """As `HeldState.resets`."""
        return self._state.resets

    def reset(self) -> None:
        """Reset mutated state to its content when the weights were bound."""
        with self._state.lock:
            self._state.require_idle()
            self._state.reset(self.bound.state)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return parameters and persistent buffers by ``state_dict`` key, with the current content."""
        with self._state.lock:
            return self.bound.state_dict(self._current_state())

    def current_weights(self) -> BoundWeights:
        """Return the weights with the current content of mutated state, whose tensors no call writes to."""
        with self._state.lock:
            return replace(self.bound, state=self._current_state())

    def _current_state(self) -> tuple[torch.Tensor, ...]:
        """Return the content of the state in memory that no call writes to."""
        return self._state.snapshot(is_overwritten=self._plan.keeps_state)

    def instrument(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Engine:
        """Return a copy with a state of its own that calls ``wrap(function)`` in place of each function.

        Its calls write to no argument.
        """
        instrumented = copy.copy(self)
        with self._state.lock:
            instrumented._state = self._state.copy()
            instrumented.fixed_sizes = None
            instrumented._overwritten = self._overwritten.kept()
            ops = tuple(map(wrap, self._compiled.program.source.ops))
            instrumented._active_binding = (
                self.bound.prologue,
                self._compiled.program.bind(self.bound.values, ops),
            )
        return instrumented

    def weights(self) -> dict[Value, torch.Tensor]:
        """Return the tensor of each parameter, buffer and constant; copies of mutated state."""
        with self._state.lock:
            state = zip(mutated_state(self._graph), self._state.clones(), strict=True)
            held = {value: tensor.to(self._device) for value, tensor in self.bound.tensors.items()}
            return {**held, **dict(state)}

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restore mutated state on exit."""
        with self._state.lock:
            before = self._state.clones()
            try:
                yield
            finally:
                self._state.set(before)

    def trust(self, inputs: Collection[Value]) -> None:
        """Stop comparing these inputs with their types."""
        self._bind_arguments = make_binder(self._graph, self._device, inputs)

    def given_inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs among the arguments of a call, in order; only the nesting is checked."""
        bound = self._bind_arguments(args, kwargs)
        if bound is not None:
            return bound[0]
        items = zip(self._graph.call[1], flatten_arguments(self._graph, args, kwargs), strict=True)
        found = {leaf: item for leaf, item in items if isinstance(leaf, Value)}
        return [found[value] for value in self._graph.inputs]

    def call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, writes: bool = False
    ) -> Sequence[Any]:
        """Return what the generated function returns on these arguments, which are checked first.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            writes: Whether those that the model writes to may be written to; donated ones may always. What
                is in their memory then is the new content.
        """
        if self._is_concurrent:
            return self._call(args, kwargs)
        return self._exclusively(self._call, args, kwargs, writes)

    def bind_call(self, args: Sequence[Any], memory: Mapping[int, torch.Tensor]) -> BoundCall | None:
        """Return a call over fixed memory; None where it would need Python. State stays where it is then.

        Args:
            args: Positional arguments, whose contents later runs read.
            memory: Where results are to be, by number: tensors of their types.
        """
        given = self._bind_arguments(tuple(args), {})
        state = mutated_state(self._graph)
        plan = self._plan
        if (
            given is None
            or self._graph.symbols
            or self._overwritten.places
            or plan.may_share_constants
            or plan.in_state
            or not are_in_place(self._graph, self._compiled, state)
        ):
            return None
        with self._state.lock, self._outside_autograd():
            self._state.require_idle()
            tensors = dict(zip(self._arguments, (*given[0], *self._state.tensors), strict=True))
            values = {**self.bound.values, **tensors}
            found = bind_call(self._graph, self._compiled, values, memory, self._device)
            if found is None:
                return None
            self._state.fix_memory()
            return BoundCall(*found, self._active_binding, self)

    def is_current(self, call: BoundCall) -> bool:
        """Return whether a bound call reads the weights that are bound now."""
        return call.weights is self._active_binding

    def run_bound(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function that runs a bound call, while no other call runs, after the checks of a call.

        Raises:
            WeightError: A weight of which it reads another form was changed in place.
            ExecutionError: PyTorch traces or transforms this thread, or a call is in progress.
        """
        self._versions.require_unchanged()
        if may_be_traced():
            self._require_no_tracer()
        return self._exclusively(function, *arguments)

    def call_node_by_node(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer, *, check_nan: bool = False
    ) -> Sequence[Any]:
        """Return the same as `call`, run node by node; options as for `run_node_by_node`."""
        run = functools.partial(self._node_by_node, check_nan=check_nan)
        if self._is_concurrent:
            return run(args, kwargs, observe)
        return self._exclusively(run, args, kwargs, observe)

    def _node_by_node(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        observe: Observer | None,
        *,
        check_nan: bool = False,
    ) -> Sequence[Any]:
        self._require_captured_state()
        self._versions.require_unchanged()
        bound = self.bound
        inputs, symbols = self._checked_inputs(args, kwargs)
        # What is observed is not overwritten, nor anything if a node fails.
        inputs, state = self._overwritten.copies(inputs), self._current_state()
        values = {**bound.values, **dict(zip(self._arguments, (*inputs, *state), strict=True))}
        with isolated_torch_state(self._device), self._outside_autograd():
            returned = run_node_by_node(
                self._compiled.unfused,
                self._graph.returned,
                values,
                symbols,
                self._device,
                observe,
                check_nan=check_nan,
            )
            require_in_range(self._graph, symbols)
            given = bound.prologue.copy_shared_results(returned)
            if self._plan.state:
                self._state.set(tuple(tensor.clone() for tensor in self._plan.new_state(returned)))
        return given

    def apart(self, items: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a run, with copies of tensors in memory that later calls read."""
        given = self.bound.prologue.copy_shared_results(list(items.values()))
        return {
            name: item.clone() if self._shares_state_memory(item) else item
            for name, item in zip(items, given, strict=True)
        }

    def _shares_state_memory(self, item: Any) -> bool:
        is_strided = isinstance(item, torch.Tensor) and item.layout is torch.strided
        return is_strided and any(shares_storage(item, tensor) for tensor in self._state.tensors)

    def mutations(self, returned: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Return the new contents of mutated inputs and state by name; of state held here, copies."""
        contents = list(returned[self._plan.result_count :])
        for index, *_ in self._plan.state:
            contents[index - self._plan.result_count] = contents[index - self._plan.result_count].clone()
        return {
            name: content
            for target, content in zip(self._graph.updates, contents, strict=True)
            for name in external_names(target)
        }

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], writes: bool = False) -> Sequence[Any]:
        self._versions.require_unchanged()
        if self._replaced_buffers:
            self._require_captured_state()
        if self._has_aten and kernel_settings() != self._settings:
            # Other kernels may return other strides than the call traits observed at compile time.
            return self._node_by_node(args, kwargs, None)
        inputs, symbols = self._bind_arguments(args, kwargs) or self._checked_inputs(args, kwargs)
        if symbols is not None and (fixed := self._fixed_for(symbols)) is not None:
            return fixed._engine.call_fixed(inputs, symbols)
        return self._call_bound(inputs, symbols, writes)

    def _fixed_for(self, symbols: SymbolValues) -> IRExecutor | None:
        """Return the executor for these sizes; None where this engine runs them itself."""
        # What traces or transforms a call sees the ops of ATen, and nothing that another backend runs.
        if self.fixed_sizes is None or active_tracer() is not None:
            return None
        return self.fixed_sizes.find(symbols.values)

    def executor_for(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> IRExecutor | None:
        """Return the executor that runs a call in place of this engine; None if there is none."""
        # Under other settings, calls run this graph node by node; an executor made now would be for those.
        if self.fixed_sizes is None or kernel_settings() != self._settings:
            return None
        _, symbols = self._bind_arguments(args, kwargs) or self._checked_inputs(args, kwargs)
        return None if symbols is None else self._fixed_for(symbols)

    def call_fixed(self, inputs: Sequence[Any], symbols: SymbolValues) -> Sequence[Any]:
        """Return the same as `call`, for the checked inputs and the sizes of the graph with open sizes."""
        assert self.kept_inputs is not None
        self._versions.require_unchanged()
        remaining = symbols.among(self._graph.symbols) if self._graph.symbols else None
        return self._call_bound([inputs[index] for index in self.kept_inputs], remaining)

    def _call_bound(
        self, inputs: Sequence[Any], symbols: SymbolValues | None, writes: bool = False
    ) -> Sequence[Any]:
        prologue, run = self._active_binding
        if self._overwritten.places:
            inputs = self._overwritten.claim(inputs, self._read_weights, writes=writes)
        if has_default_torch_state():
            returned = self._run(run, symbols, inputs)
        else:
            self._require_no_tracer()
            with isolated_torch_state(self._device):
                returned = self._run(run, symbols, inputs)
        # Callers own results and may write to them: those in the memory of constants are copied.
        return prologue.copy_shared_results(returned) if self._plan.may_share_constants else returned

    def _run(self, run: BoundFunction, symbols: SymbolValues | None, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the generated function without gradients, and advance the mutated state."""
        has_sizes_of_nodes = symbols is not None and len(symbols.values) < len(self._graph.symbols)
        log, before = self._compiled.undo_log, self._state.tensors
        records_gradients = torch.is_grad_enabled()
        if records_gradients:
            record_gradients(False)
        try:
            # Partitions enter it by themselves, unless they are quick: it takes as long as a small one.
            with self._outside_autograd() if self._has_aten else _NO_CONTEXT:
                returned: Sequence[Any] = run(symbols, *inputs, *self._state.tensors)
                if symbols is not None and has_sizes_of_nodes:
                    require_in_range(self._graph, symbols)
                if self._plan.state:
                    returned = self._plan.results_apart(returned)
                    self._state.set(self._plan.new_state(returned), log)
                log.entries.clear()  # from here on, the call has succeeded
                if self._overwritten.places:
                    # Autograd refuses to differentiate by what was overwritten; kernels do not tell it.
                    torch.autograd.graph.increment_version(self._overwritten.written(inputs))
                return returned
        except BaseException as error:
            if log.entries:
                self._state.tensors = before
                log.undo()
            if isinstance(error, Exception):
                self._compiled.program.explain(error)
            raise
        finally:
            if records_gradients:
                record_gradients(True)

    def _require_no_tracer(self) -> None:
        """Refuse a call that PyTorch traces or transforms if it would not see what a backend computes."""
        backend = next((item.backend for item in self._compiled.instructions if item.is_partition), None)
        if backend is not None and (tracer := active_tracer()) is not None:
            raise ExecutionError(
                f"{tracer} does not see what the backend {backend!r} computes",
                where=f"graph {self._graph.name!r}",
                fix="call the executor outside of it, or give it one with backend='aten'",
            )

    def _require_captured_state(self) -> None:
        """Refuse a call if a buffer has another type than the graph was captured for."""
        for index, value in self._replaced_buffers:
            if not is_of_type(self._state.tensors[index], value.type):
                raise ExecutionError(
                    f"the buffer {external_names(value)[0]!r} is {describe(self._state.tensors[index])} since"
                    f" the last call, and the graph was captured for {value.type}",
                    where=f"graph {self._graph.name!r}",
                    fix="capture the model as it is after a call, or restore the buffers: reset()",
                )

    def _checked_inputs(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], SymbolValues]:
        symbols = SymbolValues(self._graph.symbols)
        bound = bind_inputs(self._graph, args, kwargs, symbols)
        for value, item in bound.items():
            if isinstance(item, torch.Tensor) and item.device != self._device:
                raise ExecutionError(
                    f"input %{value.name} is on {item.device}, the executor runs on {self._device}",
                    fix=f"move it (.to({str(self._device)!r})), or make the executor with"
                    f" device={str(item.device)!r}",
                )
        return [self._as_stated(bound[value], value) for value in self._graph.inputs], symbols

    def _as_stated(self, item: Any, value: Value) -> Any:
        """Return an input in the strides of its type; for backends, which do not ask, not negated lazily."""
        if (self._has_partitions or self.fixed_sizes is not None) and isinstance(item, torch.Tensor):
            item = item.resolve_neg()
        return with_stated_strides(item, value.type)

    def _exclusively(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function with the lock of the mutated state, and the requested number of threads."""
        if self._threads is None:
            return self._state.in_turn(function, *arguments)
        with _ThreadCount.lock:
            if torch.get_num_threads() == self._threads:  # usually; the context takes a while after a pause
                return self._state.in_turn(function, *arguments)
            with thread_count(self._threads):
                return self._state.in_turn(function, *arguments)


class _ThreadCount:
    """The number of threads, which is process-wide: one call at a time may change it."""

    lock = threading.RLock()

    @classmethod
    def renew_lock(cls) -> None:
        """Replace the lock in a forked process, where the thread that may have held it does not run."""
        cls.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ThreadCount.renew_lock)


@contextlib.contextmanager
def thread_count(count: int | None) -> Iterator[None]:
    """Set the number of intra-op threads for the block; None leaves it."""
    with _ThreadCount.lock:
        before = torch.get_num_threads()
        if count is None or count == before:
            yield
            return
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
