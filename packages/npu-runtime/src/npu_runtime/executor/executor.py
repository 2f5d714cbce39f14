"""The executor: a graph compiled once into straight-line Python, with its weights."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
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
from npu_runtime.codegen.compiler import compile_graph, held_contents
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
            self.backends: tuple[Backend, ...]
            self.device: torch.device
            if backend is None:
                backend = default_backend(passes)
            self.backends, self.device = resolve_backends(backend, device, weights)
            measured = resolve_tuning(tuning, self.backends, threads)
            passes = resolve_passes(passes, self.device, self.backends, measured)
            self._pass_names: Callable[[], tuple[str, ...]] = functools.partial(pass_names, passes)
            # Names of weights that are in the graph only in another form.
            self._frozen: tuple[str, ...] = ()
            self.graph = optimize_graph(graph, passes)
            self._updates = InputUpdates(self.graph, updates)
            given = read_weights(weights, self.graph)
            reject_cpu_passes_elsewhere(self.graph, passes, self.device)
            self._constants = constants
            self._donate = resolve_donated(self.graph, donate)
            overwritable = self._overwritable(self._updates.choice)
            self.lowered: LoweredGraph = lower(
                self.graph, self.backends, overwritable=overwritable, measured=measured
            )
            known = None if share is None else share._engine
            bound = bind(self.graph, given, constants, self.device, None if known is None else known.bound)
            self._compile(bound, threads, known)
            if share is None and max_fixed_sizes and self._can_fix_sizes():
                # Not a method of this object: a cycle would keep it until the garbage collector runs.
                template = self._twin()
                del template._engine, template._compiled
                make = functools.partial(template._make_fixed, passes, measured)
                self._engine.fixed_sizes = FixedSizes(graph, max_fixed_sizes, make, bound)

    def _compile(self, bound: BoundWeights, threads: int | None, share: Engine | None = None) -> None:
        """Make the engine of the lowered graph."""
        self.threads = threads
        self._compiled = compile_graph(self.lowered, self.device, bound.values)
        donated = find_donated(self.graph, self._donate)
        self._engine = Engine(self.graph, self._compiled, bound, self.device, threads, donated, share)
        self._unflatten = make_unflatten(self.graph.results[0])
        self._result_count = len(self.graph.results[1])

    def _can_fix_sizes(self) -> bool:
        """Return whether sizes are open, others than ATen could run fixed ones, and calls have no effects."""
        is_on_aten = any(item.partition.backend.name == ATEN for item in self.lowered.partitions)
        has_effects = bool(self.graph.updates or self._donate)
        return len(self.backends) > 1 and is_on_aten and bool(open_sizes(self.graph)) and not has_effects

    def _make_fixed(
        self,
        passes: Passes,
        measured: MeasuredCosts | None,
        graph: Graph,
        weights: BoundWeights,
        share: BoundWeights,
    ) -> IRExecutor:
        """Return an executor like this one of its graph for fixed sizes; see `FixedSizes`."""
        with pause_gc():
            fixed = self._twin()
            fixed.graph = optimize_graph(graph, passes)
            fixed.lowered = lower(fixed.graph, self.backends, overwritable={}, measured=measured)
            bound = bind(fixed.graph, weights.state_dict(()), self._constants, self.device, share)
            fixed._compile(bound, self.threads)
            fixed._engine.kept_inputs = kept_inputs(self.graph, fixed.graph)
        return fixed

    def _twin(self) -> IRExecutor:
        """Return another object with the same parts, some of which are then replaced."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

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

    def _overwritable(self, updates: Updates | None) -> Mapping[Value, Value | None]:
        """Return the state and the inputs in whose memory calls may write, and what is in it then."""
        written = self._updates.targets if updates == "write" else ()
        contents = {target: self.graph.updates[target] for target in written}
        donated = find_donated(self.graph, self._donate)
        known = {
            value: self.graph.updates.get(value) for value, content in donated.items() if content is None
        }
        return {**held_contents(self.graph), **contents, **donated, **known}

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
            self._frozen,
            self._pass_names(),
            name_backends(self.backends),
            self.device,
            {"threads": self.threads, "updates": self._updates.choice, "donate": dict(self._donate)},
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
            executor._updates = InputUpdates(saved.graph, updates or saved.options["updates"])
            with named_place(str(path)):
                executor._restore(saved, str(path))
        return executor

    def _restore(self, saved: SavedExecutor, path: str) -> None:
        """Make this the executor that was saved, but for what happens to inputs."""
        self.graph, self._constants = saved.graph, None
        self._frozen = saved.frozen
        self._pass_names = lambda: saved.passes
        self.backends, self.device = resolve_backends(find_backends(saved.backends), saved.device, None)
        self._donate = saved.options["donate"]
        # As it was saved, or the plan would be another one.
        overwritable = self._overwritable(saved.options["updates"])
        self.lowered = lower(saved.graph, self.backends, overwritable=overwritable, chosen=saved.chosen)
        require_plan(saved.plan, plan_of(self.lowered), path)
        self._compile(saved.bound, saved.options["threads"])

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
        self._engine.bind(bind(self.graph, read_weights(weights, self.graph), self._constants, self.device))

    def _require_original_weights(self) -> None:
        if self._frozen:
            others = f" and {len(self._frozen) - 1} more" if len(self._frozen) > 1 else ""
            raise WeightError(
                f"the executor was loaded from a file, which has {self._frozen[0]!r}{others} only as"
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
        instrumented = self._twin()
        instrumented._updates = InputUpdates(self.graph, "ignore")
        instrumented._engine = self._engine.instrument(wrap)
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
