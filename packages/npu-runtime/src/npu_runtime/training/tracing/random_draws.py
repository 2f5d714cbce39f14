"""Random ops of a traced step: a repeated draw reuses the numbers of the first one, in the order of memory.

Activation checkpointing recomputes a part of the forward pass with the random numbers of the first time: it
saves the generator state before and sets it again. A trace has ops only. So the positions of these calls are
recorded, and an op that draws again is replaced by the result of the op that drew first.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from npu_ir._torch.patches import set_attributes
from npu_runtime._torch.ops import OpOverload
from npu_runtime._torch.tracing_context import last_node
from npu_runtime.errors import TracingError

_FIX = "let the step draw random numbers as they come: seed the generator outside"


@dataclass
class RandomStates:
    """The calls of a traced step that save or set the state of PyTorch's generators.

    Attributes:
        events: Each call: the last node traced before it, ``"save"`` or ``"set"``, and the index of the
            state.
        saved: A token for each saved state, which the step gets instead of it.
    """

    events: list[tuple[Node | None, str, int]] = field(default_factory=list)
    saved: list[Any] = field(default_factory=list)

    def recording(self) -> contextlib.AbstractContextManager[None]:
        """Record the calls that save and set states, for the block.

        Raises:
            TracingError: The step sets a seed, or a state that it has not saved itself.
        """
        replacements: dict[str, Callable[..., Any]] = {
            "get_rng_state": self._save,
            "set_rng_state": self._set,
            "manual_seed": _refuse_seed,
        }
        thread = threading.get_ident()
        return set_attributes(
            *(
                (owner, name, _dispatch_by_thread(thread, function, getattr(owner, name)))
                for owner in (torch, torch.random)
                for name, function in replacements.items()
            )
        )

    def _save(self) -> Any:
        self.saved.append(object())
        self.events.append((last_node(), "save", len(self.saved) - 1))
        return self.saved[-1]

    def _set(self, state: Any) -> None:
        number = next((index for index, item in enumerate(self.saved) if item is state), None)
        if number is None:
            raise TracingError("the step sets a state of the random number generator from outside", fix=_FIX)
        self.events.append((last_node(), "set", number))

    def reuse_draws(self, module: GraphModule) -> None:
        """Replace ops that draw from a restored state by the results of those that drew from it first.

        The state is modelled as a position: the number of draws since the beginning. Saving remembers the
        position, setting returns to it, and two ops at the same position draw the same numbers.
        """
        if not any(action == "set" for _, action, _ in self.events):
            return
        waiting = list(self.events)
        positions: dict[int, int] = {}
        first: dict[int, Callable[[], Node]] = {}
        position = 0

        def catch_up(node: Node | None) -> None:
            nonlocal position
            while waiting and waiting[0][0] is node:
                _, action, number = waiting.pop(0)
                if action == "save":
                    positions[number] = position
                else:
                    position = positions[number]

        catch_up(None)
        for node in list(module.graph.nodes):
            if is_random(node):
                if position in first:
                    _replace_draw(module, node, first[position]())
                else:
                    first[position] = _copy_on_demand(module, node)
                position += 1
            catch_up(node)


def _dispatch_by_thread(
    thread: int, here: Callable[..., Any], elsewhere: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that calls ``here`` in one thread, and ``elsewhere`` in all others."""

    @functools.wraps(elsewhere)
    def call(*args: Any) -> Any:
        return (here if threading.get_ident() == thread else elsewhere)(*args)

    return call


def is_random(node: Node) -> bool:
    """Return whether an FX node draws random numbers."""
    return isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def writes_first_argument(node: Node) -> bool:
    """Return whether an FX node writes its result into its first argument."""
    return isinstance(node.target, OpOverload) and node.target._schema.name.endswith("_")


def _copy_on_demand(module: GraphModule, node: Node) -> Callable[[], Node]:
    """Return a function that inserts, once, a copy of a node's result before anything mutates it."""
    copies: list[Node] = []

    def copy_of_result() -> Node:
        if isinstance(node.meta.get("val"), (tuple, list)):
            return node  # several results are fresh tensors, which no op writes into
        if not copies:
            with module.graph.inserting_after(node):
                copies.append(module.graph.call_function(torch.ops.aten.clone.default, (node,)))
        return copies[0]

    return copy_of_result


def _replace_draw(module: GraphModule, node: Node, drawn: Node) -> None:
    if writes_first_argument(node):
        with module.graph.inserting_before(node):
            copy = module.graph.call_function(torch.ops.aten.copy_.default, (node.args[0], drawn))
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy)
    else:
        node.replace_all_uses_with(drawn)
    module.graph.erase_node(node)


def _refuse_seed(seed: Any) -> Any:
    raise TracingError(
        f"the step seeds the random number generator with {seed!r}: each replay would draw the same", fix=_FIX
    )


def clean_up(module: GraphModule) -> None:
    """Erase profiler markers, and make in-place random ops draw in memory order."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and str(node.target).startswith("profiler."):
            node.replace_all_uses_with(None)
            module.graph.erase_node(node)
        elif _is_random_fill(node):
            _fill_in_memory_order(module, node)
    module.recompile()


def _is_random_fill(node: Node) -> bool:
    return (
        is_random(node)
        and writes_first_argument(node)
        and not any(isinstance(item, Node) for item in node.args[1:])
    )


def _fill_in_memory_order(module: GraphModule, node: Node) -> None:
    """Make the op fill a view whose elements are in memory order, in which its functional form draws.

    The functional form of an op makes its result in memory order; so dropout of a transposed activation draws
    the same numbers as it does in place.
    """
    filled = node.args[0]
    assert isinstance(filled, Node)
    tensor = filled.meta["val"]
    order = _memory_order(tensor)
    if order == list(range(tensor.dim())):
        return
    with module.graph.inserting_before(node):
        view = module.graph.call_function(torch.ops.aten.permute.default, (filled, order))
        module.graph.call_function(node.target, (view, *node.args[1:]), node.kwargs)  # type: ignore[arg-type]
    node.replace_all_uses_with(filled)
    module.graph.erase_node(node)


def _memory_order(tensor: torch.Tensor) -> Sequence[int]:
    """Return the dimensions from slowest to fastest varying; in their own order if memory has gaps."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis))
    is_dense = tensor.permute(order).is_contiguous()
    return order if is_dense else list(range(tensor.dim()))
