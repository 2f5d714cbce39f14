"""The executor: a graph compiled once into straight-line Python, with its weights."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import ExecutionError, Graph, SerializationError, Value, WeightError
from npu_ir.core.isolation import pause_gc
from npu_ir.core.structure import make_unflatten
from npu_ir.graph.requirement import positional_tuple, require_graph, require_weights
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.plugins.backend import Backend
from npu_runtime._torch.opaque_calls import opaque
from npu_runtime.backends.measured_costs import MeasuredCosts
from npu_runtime.backends.partition import ATEN
from npu_runtime.codegen.compiler import Compiled, compile_graph, held_contents
from npu_runtime.executor.bound_weights import BoundWeights, bind
from npu_runtime.executor.engine import Engine
from npu_runtime.executor.fixed_sizes import FixedSizes, kept_inputs, open_sizes
from npu_runtime.executor.input_updates import InputUpdates, Updates
from npu_runtime.executor.node_by_node import Run, make_observer
from npu_runtime.executor.options import (
    Passes,
    Weights,
    default_backend,
    optimize_graph,
    pass_names,
    read_weights,
    reject_cpu_passes_elsewhere,
    require_threads,
    resolve_backends,
    resolve_passes,
    resolve_tuning,
)
from npu_runtime.executor.overwritten_inputs import find_donated, resolve_donated
from npu_runtime.executor.result_ownership import copied_values
from npu_runtime.executor.saved.executor_file import (
    SavedExecutor,
    find_backends,
    name_backends,
    plan_of,
    read_executor,
    require_plan,
    write_executor,
)
from npu_runtime.executor.saved.file_errors import named_place
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.lowering.lowered_graph import LoweredGraph, lower

if TYPE_CHECKING:
    from npu_runtime.codegen.live_ranges import MemoryPlan
    from npu_runtime.executor.bound_call import BoundCall


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of an executor, and of those for fixed sizes of its graph.

    Attributes:
        backends: The backends in order of preference, ATen last.
        device: The device.
        threads: The number of threads during calls; None for that of the process.
        updates: The handling of new contents of inputs.
        donate: The inputs that callers give away, as `resolve_donated` returns them.
        constants: Tensors in place of the graph's own.
        pass_names: Returns the names of the passes that have run.
        frozen: The names of weights that are in the graph only in another form.
    """

    backends: tuple[Backend, ...]
    device: torch.device
    threads: int | None
    updates: InputUpdates
    donate: Mapping[str, int | None]
    constants: Mapping[str, torch.Tensor] | None
    pass_names: Callable[[], tuple[str, ...]]
    frozen: tuple[str, ...] = ()

    def overwritable(self, graph: Graph, updates: Updates | None) -> Mapping[Value, Value | None]:
        """Return the state and the inputs in whose memory calls may write, and what is in it then."""
        written = self.updates.targets if updates == "write" else ()
        contents = {target: graph.updates[target] for target in written}
        donated = find_donated(graph, self.donate)
        known = {value: graph.updates.get(value) for value, content in donated.items() if content is None}
        return {**held_contents(graph), **contents, **donated, **known}


