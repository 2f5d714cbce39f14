"""The executor: a graph, compiled once into straight-line Python, with its weights."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import ExecutionError, Graph, OpNode, Value, load_weights
from npu_ir.binding import bind_inputs
from npu_ir.isolation import no_outside_influence
from npu_ir.node import outside_names
from npu_ir.running import Observer, require_in_range
from npu_ir.structure import LEAF, Structure, unflatten
from npu_ir.symbol_values import SymbolValues
from npu_passes import Pass, PassManager, all_pipelines, optimize
from npu_runtime._torch import below_autograd, is_undisturbed, record_gradients
from npu_runtime.backend import Backend
from npu_runtime.backends.assignment import Choice, assign
from npu_runtime.backends.registry import backends_of
from npu_runtime.compiling import compile_graph, state_of
from npu_runtime.inputs import quick_take
from npu_runtime.observing import Run, run_observed, watch
from npu_runtime.program import BoundProgram
from npu_runtime.results import plan_results
from npu_runtime.state import Bound, bind
from npu_runtime.steps import Step

if TYPE_CHECKING:
    from npu_runtime.memory_plan import MemoryPlan

Weights = Mapping[str, torch.Tensor] | str | os.PathLike[str] | None
Passes = str | Pass | type[Pass] | Iterable[Pass | type[Pass] | str] | None

_CPU = torch.device("cpu")


class IRExecutor:
    """Runs a graph fast: compiled once, called often, from any number of threads.

    What it returns is what `npu_ir.Interpreter` returns, up to what the passes state. No gradients are recorded;
    neither the arguments nor the given weights are ever written to. Buffers that the model changes are held here
    and advance with each call; calls of a graph that has such buffers run one after another.

    Args:
        graph: The program; a copy is taken.
        weights: Parameters and buffers by ``state_dict`` key; or the path of a file of them, of the index of a
            sharded checkpoint, or of a folder. Not needed for a graph without any.
        constants: Tensors by name in place of the graph's constants or of buffers that are not persistent.
        backend: Who runs what it can: a name, a `Backend`, or several in order of preference. What none of them
            can run, ATen runs.
        device: Where it runs; weights are moved there. That of the first weight if not given.
        passes: What to run over the graph first: the name of a pipeline (``"default"``, ``"cpu"``), or passes as
            `npu_passes.PassManager` takes them; None for none.
        threads: The number of threads that an op may use, during calls; the process's own setting if not given.

    Attributes:
        graph: What is run: the graph after the passes.
        device: Where.
        backends: Who was asked, in order of preference; ATen, which takes everything, is the last.
        choices: Which backend runs each node of the body, and why the others do not.
        steps: What the program does, in order.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        PassError: A pass is unknown, or fails.
        WeightError: Weights are missing, unexpected, or of another shape or dtype.
        BackendError: There is no such backend, or it does not keep to its interface.
        ExecutionError: A node of the prologue fails.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Weights = None,
        *,
        constants: Mapping[str, torch.Tensor] | None = None,
        backend: str | Backend | Sequence[str | Backend] = "aten",
        device: torch.device | str | None = None,
        passes: Passes = "default",
        threads: int | None = None,
    ) -> None:
        if threads is not None and (type(threads) is not int or threads < 1):
            raise ExecutionError(f"an executor uses at least one thread, not {threads!r}")
        graph.check()
        self.graph = _optimized(graph, passes)
        self.threads = threads
        self.backends: tuple[Backend, ...] = tuple(backends_of(backend))
        given = _loaded(weights, self.graph)
        self.device = _device(device, given)
        self._constants = constants
        self.choices: Mapping[OpNode, Choice] = assign(self.graph, self.backends)
        bound = bind(self.graph, given, constants, self.device)
        compiled = compile_graph(self.graph, self.choices, self.device, bound.values)
        self.steps: tuple[Step, ...] = compiled.steps
        self._compiled = compiled
        self._plan = plan_results(self.graph, compiled.memory)
        # Calls neither change buffers nor the number of threads: any number may run at once.
        self._is_shared = not self._plan.state and threads is None
        self._quick_take = quick_take(self.graph, self.device)
        self._structure: Structure = self.graph.results[0]
        self._lock = threading.RLock()
        self._arguments = (*self.graph.inputs, *state_of(self.graph))
        self._hold(bound)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns on these arguments, in its own structure.

        Raises:
            ExecutionError: The arguments are not what the graph was made for, or a node fails; the executor can be
                used again.
        """
        leaves = self._returned(args, kwargs)[: self._plan.count]
        if self._structure.kind == LEAF:
            return leaves[0]
        return unflatten(self._structure, leaves)

    def run_flat(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        observe: Observer | None = None,
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Return the results as a flat list, and the new content of what the model updates, by name.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            observe: As ``on_node`` of `run`.
        """
        if observe is None:
            returned = self._returned(tuple(args), kwargs or {})
        else:
            returned = self._observed(args, kwargs or {}, observe)
        return list(returned[: self._plan.count]), self._mutations(returned)

    def run(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        return_intermediates: bool | Collection[str] = False,
        on_node: Observer | None = None,
        check_nan: bool = False,
    ) -> Run:
        """Run once, node by node, and tell what happens in between.

        Slower than a call: no memory is reused, and each node is a call of its own. Where another backend runs
        several nodes at once, only the values that leave it are seen.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            return_intermediates: Keep what the nodes compute: everything, or the values of these names.
            on_node: Called behind each node, with the node and its outputs.
            check_nan: Fail at the first node that makes a NaN of inputs that have none.

        Raises:
            ExecutionError: As for a call; or a NaN is found, or the graph has no value of a name.
        """
        wanted = (
            return_intermediates
            if isinstance(return_intermediates, bool)
            else frozenset(return_intermediates)
        )
        watching = watch(self.graph, wanted, on_node)
        returned = self._observed(args, kwargs or {}, watching.see, check_nan=check_nan)
        results = unflatten(self._structure, list(returned[: self._plan.count]))
        return Run(results, watching.intermediates, self._mutations(returned))

    @property
    def source(self) -> str:
        """The program, as Python source."""
        return self._compiled.program.source.text

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return parameters and persistent buffers by ``state_dict`` key; what calls change, as it is now."""
        with self._lock:
            return self._bound.state_dict(self._state)

    def load_state_dict(self, weights: Weights) -> None:
        """Take other weights; nothing is compiled again. If they do not fit, nothing changes.

        Raises:
            WeightError: Weights are missing, unexpected, or of another shape or dtype.
            ExecutionError: A node of the prologue fails.
        """
        bound = bind(self.graph, _loaded(weights, self.graph), self._constants, self.device)
        with self._lock:
            self._hold(bound)

    def reset(self) -> None:
        """Give the buffers that calls change the content they had when the weights were bound."""
        with self._lock:
            self._state = tuple(tensor.clone() for tensor in self._bound.state)

    def weights(self) -> dict[Value, torch.Tensor]:
        """Return what each parameter, buffer and constant of the graph holds; of what calls change, copies."""
        with self._lock:
            state = dict(zip(state_of(self.graph), (item.clone() for item in self._state), strict=True))
            return {**{value: item.to(self.device) for value, item in self._bound.given.items()}, **state}

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Give the buffers that calls change back the content they had, whatever is called inside."""
        with self._lock:
            before = tuple(item.clone() for item in self._state)
            try:
                yield
            finally:
                self._state = before

    def instrumented(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> IRExecutor:
        """Return an executor of the same program and weights that calls ``wrap(function)`` in place of each function.

        Each step is one call, in order. Its buffers begin with what they hold here, and advance on their own.
        """
        twin = copy.copy(self)
        with self._lock:
            twin._state = tuple(item.clone() for item in self._state)
            program = self._compiled.program
            ops = tuple(map(wrap, program.source.ops))
            twin._running = self._bound.prologue, program.bound(self._bound.values, ops)
        return twin

    def memory_plan(self) -> MemoryPlan:
        """Return how long each value is kept, the peak of a call, and what no program could go below.

        Raises:
            GraphError: Sizes are symbolic.
        """
        from npu_runtime.memory_plan import plan_memory

        return plan_memory(self.steps, self._compiled.seen_memory)

    def _hold(self, bound: Bound) -> None:
        self._bound = bound
        self._state = tuple(tensor.clone() for tensor in bound.state)
        # One attribute, so that a call from another thread sees all of the old weights or all of the new ones.
        self._running = bound.prologue, self._compiled.program.bound(bound.values)

    def _returned(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return what the program returns on these arguments, checked."""
        if self._is_shared:
            return self._once(args, kwargs)
        with self._alone():
            return self._once(args, kwargs)

    def _once(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        prologue, run = self._running
        take = self._quick_take
        inputs = take(args, kwargs) if take is not None and is_undisturbed() else None
        returned = self._slowly(run, args, kwargs) if inputs is None else self._quickly(run, inputs)
        plan = self._plan
        if plan.state:
            self._state = plan.new_state(returned)
        return prologue.apart(returned) if plan.may_be_own else returned

    def _quickly(self, run: BoundProgram, inputs: tuple[Any, ...]) -> Sequence[Any]:
        before = torch.is_grad_enabled()
        record_gradients(False)
        try:
            with below_autograd():
                return run(None, *inputs, *self._state)
        except Exception as error:
            raise self._failure(error) from error
        finally:
            record_gradients(before)

    def _slowly(self, run: BoundProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        symbols = SymbolValues(self.graph.symbols)
        inputs = self._inputs(args, kwargs, symbols)
        try:
            with no_outside_influence(self.device), below_autograd():
                returned = run(symbols, *inputs, *self._state)
        except Exception as error:
            raise self._failure(error) from error
        require_in_range(self.graph, symbols)
        return returned

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any], symbols: SymbolValues) -> list[Any]:
        bound = bind_inputs(self.graph, args, kwargs, symbols)
        for value, item in bound.items():
            if isinstance(item, torch.Tensor) and item.device != self.device:
                raise ExecutionError(
                    f"input %{value.name} is on {item.device}, the executor runs on {self.device}",
                    fix=f"move it (.to({str(self.device)!r})), or make the executor with device={str(item.device)!r}",
                )
        return [bound[value] for value in self.graph.inputs]

    def _observed(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], see: Observer, *, check_nan: bool = False
    ) -> Sequence[Any]:
        with self._alone():
            symbols = SymbolValues(self.graph.symbols)
            inputs = [*self._inputs(args, kwargs, symbols), *self._state]
            values = {**self._bound.values, **dict(zip(self._arguments, inputs, strict=True))}
            with no_outside_influence(self.device), below_autograd():
                returned = run_observed(
                    self._compiled.plain,
                    [*self.graph.results[1], *self.graph.updates.values()],
                    values,
                    symbols,
                    self.device,
                    see,
                    check_nan=check_nan,
                )
            require_in_range(self.graph, symbols)
            if self._plan.state:
                self._state = self._plan.new_state(returned)
            return self._bound.prologue.apart(returned)

    def _failure(self, error: Exception) -> Exception:
        return self._compiled.program.failure(error) or error

    def _mutations(self, returned: Sequence[Any]) -> dict[str, torch.Tensor]:
        contents = returned[self._plan.count :]
        return {
            name: content
            for target, content in zip(self.graph.updates, contents, strict=True)
            for name in outside_names(target)
        }

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one call at a time change buffers, with the number of threads that was asked for."""
        if self._is_shared:
            yield
            return
        with self._lock:
            before = torch.get_num_threads()
            if self.threads is None or self.threads == before:
                yield
                return
            torch.set_num_threads(self.threads)
            try:
                yield
            finally:
                torch.set_num_threads(before)


def _optimized(graph: Graph, passes: Passes) -> Graph:
    if passes is None:
        return graph.clone()
    if isinstance(passes, str) and passes in all_pipelines():
        return optimize(graph, passes)
    return PassManager(passes).run(graph).graph


def _loaded(weights: Weights, graph: Graph) -> Mapping[str, torch.Tensor] | None:
    return load_weights(weights, graph) if isinstance(weights, (str, os.PathLike)) else weights


def _device(device: torch.device | str | None, weights: Mapping[str, torch.Tensor] | None) -> torch.device:
    if device is None:
        return next((item.device for item in (weights or {}).values()), _CPU)
    return torch.empty(0, device=device).device  # with its index
