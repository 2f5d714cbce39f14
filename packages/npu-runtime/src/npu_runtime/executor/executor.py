"""The executor: a graph, compiled once into straight-line Python, with its weights."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import ExecutionError, Graph, OpNode, Value
from npu_ir.core.paused_gc import no_collection
from npu_ir.core.structure import LEAF, Structure, unflatten
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.plugins.backend import Backend
from npu_runtime.backends.partition import Choice, assign
from npu_runtime.backends.registry import backends_of
from npu_runtime.codegen.compiler import compile_graph
from npu_runtime.executor.bound_weights import bind
from npu_runtime.executor.engine import Engine
from npu_runtime.executor.fast_arguments import positional
from npu_runtime.executor.input_updates import InputUpdates, Updates
from npu_runtime.executor.node_by_node import Run, watch
from npu_runtime.executor.options import (
    Passes,
    Weights,
    device_of,
    loaded,
    optimized,
    require_cpu_passes_on_cpu,
)
from npu_runtime.executor.result_ownership import copied_values
from npu_runtime.lowering.instruction import Step

if TYPE_CHECKING:
    from npu_runtime.codegen.lifetimes import MemoryPlan
    from npu_runtime.diagnostics.explain import Explanation
    from npu_runtime.diagnostics.profile import Profile


class IRExecutor:
    """Runs a graph fast: compiled once, called often, from any number of threads.

    What it returns is what `npu_ir.Interpreter` returns, up to what the passes state. No gradients are recorded;
    the given weights are never written to, and arguments only where the model does so and ``updates="write"`` was said.
    Buffers that the model changes are held here and advance with each call; calls of a graph that has such buffers run
    one after another.

    Args:
        graph: The program; a copy is taken.
        weights: Parameters and buffers by ``state_dict`` key; or the path of a file of them, of the index of a
            sharded checkpoint, or of a folder. Not needed for a graph without any. They are read, not copied: do not
            change them in place, for what the prologue made of them would stay as it is.
        constants: Tensors by name in place of the graph's constants or of buffers that are not persistent.
        backend: Who runs what it can: a name, a `Backend`, or several in order of preference. What none of them
            can run, ATen runs.
        device: Where it runs; weights are moved there. If not given, that of the first weight, or the first backend's
            own where it does not run there.
        passes: What to run over the graph first: the name of a pipeline (``"default"``, ``"cpu"``), or passes as
            `npu_passes.PassManager` takes them; None for none.
        threads: The number of threads that an op may use, during calls; the process's own setting if not given. It is
            set for the whole process: calls of such executors run one at a time.
        updates: What calls do with the new contents of inputs that the model writes to. ``"write"``: as in eager mode,
            the tensors that are given are written to when the call has succeeded; one that fails changes none.
            ``"return"``: a call returns a pair, the results and the new contents by input name. ``"ignore"``: they are
            dropped. Nothing has to be said for a model that writes to none; a call of any other one is refused then.

    Attributes:
        graph: What is run: the graph after the passes.
        device: Where.
        backends: Who was asked, in order of preference; ATen, which takes everything, is the last.
        choices: Which backend runs each node of the body, and why the others do not.

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
        updates: Updates | None = None,
    ) -> None:
        if threads is not None and (type(threads) is not int or threads < 1):
            raise ExecutionError(f"an executor uses at least one thread, not {threads!r}")
        with no_collection():  # nothing here is garbage, and collecting it would take longer than making it
            graph.check()
            self.graph = optimized(graph, passes)
            self._updates = InputUpdates(self.graph, updates)
            self.threads = threads
            self.backends: tuple[Backend, ...] = tuple(backends_of(backend))
            given = loaded(weights, self.graph)
            self.device = device_of(device, given, self.backends)
            require_cpu_passes_on_cpu(self.graph, passes, self.device)
            self._constants = constants
            self.choices: Mapping[OpNode, Choice] = assign(self.graph, self.backends)
            bound = bind(self.graph, given, constants, self.device)
            self._compiled = compile_graph(self.graph, self.choices, self.device, bound.values)
            self._engine = Engine(self.graph, self._compiled, bound, self.device, threads)
        self._structure: Structure = self.graph.results[0]
        self._count = len(self.graph.results[1])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns on these arguments, in its own structure; with ``updates="return"``, a pair.

        Raises:
            ExecutionError: The arguments are not what the graph was made for, or a node fails; the executor can be
                used again. Or the model writes to an input, and that cannot be done, or nothing was said about it.
        """
        if not self._updates.are_dropped:
            return self._updating(args, kwargs)
        leaves = self._engine.returned(args, kwargs)[: self._count]
        if self._structure.kind == LEAF:
            return leaves[0]
        return unflatten(self._structure, leaves)

    def _updating(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the results of a call, and do with the new contents of inputs what was chosen."""
        updates = self._updates
        updates.require_choice()
        targets = updates.given(args, kwargs) if updates.choice == "write" else []
        returned = self._engine.returned(args, kwargs)
        leaves = list(returned[: self._count])
        contents = updates.contents(returned[self._count :])
        if updates.choice == "return":
            return unflatten(self._structure, leaves), contents
        updates.write(targets, list(contents.values()), leaves)
        return unflatten(self._structure, leaves)

    def run_flat(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        observe: Observer | None = None,
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Return the results as a flat list, and the new content of what the model updates, by name.

        No argument is written to, whatever ``updates`` is.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            observe: As ``on_node`` of `run`.
        """
        if observe is None:
            returned = self._engine.returned(positional(args), kwargs or {})
        else:
            returned = self._engine.observed(positional(args), kwargs or {}, observe)
        return list(returned[: self._count]), self._engine.mutations(returned)

    def run(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        return_intermediates: bool | str | Collection[str] = False,
        on_node: Observer | None = None,
        check_nan: bool = False,
    ) -> Run:
        """Run once, node by node, and tell what happens in between.

        Slower than a call: no memory is reused, and each node is a call of its own. Where another backend runs
        several nodes at once, only the values that leave it are seen. No argument is written to, whatever ``updates`` is.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            return_intermediates: Keep what the nodes compute: everything, or the values of this name or these.
            on_node: Called behind each node, with the node and its outputs.
            check_nan: Fail at the first node that makes a NaN of inputs that have none; infinities, which masks are
                made of, are let through.

        Raises:
            ExecutionError: As for a call; or a NaN is found, or the graph has no value of a name.
        """
        watching = watch(self._compiled.plain, self.graph, return_intermediates, on_node)
        returned = self._engine.observed(positional(args), kwargs or {}, watching.see, check_nan=check_nan)
        results = unflatten(self._structure, list(returned[: self._count]))
        intermediates = self._engine.apart(watching.intermediates)
        return Run(results, intermediates, self._engine.mutations(returned))

    @property
    def steps(self) -> tuple[Step, ...]:
        """What the program does, in order."""
        return self._compiled.steps

    @property
    def source(self) -> str:
        """The program, as Python source."""
        return self._compiled.program.source.text

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return parameters and persistent buffers by ``state_dict`` key; what calls change, as it is now."""
        return self._engine.state_dict()

    def load_state_dict(self, weights: Weights) -> None:
        """Take other weights; nothing is compiled again. If they do not fit, nothing changes.

        Raises:
            WeightError: Weights are missing, unexpected, or of another shape or dtype.
            ExecutionError: A node of the prologue fails.
        """
        self._engine.hold(bind(self.graph, loaded(weights, self.graph), self._constants, self.device))

    def reset(self) -> None:
        """Give the buffers that calls change the content they had when the weights were bound."""
        self._engine.reset()

    def instrumented(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> IRExecutor:
        """Return an executor of the same program and weights that calls ``wrap(function)`` in place of each function.

        Each step is one call, in order. Its buffers begin with what they hold here, and advance on their own. Its calls
        write to no argument.
        """
        twin = copy.copy(self)
        twin._updates = InputUpdates(self.graph, "ignore")
        twin._engine = self._engine.instrumented(wrap)
        return twin

    def weights(self) -> dict[Value, torch.Tensor]:
        """Return what each parameter, buffer and constant of the graph holds; of what calls change, copies."""
        return self._engine.weights()

    def unchanged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context behind which the buffers that calls change hold what they held before."""
        return self._engine.unchanged()

    def memory_plan(self) -> MemoryPlan:
        """Return how long each value is kept, the peak of a call, and what no program could go below.

        What may share memory or not is counted as if it did not, and is marked: the peak is never told too low.

        Raises:
            GraphError: Sizes are symbolic.
        """
        from npu_runtime.codegen.lifetimes import plan_memory

        copied = copied_values(self.graph, self._compiled.memory)
        returned = (*self.graph.results[1], *self.graph.updates.values())
        kept = [item for item in returned if isinstance(item, Value)]
        return plan_memory(self.steps, self._compiled.shares, kept, copied)

    def profile(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        repeat: int = 20,
        warmup: int = 3,
    ) -> Profile:
        """Return where the time of a run goes; see `npu_runtime.diagnostics.profile.profile`."""
        from npu_runtime.diagnostics.profile import profile

        return profile(self, args, kwargs, repeat=repeat, warmup=warmup)

    def explain(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Explanation:
        """Return who runs each node, and why not another; see `npu_runtime.diagnostics.explain.explain`."""
        from npu_runtime.diagnostics.explain import explain

        return explain(self, args, kwargs)