class IRExecutor:
    """A graph compiled for fast repeated calls, from any number of threads.

    Results equal those of `npu_ir.Interpreter`, within the tolerances stated by the passes. No gradients
    are recorded. The given weights are never written to, and arguments only where the model does so and
    ``updates="write"``, or where they are donated. Mutated buffers are held here and advance with each call.
    Calls that write to buffers or arguments are serialized.

    Args:
        graph: The program; it is copied.
        weights: Parameters and buffers by ``state_dict`` key; or the path of a weights file, of the index
            of a sharded checkpoint, or of a folder. Not needed for a graph without any. They are read, not
            copied. Once one of which calls read another form, such as a packed one, was changed in place, as
            training does, calls are refused until `load_state_dict` binds the weights again.
        constants: Tensors by name in place of the graph's constants or of non-persistent buffers.
        backend: A name, a `Backend`, or several in order of preference; ATen runs the nodes that none of them
            supports. ``"auto"``: every installed backend that states costs and runs on the device, whatever
            takes the least time. If not given, ``"auto"`` with ``passes="auto"``, else ``"aten"``.
        device: The device to run on; weights are moved there. If not given, that of the first weight, or
            the default device of the first backend where that backend does not run there.
        passes: The passes to run over the graph first: the name of a pipeline, or passes as accepted by
            `npu_passes.PassManager`; None for none. ``"auto"``: the pipeline that suits the first backend on
            the device, whose results differ from eager's by rounding. ``"default"`` rounds differently only
            where it folds norms into convolutions; None not at all.
        threads: The number of intra-op threads during calls; that of the process if not given. It is set
            for the whole process: calls of such executors are serialized.
        updates: Handling of the new contents of inputs that the model writes to. ``"write"``: as in eager
            mode, the given tensors are written to after the call has succeeded; a call that fails changes
            none. ``"return"``: a call returns a pair, the results and the new contents by input name.
            ``"ignore"``: they are dropped. Not needed for a model that writes to no input; calls of any
            other model are refused without it.
        donate: The names of inputs that callers give away: after a call, what they hold is undefined. The
            graph may write into their memory instead of copying them, and return results in it: a cache that
            is passed in and comes back as a result is updated in place. A call that fails leaves them as
            they were. A mapping says for each name which of the flat results is to be in its memory then: it
            is written in place only if that is so.
        share: An executor of another graph with the same weights, such as one that takes a longer sequence.
            State of the same name is the same memory in both, so that what one has written the other reads;
            their calls are serialized. What the prologue makes of the same weights is not made twice. Both
            graphs write to this state; other weights can be bound to neither.
        tuning: The path of a graph beside which ``npu tune`` has stored what it measured, or the result of
            `npu_runtime.tune`. Where it was measured on this kind of machine with as many threads, these
            costs take the place of those that backends state, and ``passes="auto"`` is the pipeline that was
            fastest.
        max_fixed_sizes: Of a graph with open sizes, which backends do not run: the number of different sizes
            that get an executor of their own, at their first call (`for_call`), which takes as long as
            making one. All other calls run on ATen, and with 0 all calls do; likewise with ``share`` or
            ``donate``, where the model writes to its inputs or buffers, and within transforms of torch.func.

    Attributes:
        graph: The graph after the passes.
        device: The device to run on.
        backends: The backends in order of preference; ATen, which supports every node, is the last.
        lowered: The graph as its backends lowered it: what runs each node, and why nothing else does.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        PassError: A pass is unknown, or fails.
        WeightError: Weights are missing, unexpected, or of another shape or dtype.
        BackendError: There is no such backend, or it does not keep to its interface.
        ExecutionError: A node of the prologue fails; ``share`` has state that only one of both writes to; or
            ``donate`` names what is not a tensor among the inputs.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Weights = None,
        *,
        constants: Mapping[str, torch.Tensor] | None = None,
        backend: str | Backend | Sequence[str | Backend] | None = None,
        device: torch.device | str | None = None,
        passes: Passes = "auto",
        threads: int | None = None,
        updates: Updates | None = None,
        donate: Collection[str] | Mapping[str, int] = (),
        share: IRExecutor | None = None,
        tuning: MeasuredCosts | str | os.PathLike[str] | None = None,
        max_fixed_sizes: int = 8,
    ) -> None:
        require_threads(threads)
        if type(max_fixed_sizes) is not int or max_fixed_sizes < 0:
            raise ExecutionError(
                f"max_fixed_sizes={max_fixed_sizes!r} is not a number of programs", fix="0 for none"
            )
        if not isinstance(share, IRExecutor | None):
            raise ExecutionError(
                f"share={share!r} is not an executor", fix="share=executor, of a graph with the same weights"
            )
        # Everything built here stays alive: garbage collection would take longer than the construction.
        with pause_gc():
            require_graph(graph)
            require_weights(constants, "constants=")
            graph.check_edits()  # what was extracted, loaded or parsed has been checked as a whole
            backends, place = resolve_backends(
                default_backend(passes) if backend is None else backend, device, weights
            )
            measured = resolve_tuning(tuning, backends, threads)
            passes = resolve_passes(passes, place, backends, measured)
            optimized = optimize_graph(graph, passes)
            input_updates = InputUpdates(optimized, updates)
            given = read_weights(weights, optimized)
            reject_cpu_passes_elsewhere(optimized, passes, place)
            settings = _Settings(
                backends,
                place,
                threads,
                input_updates,
                resolve_donated(optimized, donate),
                constants,
                functools.partial(pass_names, passes),
            )
            overwritable = settings.overwritable(optimized, input_updates.choice)
            lowered = lower(optimized, backends, overwritable=overwritable, measured=measured)
            known = None if share is None else share._engine
            bound = bind(optimized, given, constants, place, None if known is None else known.bound)
            self._compile(settings, optimized, lowered, bound, known)
            if share is None and max_fixed_sizes and self._can_fix_sizes():
                # Not a method of this object: a cycle would keep it until the garbage collector runs.
                make = functools.partial(_make_fixed, settings, optimized, passes, measured)
                self._engine.fixed_sizes = FixedSizes(graph, max_fixed_sizes, make, bound)

    def _compile(
        self,
        settings: _Settings,
        graph: Graph,
        lowered: LoweredGraph,
        bound: BoundWeights,
        share: Engine | None = None,
    ) -> None:
        """Make this the executor of a lowered graph."""
        device, threads = settings.device, settings.threads
        compiled = compile_graph(lowered, device, bound.values)
        donated = find_donated(graph, settings.donate)
        engine = Engine(graph, compiled, bound, device, threads, donated, share)
        self._take(settings, graph, lowered, compiled, engine)

    def _take(
        self,
        settings: _Settings,
        graph: Graph,
        lowered: LoweredGraph,
        compiled: Compiled,
        engine: Engine,
    ) -> None:
        """Set every attribute."""
        self.graph, self.lowered = graph, lowered
        self.backends, self.device, self.threads = settings.backends, settings.device, settings.threads
        self._settings, self._updates = settings, settings.updates
        self._compiled, self._engine = compiled, engine
        self._unflatten = make_unflatten(graph.results[0])
        self._result_count = len(graph.results[1])

    def _can_fix_sizes(self) -> bool:
        """Return whether sizes are open, others than ATen could run fixed ones, and calls have no effects."""
        is_on_aten = any(item.partition.backend.name == ATEN for item in self.lowered.partitions)
        has_effects = bool(self.graph.updates or self._settings.donate)
        return len(self.backends) > 1 and is_on_aten and bool(open_sizes(self.graph)) and not has_effects

    def __repr__(self) -> str:
        backends = ", ".join(backend.name for backend in self.backends)
        return f"<IRExecutor {self.graph.name!r}: {len(self.graph)} nodes on {self.device} by {backends}>"

    def __reduce__(self) -> Any:
        raise SerializationError(
            "an IRExecutor cannot be copied or pickled: it is compiled, and bound to memory of its own",
            where=f"graph {self.graph.name!r}",
            fix="save(path) writes it, and IRExecutor.load(path) returns an equal one, in any process",
        )

    @opaque
    def for_call(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> IRExecutor:
        """Return the executor that runs calls with such arguments.

        It is another one where the graph leaves sizes open and these sizes have a program of their own: its
        ``graph`` and ``lowered`` say what runs then.

        Raises:
            ExecutionError: The arguments do not fit the graph.
        """
        return self._engine.executor_for(positional_tuple(args), kwargs or {}) or self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the executor to one file, from which `load` makes an equal one without passes and prologue.

        The file has the optimized graph, the backend of each node, and the weights as calls read them, with
        mutated state as it is now; where sizes are open, not the programs for fixed ones. It appears complete
        or not at all.

        Raises:
            SerializationError: The file cannot be written, a weight is not a plain tensor, or a backend or a
                pass is not found by its name in another process.
        """
        saved = SavedExecutor(
            self.graph,
            self._settings.frozen,
            self._settings.pass_names(),
            name_backends(self.backends),
            self.device,
            {"threads": self.threads, "updates": self._updates.choice, "donate": dict(self._settings.donate)},
            plan_of(self.lowered),
            self._engine.current_weights(),
        )
        write_executor(saved, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, updates: Updates | None = None) -> IRExecutor:
        """Return the executor that `save` wrote to a file.

        Its results are the same to the bit. Where sizes are open, they are those of an executor with
        ``max_fixed_sizes=0``, within the tolerance of the passes.

        Weights are mapped from the file, which may be replaced or removed meanwhile. `state_dict` and
        `load_state_dict` are refused if some weights are there only in another form: folded or packed.

        Args:
            path: The file.
            updates: As for a new executor; if not given, that of the executor that was saved.

        Raises:
            SerializationError: The file is missing, damaged, or not of this kind; or it was saved with other
                versions, plugins or another kind of CPU: the error says what differs.
            BackendError: A backend cannot run here.
        """
        executor = cls.__new__(cls)
        with pause_gc():
            saved = read_executor(path)
            input_updates = InputUpdates(saved.graph, updates or saved.options["updates"])
            with named_place(str(path)):
                executor._restore(saved, input_updates, str(path))
        return executor

    def _restore(self, saved: SavedExecutor, updates: InputUpdates, path: str) -> None:
        """Make this the executor that was saved, but for what happens to inputs."""
        backends, device = resolve_backends(find_backends(saved.backends), saved.device, None)
        settings = _Settings(
            backends,
            device,
            saved.options["threads"],
            updates,
            saved.options["donate"],
            None,
            lambda: saved.passes,
            saved.frozen,
        )
        # As it was saved, or the plan would be another one.
        overwritable = settings.overwritable(saved.graph, saved.options["updates"])
        lowered = lower(saved.graph, backends, overwritable=overwritable, chosen=saved.chosen)
        require_plan(saved.plan, plan_of(lowered), path)
        self._compile(settings, saved.graph, lowered, saved.bound)

    @opaque
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results of the model, in its own structure; with ``updates="return"``, a pair.

        Raises:
            WeightError: A weight of which calls read another form was changed in place.
            ExecutionError: The arguments do not fit the graph, or a node fails; the executor stays usable.
                Or the model writes to an input, which is not possible or for which ``updates`` was not
                given.
            BackendError: A node fails on a backend other than ATen; the executor stays usable.
        """
        if not self._updates.are_dropped:
            return self._call_with_updates(args, kwargs)
        return self._unflatten(self._engine.call(args, kwargs)[: self._result_count])

    def _call_with_updates(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the results of a call, and apply the ``updates`` option to the new contents of inputs."""
        updates = self._updates
        updates.require_choice()
        targets = []
        if updates.choice == "write":
            targets = updates.writable_targets(self._engine.given_inputs(args, kwargs))
            self._engine.require_apart_from_weights(dict(zip(updates.targets, targets, strict=True)))
        returned = self._engine.call(args, kwargs, writes=updates.choice == "write")
        leaves = list(returned[: self._result_count])
        contents = updates.contents(returned[self._result_count :])
        if updates.choice == "return":
            return self._unflatten(leaves), contents
        updates.write(targets, list(contents.values()), leaves)
        return self._unflatten(leaves)

    @opaque
    def run_flat(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        observe: Observer | None = None,
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Return the results as a flat list, and the new contents of mutated state and inputs, by name.

        No argument is written to but donated ones, regardless of ``updates``; none with ``observe``.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            observe: As ``on_node`` of `run`.
        """
        if observe is not None and (fixed := self.for_call(args, kwargs)) is not self:
            return fixed.run_flat(args, kwargs, observe=observe)
        if observe is None:
            returned = self._engine.call(positional_tuple(args), kwargs or {})
        else:
            returned = self._engine.call_node_by_node(positional_tuple(args), kwargs or {}, observe)
        return list(returned[: self._result_count]), self._engine.mutations(returned)

    @opaque
    def run(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        return_intermediates: bool | str | Collection[str] = False,
        on_node: Observer | None = None,
        check_nan: bool = False,
    ) -> Run:
        """Run once, node by node, and return intermediate values, too.

        Slower than a call: no memory is reused, and each node is a call of its own. Of a partition of another
        backend, only the outputs are observed. No argument is written to, regardless of ``updates``.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            return_intermediates: Keep the outputs of nodes: all of them, or the values of the given names.
            on_node: Called after each node, with the node and its outputs.
            check_nan: Fail at the first node that produces a NaN from inputs without any; infinities, which
                attention masks contain, are allowed.

        Raises:
            ExecutionError: As for a call; or a NaN is found, or there is no value of a given name.
        """
        if (fixed := self.for_call(args, kwargs)) is not self:
            return fixed.run(
                args,
                kwargs,
                return_intermediates=return_intermediates,
                on_node=on_node,
                check_nan=check_nan,
            )
        observe, kept = make_observer(self._compiled.unfused, self.graph, return_intermediates, on_node)
        returned = self._engine.call_node_by_node(
            positional_tuple(args), kwargs or {}, observe, check_nan=check_nan
        )
        results = self._unflatten(returned[: self._result_count])
        return Run(results, self._engine.apart(kept), self._engine.mutations(returned))

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of the generated function, in order."""
        return self._compiled.instructions

    @property
    def source(self) -> str:
        """The generated function, as Python source."""
        return self._compiled.program.source.text

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return parameters and persistent buffers by ``state_dict`` key, with the current content.

        Raises:
            WeightError: The executor comes from a file, which has some of them only in another form.
        """
        self._require_original_weights()
        return self._engine.state_dict()

    def load_state_dict(self, weights: Weights) -> None:
        """Bind other weights, without recompilation. If they do not fit, nothing changes.

        Raises:
            WeightError: Weights are missing, unexpected, or of another shape or dtype. Or the executor comes
                from a file, which has some of them only in another form; or from `for_call`.
            ExecutionError: A node of the prologue fails.
        """
        self._require_original_weights()
        if self._engine.kept_inputs is not None:
            raise WeightError(
                "the executor is for some sizes of a graph with open ones, which has other weights then",
                where=f"graph {self.graph.name!r}",
                fix="load them into the executor that for_call was asked of",
            )
        self._engine.bind(
            bind(self.graph, read_weights(weights, self.graph), self._settings.constants, self.device)
        )

    def _require_original_weights(self) -> None:
        frozen = self._settings.frozen
        if frozen:
            others = f" and {len(frozen) - 1} more" if len(frozen) > 1 else ""
            raise WeightError(
                f"the executor was loaded from a file, which has {frozen[0]!r}{others} only as"
                " the prologue left them: folded, transformed or packed",
                where=f"graph {self.graph.name!r}",
                fix="make a new executor of the original graph: IRExecutor(graph, weights)",
            )

    def reset(self) -> None:
        """Reset mutated state to its content when the weights were bound."""
        self._engine.reset()

    @property
    def resets(self) -> int:
        """The number of times that state was given up for its initial content, by all who share it."""
        return self._engine.resets

    def bind_call(
        self, args: Sequence[Any], memory: Mapping[int, torch.Tensor] = MappingProxyType({})
    ) -> BoundCall | None:
        """Return a call over fixed memory, to be repeated without Python; None where it needs Python.

        Args:
            args: Positional arguments, whose contents later runs read.
            memory: Where results are to be, by number: tensors of their types.
        """
        return self._engine.bind_call(args, memory)

    def instrumented(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> IRExecutor:
        """Return an executor of the same graph that calls ``wrap(function)`` in place of each function.

        Each instruction is one call, in order. It has the same weights. Its mutated state starts as a copy
        of the state here, and advances independently. Its calls write to no argument.
        """
        instrumented = IRExecutor.__new__(IRExecutor)
        settings = replace(self._settings, updates=InputUpdates(self.graph, "ignore"))
        engine = self._engine.instrument(wrap)
        instrumented._take(settings, self.graph, self.lowered, self._compiled, engine)
        return instrumented

    def trust(self, inputs: Collection[Value]) -> None:
        """Compare these inputs with their types in no later call: the caller does.

        Args:
            inputs: Inputs of ``graph``; each has exactly the dtype, device, sizes and strides of its type.
        """
        self._engine.trust(inputs)

    def weights(self) -> dict[Value, torch.Tensor]:
        """Return the tensor of each parameter, buffer and constant of the graph; copies of mutated state."""
        return self._engine.weights()

    def unchanged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that restores mutated state on exit."""
        return self._engine.unchanged()

    def memory_plan(self) -> MemoryPlan:
        """Return the live range of each value, the peak memory of a call, and its lower bound.

        Values that may or may not share memory are counted as if they did not, and are marked: the peak is
        never underestimated.

        Raises:
            GraphError: Sizes are symbolic.
        """
        from npu_runtime.codegen.live_ranges import plan_memory

        copied = copied_values(self.graph, self._compiled.alias_sets, self._compiled.in_place)
        return plan_memory(self.instructions, self.graph.returned_values, copied)


def _make_fixed(
    settings: _Settings,
    open_graph: Graph,
    passes: Passes,
    measured: MeasuredCosts | None,
    graph: Graph,
    weights: BoundWeights,
    share: BoundWeights,
) -> IRExecutor:
    """Return an executor, as of a graph with open sizes, of its graph for fixed ones; see `FixedSizes`."""
    with pause_gc():
        fixed = IRExecutor.__new__(IRExecutor)
        optimized = optimize_graph(graph, passes)
        lowered = lower(optimized, settings.backends, overwritable={}, measured=measured)
        bound = bind(optimized, weights.state_dict(()), settings.constants, settings.device, share)
        fixed._compile(settings, optimized, lowered, bound)
        fixed._engine.kept_inputs = kept_inputs(open_graph, optimized)
    return fixed
