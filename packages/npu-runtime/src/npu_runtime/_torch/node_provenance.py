"""Provenance of the FX nodes of a traced step: the module that each belongs to, and the phase of the step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.nn import Module

from npu_ir.capture.fx_nodes import PHASE

_IS_OPTIMIZER = ContextVar("_IS_OPTIMIZER", default=False)


@contextlib.contextmanager
def optimizer_phase() -> Iterator[None]:
    """Have the nodes that are traced in the block belong to the optimizer."""
    token = _IS_OPTIMIZER.set(True)
    try:
        yield
    finally:
        _IS_OPTIMIZER.reset(token)


class ProvenanceRecorder:
    """Notes in each FX node, as it is made, its module and its phase of the step.

    Autograd numbers its functions in the order of the forward, so that a node of the backward is given the
    module and the stack of the call that it is the gradient of. What runs without gradients outside of
    modules and optimizers, such as clipping, has neither a module nor a phase.

    Args:
        modules: Modules by path; "" for a single one.
    """

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self._paths = {
            id(part): _join(prefix.rstrip("."), name)
            for prefix, module in modules.items()
            for name, part in module.named_modules()
        }
        self._modules = list(modules.values())
        # Of the running modules: the stack as FX has it, and whether a backward runs them.
        self._stack: list[tuple[dict[str, Any], bool]] = []
        self._calls: dict[int, Node] = {}  # by the numbers of their functions in autograd
        self._owners: dict[int, dict[str, Any]] = {}  # of parameters by id
        self._thread = threading.get_ident()

    def patches(self) -> tuple[tuple[Any, str, Callable[..., Any]], ...]:
        """Return the attributes to set during a trace: their owners, names, and new values."""
        # Not __call__: FX replaces it by a method that calls the original one.
        call: Callable[..., Any] = Module._call_impl
        create = Graph.create_node

        def call_module(module: Module, *args: Any, **kwargs: Any) -> Any:
            path = self._paths.get(id(module))
            if path is None or threading.get_ident() != self._thread:
                return call(module, *args, **kwargs)
            self._stack.append((_stack_of(path, module), torch._C._current_autograd_node() is not None))
            try:
                return call(module, *args, **kwargs)
            finally:
                self._stack.pop()

        def create_node(graph: Graph, op: str, *args: Any, **kwargs: Any) -> Node:
            node = create(graph, op, *args, **kwargs)
            if op == "call_function" and threading.get_ident() == self._thread:
                self._annotate(node)
            return node

        return (Module, "_call_impl", call_module), (Graph, "create_node", create_node)

    def _annotate(self, node: Node) -> None:
        function = torch._C._current_autograd_node()
        phase = self._phase(is_backward=function is not None)
        if phase:
            node.meta["custom"] = {**node.meta.get("custom", {}), PHASE: phase}
        if self._stack and self._stack[-1][1] == (function is not None):  # a checkpoint runs modules again
            node.meta["nn_module_stack"] = self._stack[-1][0]
        elif phase == "backward":
            self._take_from_forward(node, function)
        if phase in ("forward", "backward"):  # a backward that is differentiated again has functions, too
            # The first node after autograd has made a function is that of its call.
            self._calls.setdefault(torch._C._autograd._get_sequence_nr() - 1, node)

    def _phase(self, is_backward: bool) -> str:
        if is_backward:
            return "backward"
        if _IS_OPTIMIZER.get():
            return "optimizer"
        return "forward" if self._stack or torch.is_grad_enabled() else ""

    def _take_from_forward(self, node: Node, function: Any) -> None:
        """Give a node of the backward the module and the stack of its call in the forward."""
        variable = getattr(function, "variable", None)
        if variable is not None:  # accumulates the gradient of a parameter
            stack = self._owner_of(variable)
            if stack is not None:
                node.meta["nn_module_stack"] = stack
            return
        call = self._calls.get(function._sequence_nr())
        if call is not None:
            for key in ("nn_module_stack", "stack_trace"):
                if key in call.meta:
                    node.meta[key] = call.meta[key]

    def _owner_of(self, parameter: torch.Tensor) -> dict[str, Any] | None:
        if not self._owners:  # made now: a trace swaps the parameters of its modules
            self._owners = {
                id(item): _stack_of(self._paths[id(part)], part)
                for module in self._modules
                for part in module.modules()
                for item in part.parameters(recurse=False)
            }
        return self._owners.get(id(parameter))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _stack_of(path: str, module: Module) -> dict[str, Any]:
    """Return the stack of modules of an FX node, with the innermost one alone."""
    return {path: (path, type(module))}
