"""A planned program: a graph over fixed memory, with all tensors bound in advance."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import ExecutionError, TensorType, Value
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.structure import make_unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.ops.effects import is_random
from npu_ir.plugins.backend import StepLoop
from npu_runtime._torch.fast_calls import copy_all
from npu_runtime._torch.state import below_autograd, has_default_torch_state, record_gradients
from npu_runtime.codegen.compiled_function import BoundFunction, CompiledFunction
from npu_runtime.planned.binding import Allocator, DeferredBinding, allocate, bind_tensors
from npu_runtime.planned.buffers import Allocate, BufferKind
from npu_runtime.planned.copies import copied_values
from npu_runtime.planned.load_inputs import CallInputs, copy_tensors
from npu_runtime.planned.plan import Plan
from npu_runtime.planned.uninterrupted_call import UninterruptedCall


class PlannedProgram:
    """A planned graph bound to its memory, at fixed addresses.

    Mutated parameters, buffers and optimizer state are written to in place, in the given tensors. There is
    one set of buffers: a program must not be run by two threads at once.

    Args:
        plan: The memory plan.
        weights: Parameters, buffers and optimizer state by name.
        constants: Tensors by name in place of the graph's constants or of non-persistent buffers.
        allocate: The allocator of the arena and the inputs; PyTorch's if not given.

    Attributes:
        plan: The memory plan.
        inputs: The fixed tensor of each input of the graph; None for a number.
        fixed: The tensors among `inputs`.
        numbers: The names of the inputs that are numbers: the arguments of `run`, in order.
        outputs: Each result of the graph, flat: a fixed tensor or plain data; None for a result returned by
            `run`.
        tensors: The contents of all values with fixed buffers, by name.

    Raises:
        WeightError: Weights are missing, unexpected, or of another type; or a mutated one cannot be written
            to in place.
    """

    def __init__(
        self,
        plan: Plan,
        weights: Mapping[str, torch.Tensor] | None = None,
        *,
        constants: Mapping[str, torch.Tensor] | None = None,
        allocate: Allocator = allocate,
    ) -> None:
        graph = plan.graph
        self.plan = plan
        self._tensors = bind_tensors(plan, weights or {}, constants, allocate)
        self._symbols = SymbolValues({})
        self._bound: dict[DeferredBinding, Callable[..., Any]] = {}
        self._ops = [self._bind_ops(phase) for phase in (plan.compute, plan.commit)]
        self._compute = plan.compute.bind(self._tensors, self._ops[0])
        self._commit = self._whole_commit(plan.commit.bind(self._tensors, self._ops[1]))
        self.inputs = tuple(self._tensors.get(value) for value in graph.inputs)
        self.fixed = tuple(item for item in self.inputs if item is not None)
        self._read_in_place = self.fixed if plan.read_in_place else ()
        self._arena = _arena_range(plan, self._tensors)
        self.numbers = tuple(value.name for value in graph.inputs if not isinstance(value.type, TensorType))
        leaves = graph.results[1]
        self.outputs = tuple(
            self._tensors.get(plan.staging_copies.get(item, item)) if isinstance(item, Value) else item
            for item in leaves
        )
        self.tensors = {value.name: item for value, item in self._tensors.items()}
        # The results that are not the caller's, even of a run that does not borrow.
        self._borrowed = [
            index
            for index, item in enumerate(leaves)
            if isinstance(item, Value) and isinstance(item.type, TensorType) and item not in plan.fresh
        ]
        self._unflatten = make_unflatten(graph.results[0])
        self._call_inputs = CallInputs(graph, plan.device)

    @functools.cached_property
    def _compute_fresh(self) -> BoundFunction:
        program = self.plan.compute_fresh
        return program.bind(self._tensors, self._bind_ops(program))

    def with_observer(self, observe: Callable[[Callable[..., Any]], Any]) -> PlannedProgram:
        """Return a copy over the same memory that calls ``observe(function)`` before each instruction."""

        def wrap(function: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
            def observed_call(*args: Any, **kwargs: Any) -> Any:
                observe(function)
                return call(*args, **kwargs)

            return observed_call

        observed = copy.copy(self)
        observed._compute, commit = (
            phase.bind(self._tensors, list(map(wrap, phase.source.ops, ops)))
            for phase, ops in zip((self.plan.compute, self.plan.commit), self._ops, strict=True)
        )
        observed._commit = observed._whole_commit(commit)
        return observed

    def _whole_commit(self, commit: BoundFunction) -> Callable[..., Any]:
        """Return the commit phase such that Ctrl-C ends a run before it, or after it."""
        calls, is_drawing = self.plan.calls["commit"], any(map(is_random, self.plan.graph.nodes))
        # A program of a backend is one call of C; other ops may be functions of Python.
        is_whole = not calls or (len(calls) == 1 and calls[0].is_partition)
        return commit if is_whole and not is_drawing else UninterruptedCall(commit)

    @property
    def steps(self) -> int | None:
        """The number of runs that have changed the state; None where one program of a backend does."""
        return self._commit.count if isinstance(self._commit, UninterruptedCall) else None

    def _bind_ops(self, program: CompiledFunction) -> list[Callable[..., Any]]:
        return [
            self._bind_once(function) if isinstance(function, DeferredBinding) else function
            for function in program.source.ops
        ]

    def make_loop(
        self, inputs: Sequence[torch.Tensor], slots: Sequence[Sequence[torch.Tensor]]
    ) -> StepLoop | None:
        """Return a loop that takes steps without Python; None unless one backend runs the whole program.

        Args:
            inputs: Tensors among `fixed`: a step begins by copying a slot into them.
            slots: Tensors of the same types, for each slot.
        """
        calls = [item for phase in self.plan.calls.values() for item in phase]
        pairs = [pair for item in calls for pair in copied_values(item)]
        partitions = [item for item in calls if not copied_values(item)]
        backends = {item.partition.backend if item.partition else None for item in partitions}
        backend = backends.pop() if len(backends) == 1 else None
        results = [item for item in self.outputs if isinstance(item, torch.Tensor)]
        if (
            backend is None
            or not all(isinstance(item.function, DeferredBinding) for item in partitions)
            or any(map(copied_values, calls[: len(partitions)]))  # a copy that is not one of the last calls
            or not all(value in self._tensors for pair in pairs for value in pair)
            or any(source.tensor_type.dtype is not target.tensor_type.dtype for source, target in pairs)
            or len(results) < len(self.outputs)
            or self.numbers
        ):
            return None
        phases = zip((self.plan.compute, self.plan.commit), self._ops, strict=True)
        runs = [
            run
            for phase, ops in phases
            for function, run in zip(phase.source.ops, ops, strict=True)
            if isinstance(function, DeferredBinding)
        ]
        copies = [(self._tensors[source], self._tensors[target]) for source, target in pairs]
        return backend.make_loop(runs, copies, inputs, slots, results)

    def _bind_once(self, function: DeferredBinding) -> Callable[..., Any]:
        # The program of a backend has memory of its own: both forms of the compute phase use one.
        if function not in self._bound:
            self._bound[function] = function.bind(self._tensors)
        return self._bound[function]

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The mutated parameters, buffers, optimizer state and inputs by name, in their own memory."""
        return {
            value.argument.target: self._tensors[value]
            for value in self.plan.graph.updates
            if value.argument is not None
        }

    def load(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """Copy the tensors of a call into the fixed inputs; return its numbers, for `run`.

        Raises:
            ExecutionError: The arguments do not fit the graph; then nothing was copied.
        """
        given, numbers = self._call_inputs.of(args, kwargs or {})
        copy_tensors(self.fixed, given)
        return tuple(numbers)

    def run(self, *numbers: Any) -> Sequence[Any]:
        """Run both phases on the contents of the inputs; see `step`."""
        return self.step((), numbers)

    def step(
        self,
        given: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        borrow: bool = True,
        in_default_state: bool = False,
    ) -> Sequence[Any]:
        """Run both phases on the tensors of a call.

        Args:
            given: A tensor of the same type, strides included, for each of `fixed`; or none, to run on what
                these hold. They are copied into these, unless nothing is bound to the memory of these.
            numbers: A number for each of `numbers`.
            borrow: Return results in fixed tensors, which the next run overwrites, and not in new memory.
            in_default_state: The caller has asked `has_default_torch_state`; otherwise it is asked here.

        Returns:
            The results, flat.

        Raises:
            ExecutionError: A node fails; if that is in the compute phase, no state has changed.
        """
        if len(numbers) != len(self.numbers):
            raise ExecutionError(
                f"{len(numbers)} numbers were given, the program takes {len(self.numbers)}",
                where=f"graph {self.plan.graph.name!r}",
                fix=f"give {', '.join(self.numbers) or 'none'}, in this order",
            )
        if not (in_default_state or has_default_torch_state()):
            with isolated_torch_state(self.plan.device):
                return self._launch(given, numbers, borrow)
        # Set directly: `torch.set_grad_enabled` takes ten times as long.
        before = torch.is_grad_enabled()
        try:
            record_gradients(False)  # in the block: Ctrl-C is raised at the end of a call
            return self._launch(given, numbers, borrow)
        finally:
            record_gradients(before)

    def write_step(
        self, given: Sequence[str], numbers: Sequence[str], borrow: bool
    ) -> tuple[list[str], dict[str, Any]]:
        """Return statements that assign to ``results`` what `step` returns, and what they name.

        They run below autograd, in the default state, without recording gradients.

        Args:
            given: The variables of the tensors that `step` takes, which are assigned to; or none.
            numbers: The expressions of the numbers.
            borrow: As for `step`.
        """
        tensors = "".join(f"{name}, " for name in given)
        taken = "".join(f"{name}, " for name in numbers)
        space = {
            "compute": self._compute if borrow else self._compute_fresh,
            "commit": self._commit,
            "no_symbols": self._symbols,
            "copy_all": copy_all,
            "fixed": self.fixed,
            "read_in_place": self._read_in_place,
            "Tensor": torch.Tensor,
        }
        space["arena_start"], space["arena_end"] = self._arena
        lines = []
        inputs = "*read_in_place"
        if given and self._read_in_place:
            fits = (
                f"type({name}) is Tensor and not arena_start <= {name}.data_ptr() < arena_end"
                for name in given
            )
            inputs = tensors
            lines += [
                f"if not ({' and '.join(fits)}):",
                f"    copy_all(fixed, ({tensors}))",
                f"    ({tensors}) = fixed",
            ]
        elif given:
            lines.append(f"copy_all(fixed, ({tensors}))")
        computed = "".join(f"computed{index}, " for index in range(self.plan.compute.result_count))
        lines += [
            f"({computed}) = compute(no_symbols, {taken}{inputs})",
            f"results = commit(no_symbols, {taken}{computed})",
        ]
        if self._borrowed and not borrow:
            lines.append("results = [*results]")
            lines += [f"results[{index}] = results[{index}].clone()" for index in self._borrowed]
        return lines, space

    def explain(self, error: Exception) -> None:
        """Raise an error that names the failed node, as `CompiledFunction.explain` does."""
        for phase in (self.plan.compute, self.plan.compute_fresh, self.plan.commit):
            phase.explain(error, self._tensors)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results in the model's structure: fixed tensors, which the next call overwrites."""
        return self._unflatten(self.run(*self.load(args, kwargs)))

    def _launch(self, given: Sequence[torch.Tensor], numbers: Sequence[Any], borrow: bool) -> Sequence[Any]:
        compute = self._compute if borrow else self._compute_fresh
        try:
            with below_autograd():
                inputs = self._take(given)
                results: Sequence[Any] = self._commit(
                    self._symbols, *numbers, *compute(self._symbols, *numbers, *inputs)
                )
        except Exception as error:
            self.explain(error)
            raise
        if borrow or not self._borrowed:
            return results
        own = list(results)
        for index in self._borrowed:
            own[index] = own[index].clone()
        return own

    def compute(self) -> None:
        """Run the compute phase alone, which changes no state, on the contents of the inputs.

        Raises:
            ExecutionError: A node fails, as in `step`.
        """
        try:
            with below_autograd():
                self._compute(self._symbols)
        except Exception as error:
            self.explain(error)
            raise

    def _take(self, given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the tensors that the compute phase takes: those given, or fixed ones with their content."""
        if not given:
            return self._read_in_place
        if self._read_in_place:
            start, end = self._arena
            for item in given:
                # Borrowed results are in memory that the compute phase writes to.
                if type(item) is not torch.Tensor or start <= item.data_ptr() < end:
                    break
            else:
                return given
        copy_all(self.fixed, given)
        return self._read_in_place


def _arena_range(plan: Plan, tensors: Mapping[Value, Any]) -> tuple[int, int]:
    """Return the first address of the allocations in the arena, and the one behind them."""
    spans = [
        (start := tensors[action.value].data_ptr(), start + action.allocation.bytes)
        for action in plan.actions
        if isinstance(action, Allocate)
        and action.allocation.kind is BufferKind.ARENA
        and action.allocation.bytes
    ]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else (0, 0)
