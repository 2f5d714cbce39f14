"""From a step function, as one writes it for PyTorch, to one graph: forward, backward and optimizer."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from npu_ir import Graph, NpuError
from npu_ir.capture.graph_module import convert_graph_module
from npu_ir.capture.model_guard import restored
from npu_ir.collection import no_collection
from npu_ir.node import Argument, InputKind
from npu_ir.structure import flatten, unflatten
from npu_runtime.errors import TracingError
from npu_runtime.training import hyperparameters, optimizers
from npu_runtime.training._torch import Branch, TracingWorld, swapped_weights
from npu_runtime.training.cleaning import clean, require_no_sync
from npu_runtime.training.random_states import RandomStates
from npu_runtime.training.subjects import Subjects

HYPERPARAMETERS = "hyperparameters"
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A training step as a graph, and what it was traced for.

    Attributes:
        graph: Takes the batch, and ``hyperparameters`` by name; its updates say what a step changes.
        state: What the state of the optimizers holds before the first step, by name.
        branches: What Python decided by the value of a hyperparameter.
        gradients: The names of the values that hold the gradients when an optimizer takes its step, by parameter.
        subjects: The modules and optimizers.
    """

    graph: Graph
    state: dict[str, torch.Tensor]
    branches: Sequence[Branch]
    gradients: Mapping[str, str]
    subjects: Subjects

    def weights(self) -> dict[str, torch.Tensor]:
        """Return what the graph is to be bound to: the tensors of the modules themselves, and the state."""
        return {**self.subjects.parameters(), **self.subjects.buffers(), **self.state}

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers of the optimizers as they are now, by name: what a call of the graph takes."""
        found = self.subjects.optimizers
        return {**hyperparameters.fixed_numbers(found), **hyperparameters.numbers(found)}


def trace_function(
    function: Callable[..., Any],
    subjects: Subjects,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "step",
) -> TracedStep:
    """Return a step function as a graph; modules, optimizers and arguments stay as they are, to the bit.

    Args:
        function: Computes gradients with ``backward()``, and calls ``step()`` of the optimizers.
        subjects: What it works on.
        args: An example batch: shapes and dtypes count, and numbers, not the content of tensors.
        kwargs: Of the batch, by name.
        name: Of the graph.

    Raises:
        TracingError: The step needs the content of a tensor in Python, or does what a graph would not repeat.
        ConversionError: An op has no place in a graph.
    """
    with no_collection():
        return _Tracing(function, subjects, name).run(args, dict(kwargs or {}))


@dataclass
class _Tracing:
    function: Callable[..., Any]
    subjects: Subjects
    name: str
    world: TracingWorld = field(default_factory=TracingWorld)
    # The gradients that an optimizer finds at its step, by the name of the parameter.
    found: dict[str, torch.Tensor] = field(default_factory=dict)

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> TracedStep:
        for optimizer in self.subjects.optimizers.values():
            optimizers.require_traceable(optimizer)
        self._require_no_hooks()
        self.optimized = self.subjects.optimized()
        self.state = {prefix: self._state(item) for prefix, item in self.subjects.optimizers.items()}
        leaves, structure = flatten((tuple(args), kwargs))
        tensors = self._weights()
        numbers = hyperparameters.numbers(self.subjects.optimizers)
        batch = [item for item in leaves if isinstance(item, torch.Tensor)]
        # Gradients from before the step: where nothing is optimized, nobody reads them.
        mine = {key for names in self.optimized.values() for key in names}
        previous = {
            key: item
            for key, item in self.subjects.parameters().items()
            if item.requires_grad and key in mine
        }
        fakes = [*map(self.world.tensor, tensors.values())]
        fakes += [self.world.number(key, value) for key, value in numbers.items()]
        fakes += [*map(self.world.tensor, batch), *map(self.world.tensor, previous.values())]
        counts = len(tensors), len(numbers), len(batch)

        def traced(*items: Any) -> Any:
            first, second, third = counts[0], sum(counts[:2]), sum(counts)
            given = iter(items[second:third])
            filled = [next(given) if isinstance(item, torch.Tensor) else item for item in leaves]
            inner_args, inner_kwargs = unflatten(structure, filled)
            old = dict(zip(previous, items[third:], strict=True))
            with self._swapped(
                dict(zip(tensors, items[:first], strict=True)),
                dict(zip(numbers, items[first:second], strict=True)),
                old,
            ):
                results = self.function(*inner_args, **inner_kwargs)
            self.results, plain = _flat_results(results)
            return plain, list(self.found.values())

        module = self._traced(traced, fakes)
        return self._converted(module, tensors, numbers, leaves, structure, len(previous))

    def _traced(self, function: Callable[..., Any], fakes: Sequence[Any]) -> GraphModule:
        with contextlib.ExitStack() as stack:
            for item in self.subjects.modules.values():
                stack.enter_context(restored(item))
            stack.enter_context(_random_numbers_kept())
            states = RandomStates()
            try:
                with states.noted():
                    module = self.world.trace(function, fakes)
            except NpuError:
                raise
            except Exception as error:
                raise untraceable(error) from error
            require_no_sync(module)
            states.draw_again(module)
            clean(module)
            return self.world.functional(module, fakes)

    def _converted(
        self,
        module: GraphModule,
        tensors: Mapping[str, torch.Tensor],
        numbers: Mapping[str, float],
        leaves: Sequence[Any],
        structure: Any,
        previous: int,
    ) -> TracedStep:
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._require_new_gradients(nodes[len(nodes) - previous :])
        for node in nodes[len(nodes) - previous :]:
            module.graph.erase_node(node)
        gradients = self._take_gradients(module)
        module.graph.eliminate_dead_code(is_impure_node=_is_needed)
        batch = [f"batch{index}" for index in range(len(nodes) - previous - len(tensors) - len(numbers))]
        arguments = [
            *(self._argument(key, tensor) for key, tensor in tensors.items()),
            *(Argument(InputKind.INPUT, key) for key in (*numbers, *batch)),
        ]
        graph = convert_graph_module(module, name=self.name, arguments=arguments)
        inputs = {value.argument.target: value for value in graph.inputs if value.argument is not None}
        given = iter(batch)
        filled = [inputs[next(given)] if isinstance(item, torch.Tensor) else item for item in leaves]
        inner_args, inner_kwargs = unflatten(structure, filled)
        known = {
            key: inputs.get(key, value)
            for key, value in {**hyperparameters.fixed_numbers(self.subjects.optimizers), **numbers}.items()
        }
        graph.set_call(inner_args, {**inner_kwargs, HYPERPARAMETERS: known})
        graph.set_outputs(unflatten(self.results, list(graph.outputs)))
        for key, value in numbers.items():
            if not inputs[key].use_count:
                graph.fix_input(inputs[key], value)
        state = {
            f"{owner}.{key}": tensor
            for prefix, entries in self.state.items()
            for owner, item in zip(self.optimized[prefix], entries, strict=True)
            for key, tensor in item.items()
        }
        for key, entry in list(graph.optimizer_state.items()):
            if not entry.use_count and entry not in graph.updates:  # of a parameter that gets no gradient
                graph.erase_argument(entry)
                del state[key]
        return TracedStep(graph, state, self.world.branches(), gradients, self.subjects)

    # What the step works on

    def _state(self, optimizer: torch.optim.Optimizer) -> list[dict[str, torch.Tensor]]:
        state = optimizers.state_of(optimizer)
        if state is None:
            raise optimizers.UnknownStateError(
                f"only a first step tells what state {type(optimizer).__name__} keeps",
                fix="take one step without the graph before: loss.backward(); optimizer.step()",
            )
        return state

    def _weights(self) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {**self.subjects.parameters(), **self.subjects.buffers()}
        for prefix, entries in self.state.items():
            for owner, item in zip(self.optimized[prefix], entries, strict=True):
                found.update({f"{owner}.{key}": tensor for key, tensor in item.items()})
        return found

    def _argument(self, name: str, tensor: torch.Tensor) -> Argument:
        if isinstance(tensor, torch.nn.Parameter) and name in self.subjects.parameters():
            return Argument(InputKind.PARAMETER, name, self.subjects.aliases(name, tensor))
        if name in self.subjects.buffers():
            persistent = self.subjects.is_persistent(name)
            data = None if persistent or tensor.is_meta else tensor.detach().clone()
            return Argument(InputKind.BUFFER, name, self.subjects.aliases(name, tensor), persistent, data)
        return Argument(InputKind.STATE, name)

    @contextlib.contextmanager
    def _swapped(
        self, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, Any], old: Mapping[str, torch.Tensor]
    ) -> Iterator[None]:
        """Let modules and optimizers work on what is traced."""
        parameters = {}
        for key, parameter in self.subjects.parameters().items():
            parameters[key] = tensors[key].detach().requires_grad_(parameter.requires_grad)
            if key in old:
                parameters[key].grad = old[key]
        buffers = {key: tensors[key] for key in self.subjects.buffers()}
        with contextlib.ExitStack() as stack:
            for prefix, module in self.subjects.modules.items():
                own = {
                    key.removeprefix(prefix): item
                    for key, item in {**parameters, **buffers}.items()
                    if key.startswith(prefix)
                }
                stack.enter_context(swapped_weights(module, own))
            for prefix, optimizer in self.subjects.optimizers.items():
                names = self.optimized[prefix]
                state = [
                    {key: tensors[f"{owner}.{key}"] for key in entries}
                    for owner, entries in zip(names, self.state[prefix], strict=True)
                ]
                mine = [parameters[key] for key in names]

                def found(names: Sequence[str] = names, mine: Sequence[torch.Tensor] = mine) -> None:
                    pairs = zip(names, mine, strict=True)
                    self.found.update({key: item.grad for key, item in pairs if item.grad is not None})

                stack.enter_context(optimizers.traceable(optimizer, prefix, mine, state, numbers, found))
            yield
            self._write_replaced_buffers(buffers)

    def _write_replaced_buffers(self, given: Mapping[str, torch.Tensor]) -> None:
        """Make ``self.buffer = new`` a write into the buffer."""
        now = self.subjects.buffers()
        for key, old in given.items():
            new = now.get(key, old)
            if new is old:
                continue
            if new.shape != old.shape or new.dtype != old.dtype:
                raise TracingError(
                    f"{key} is {tuple(old.shape)} of {old.dtype}, and the step replaces it by {tuple(new.shape)} of "
                    f"{new.dtype}",
                    fix="give the buffer its final size and dtype from the start",
                )
            with torch.no_grad():
                old.copy_(new)

    # What is refused

    def _require_no_hooks(self) -> None:
        for key, parameter in self.subjects.parameters().items():
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise TracingError(
                    f"the parameter {key!r} has hooks, which would not run in a graph",
                    fix="change gradients between backward() and step() of a step function, or in a module's own hook",
                )

    def _require_new_gradients(self, old: Sequence[Node]) -> None:
        if any(node.users for node in old):
            raise TracingError(
                "the step adds to gradients that are there before it: gradients are not kept from step to step",
                fix="call optimizer.zero_grad() in the step; to accumulate, call backward() several times in one step",
            )

    def _take_gradients(self, module: GraphModule) -> dict[str, str]:
        """Take the gradients out of the results of a module, and name them."""
        output = next(node for node in module.graph.nodes if node.op == "output")
        results, gradients = output.args[0]
        output.args = (results,)
        names: dict[str, str] = {}
        for key, node in zip(self.found, gradients, strict=True):
            if isinstance(node, Node) and node.op == "call_function" and node.name not in names.values():
                node._rename(f"{key.replace('.', '_')}_grad")
            if isinstance(node, Node):
                names[key] = node.name
        return names


def _is_needed(node: Node) -> bool:
    return node.op in ("placeholder", "output") or node.target is torch.ops.aten.copy_.default


def _flat_results(results: Any) -> tuple[Any, list[Any]]:
    leaves, structure = flatten(results)
    plain = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise TracingError(
                f"the step returns {type(leaf).__name__}: its results are tensors",
                fix="return the loss itself, not loss.item(): call item() on what the step returns, when you need it",
            )
        plain.append(leaf.detach())
    return structure, plain


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=list(devices)):
        yield


def untraceable(error: Exception) -> TracingError:
    """Return what to tell the user of an error that tracing raised."""
    text = str(error).strip().splitlines()
    kind = type(error).__name__
    where = _users_line(error)
    if "DataDependent" in kind or "data-dependent" in str(error):
        return TracingError(
            f"the step decides by the content of a tensor: {text[0] if text else kind}",
            where=where,
            fix="compute both sides and choose with torch.where; keep numbers in tensors, without .item()",
        )
    return TracingError(
        f"the step cannot be traced: {kind}: {text[0] if text else ''}",
        where=where,
        fix="the exception above is PyTorch's own; see docs/concepts/training-step.md for what can be captured",
    )


def _users_line(error: BaseException) -> str:
    """Return the innermost line of the user's code that an error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [item for item in frames if not item.filename.startswith((_TORCH, _OWN, "<"))]
    return f"{outside[-1].filename}:{outside[-1].lineno}" if outside else ""
