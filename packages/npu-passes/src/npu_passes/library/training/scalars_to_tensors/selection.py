"""Selection of the numbers of a graph that can become tensors.

A greatest fixed point: all candidates are selected at first, and a number is removed with all that is
computed from it when a reader cannot take a tensor. Each removal puts the affected numbers back on a work
list, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from npu_ir import Graph, NpuError, OpNode, ScalarType, TensorType, Value
from npu_ir.ops.arguments import path_of_operand
from npu_ir.ops.schema import SCALAR_FUNCTIONS, find_op
from npu_passes.library.training.scalars_to_tensors.arithmetic import (
    BOUNDARY,
    ITEMS,
    Trial,
    detached_value,
    is_arithmetic,
    type_of_number,
)
from npu_passes.library.training.scalars_to_tensors.tensor_forms import Form


class Choice:
    """Numbers that can become tensors, and the tensor forms of the nodes that read them.

    A number can become a tensor if each of its readers can take a tensor, or computes a number that can
    become one. Numbers that are computed from a number that stays, stay.
    """

    def __init__(self, graph: Graph, dtype: torch.dtype, in_memory: bool) -> None:
        self._in_memory = in_memory
        self._trial = Trial(graph.symbols)
        self._dtype = dtype
        self.numbers: dict[Value, None] = dict.fromkeys(_candidates(graph))  # the numbers that can
        self.forms: dict[OpNode, Form] = {}  # by node, in order
        # For numbers that cannot: the first node that needs a number, and the reason.
        self.stays: list[tuple[OpNode | None, Value, str]] = []
        pending = list(self.numbers)
        while pending:
            value = pending.pop()
            if value in self.numbers:
                problem = self._problem(value)
                if problem is not None:
                    self.stays.append((problem[0], value, problem[1]))
                    self._deselect(value, pending)
        self.forms = {node: form for node, form in self.forms.items() if form.tensors}

    def _problem(self, value: Value) -> tuple[OpNode | None, str] | None:
        """Return the node that needs a number, and the reason; None if no reader does."""
        for user, _ in value.uses:
            if user is None:
                return None, "the graph returns it"
            if is_arithmetic(user):
                if user.outputs[0] not in self.numbers:
                    return user, f"{user.op_type} computes a number that stays"
                continue
            reason = self._reader_problem(user, value)
            if reason is not None:
                return user, reason
        return None

    def _reader_problem(self, node: OpNode, value: Value) -> str | None:
        """Return the reason why ``node`` cannot take a tensor for ``value``; None if it can."""
        if node.regions or node.op_type in SCALAR_FUNCTIONS or find_op(node.op_type) is None:
            return f"{node.op_type} takes numbers"
        places = [
            path_of_operand(name)
            for name, item in zip(node.operands or (), node.inputs, strict=False)
            if item is value
        ]
        if not places or any(path for _, path in places):
            return f"{node.op_type} takes it in a list of numbers"
        # Forms depend on the selected numbers: `_deselect` drops those that a removal invalidates.
        if node not in self.forms:
            self.forms[node] = Form(node, self._arguments(node), self._in_memory)
            problem = self._form_problem(node, self.forms[node]) if self.forms[node].tensors else None
            if problem is not None:
                del self.forms[node]
                return problem
        if all(name in self.forms[node].tensors for name, _ in places):
            return None
        return f"{node.op_type} has no form that takes a tensor for {places[0][0]!r}"

    def _arguments(self, node: OpNode) -> frozenset[str]:
        """Return the arguments of a node that are selected numbers."""
        operands = [
            path_of_operand(name)
            for name, item in zip(node.operands or (), node.inputs, strict=False)
            if item in self.numbers
        ]
        return frozenset(name for name, path in operands if not path)

    def _form_problem(self, node: OpNode, form: Form) -> str | None:
        """Return the reason why a form is not equivalent to the node, judged by types; None if it is."""
        tensors = {
            name: detached_value(type_of_number(item.type, self._dtype))
            for name, item in zip(node.operands or (), node.inputs, strict=False)
            if name in form.tensors
        }
        try:
            results = form.results(self._trial, tensors)
        except NpuError as error:
            return f"{node.op_type} does not take tensors: {error.message}"
        for new, old in zip(results, node.outputs, strict=True):
            if new.type != old.type:
                return f"{node.op_type} would return {new.type} for {old.type}"
        return None

    def _deselect(self, value: Value, pending: list[Value]) -> None:
        """Remove a number and all computed from it; put the numbers that this affects on the work list."""
        leaving = [value]
        while leaving:
            item = leaving.pop()
            if item not in self.numbers:
                continue
            del self.numbers[item]
            node = item.producer
            if node is not None and is_arithmetic(node):
                pending += [part for part in node.inputs if part in self.numbers]
            for user in item.users:
                self.forms.pop(user, None)
                dependents = [part for part in user.outputs if part in self.numbers]
                self.stays += [
                    (user, part, f"%{item.name} does, which it is computed from") for part in dependents
                ]
                leaving += dependents
                pending += [part for part in user.inputs if part in self.numbers]


def _candidates(graph: Graph) -> Iterator[Value]:
    """Yield the floats among the inputs, the numbers read from tensors, and those computed from them."""
    candidates: set[Value] = set()
    for value in graph.inputs if graph.owner is None else ():
        if isinstance(value.type, ScalarType) and value.type.kind == "float" and not is_only_converted(value):
            candidates.add(value)
            yield value
    for node in graph.body:
        is_known = is_arithmetic(node) and all(value in candidates for value in node.inputs)
        if (node.op_type in ITEMS or is_known) and isinstance(node.outputs[0].type, ScalarType):
            candidates.add(node.outputs[0])
            yield node.outputs[0]


def is_only_converted(value: Value) -> bool:
    """Return whether all readers of a number are nodes that convert it to a tensor."""
    return all(user is not None and user.op_type == BOUNDARY for user, _ in value.uses)


def tensor_inputs(graph: Graph) -> Graph:
    """Return a copy that takes 0-d tensors for the floats that the graph, after the pass, only converts.

    The names and positions of these inputs stay, and so do floats that a node needs as numbers.
    """
    copy = graph.clone()
    for value in copy.inputs:
        if not isinstance(value.type, ScalarType) or not is_only_converted(value):
            continue
        types = {node.outputs[0].tensor_type for node in value.users}
        if len(types) == 1:
            _replace(copy, value, types.pop())
    return copy


def _replace(graph: Graph, number: Value, type: TensorType) -> None:
    """Replace a number input by a tensor input."""
    # A temporary constant, because an input can be replaced only when the number has no readers.
    constant = graph.add_constant(f"tensor of {number.name}", torch.zeros((), dtype=type.dtype))
    for node in number.users:
        graph.replace_all_uses(node.outputs[0], constant)
        graph.erase(node)
    graph.replace_all_uses(constant, graph.replace_input(number, type))
    graph.erase_argument(constant)
