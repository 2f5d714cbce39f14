"""What a graph takes and gives: arguments, how it is called, results, updates, and the sizes it leaves open.

Every method checks what it is given before it changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from npu_ir.core.literals import Literal, to_literal
from npu_ir.core.naming import unique_name
from npu_ir.core.node import Argument, InputKind, Value
from npu_ir.core.origins import OriginRecord
from npu_ir.core.structure import Structure, flatten
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import GraphError
from npu_ir.graph.rules.edits import (
    checked_data,
    is_replaceable,
    overlap_problem,
    require_same_type,
)
from npu_ir.graph.rules.structures import call_problem, structure_problem
from npu_ir.symbolic.constraints import RELATIONS, Constraint, Range
from npu_ir.symbolic.expressions import Expr, symbol


class Signature:
    """The part of a graph that others see; `npu_ir.graph.graph.Graph` adds the nodes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._edits = 0
        self._next_id = 0
        self._counters: dict[str, int] = {}
        self._values: dict[str, Value] = {}
        self._arguments: dict[InputKind, dict[str, Value]] = {kind: {} for kind in InputKind}
        self._call: tuple[Structure, tuple[Any, ...]] | None = None
        self._results: tuple[Structure, tuple[Any, ...]] = flatten(())[1], ()
        self._pending_results: list[Any] | None = None  # the leaves that are being edited, one at a time
        self._updates: dict[Value, Value] = {}
        self._symbols: dict[str, Range] = {}
        self._constraints: list[Constraint] = []
        self._origins: OriginRecord | None = None

    @property
    def edits(self) -> int:
        """How often this graph was edited so far; edits inside of a region count for the region."""
        return self._edits

    @property
    def arguments(self) -> tuple[Value, ...]:
        """Every value that comes from outside: inputs, parameters, buffers, optimizer state, constants."""
        return tuple(value for group in self._arguments.values() for value in group.values())

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensors and numbers the user passes, in the order they were added."""
        return tuple(self._arguments[InputKind.INPUT].values())

    @property
    def parameters(self) -> Mapping[str, Value]:
        """The model's parameters by ``state_dict`` name; a tied parameter appears once."""
        return MappingProxyType(self._arguments[InputKind.PARAMETER])

    @property
    def buffers(self) -> Mapping[str, Value]:
        """The model's buffers by name; a tied buffer appears once."""
        return MappingProxyType(self._arguments[InputKind.BUFFER])

    @property
    def optimizer_state(self) -> Mapping[str, Value]:
        """What an optimizer keeps between steps, by name: the parameter's, then its key there."""
        return MappingProxyType(self._arguments[InputKind.STATE])

    @property
    def constants(self) -> Mapping[str, Value]:
        """The tensors made while the model ran, by name; ``value.argument.data`` holds each."""
        return MappingProxyType(self._arguments[InputKind.CONSTANT])

    @property
    def weights(self) -> tuple[Value, ...]:
        """Every value that weights are bound to: parameters, buffers and optimizer state."""
        return (*self.parameters.values(), *self.buffers.values(), *self.optimizer_state.values())

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values returned to the user, flat; constants among the results are left out."""
        return tuple(leaf for leaf in self.results[1] if isinstance(leaf, Value))

    @property
    def call(self) -> tuple[Structure, tuple[Any, ...]]:
        """How the graph is called: the structure of ``(args, kwargs)``, and what its leaves are.

        A leaf is an input, or a literal that the graph was made for.
        """
        if self._call is not None:
            return self._call
        leaves, structure = flatten((self.inputs, {}))
        return structure, tuple(leaves)

    @property
    def results(self) -> tuple[Structure, tuple[Any, ...]]:
        """What the graph returns: the structure, and at its leaves values or literals."""
        if self._pending_results is not None:
            self._results, self._pending_results = (self._results[0], tuple(self._pending_results)), None
        return self._results

    @property
    def updates(self) -> Mapping[Value, Value]:
        """For each input, parameter, buffer or optimizer state that the program changes: its new content."""
        return MappingProxyType(self._updates)

    @property
    def replacements(self) -> tuple[Value, ...]:
        """The buffers that get another shape or dtype: the graph is for the state in front of that, and runs once in it."""
        return tuple(filter(self.is_replaced, self._updates))

    def is_replaced(self, target: Value) -> bool:
        """Whether what ``target`` is updated with has another shape or dtype (`replacements`)."""
        type = target.type
        return isinstance(type, TensorType) and not type.same_shape_and_dtype(self._updates[target].type)

    def value(self, name: str) -> Value:
        """Return the value called ``name``.

        Raises:
            GraphError: There is none.
        """
        if name not in self._values:
            raise GraphError(f"graph {self.name!r} has no value {name!r}")
        return self._values[name]

    # Sizes it leaves open

    @property
    def symbols(self) -> Mapping[str, Range]:
        """The symbols that sizes may be written in, with their values; a region has those of its program."""
        return MappingProxyType(self._symbols)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What sizes of the inputs must fulfil besides what their types say."""
        return tuple(self._constraints)

    def add_symbol(self, name: str, range: Range | None = None) -> Expr:
        """Declare a symbol, and return it as a size; without a range it is at least 0.

        Its value is the size it stands for where it first appears: in the type of an input, or of what a
        node returns.

        Raises:
            GraphError: The name is no identifier or is taken, or the range is empty.
        """
        size = symbol(name)
        if name in self._symbols:
            raise GraphError(f"graph {self.name!r} already has a symbol {name!r}")
        range = range or Range()
        if not all(end is None or type(end) is int for end in (range.low, range.high)):
            raise GraphError(
                f"the ends of a range are integers or None, not {range.low!r} and {range.high!r}"
            )
        if range.is_empty:
            raise GraphError(f"no value is in the range {range} of symbol {name!r}")
        self._symbols[name] = range
        self._edits += 1
        return size

    def add_constraint(self, constraint: Constraint) -> None:
        """State what the sizes of the inputs must fulfil.

        Raises:
            GraphError: It names a symbol that is not declared, or none at all.
        """
        if constraint.relation not in RELATIONS or not all(
            isinstance(side, (int, float, Expr)) for side in (constraint.left, constraint.right)
        ):
            raise GraphError(
                f"{constraint} is no constraint", fix=f"put one of {', '.join(RELATIONS)} between sizes"
            )
        unknown = sorted(constraint.symbols - self._symbols.keys())
        if unknown or not constraint.symbols:
            raise GraphError(
                f"the constraint {constraint} has {f'an unknown symbol {unknown[0]!r}' if unknown else 'no symbol'}"
            )
        self._constraints.append(constraint)
        self._edits += 1

    # What comes from outside

    def add_input(self, name: str, type: Type, *, target: str | None = None) -> Value:
        """Add a tensor or number that the user passes; ``target`` is its name outside, if not the same."""
        unique = self._unique(self._values, name)
        return self._add_argument(
            unique, type, Argument(InputKind.INPUT, unique if target is None else target)
        )

    def add_parameter(
        self, target: str, type: TensorType, *, aliases: Sequence[str] = (), name: str | None = None
    ) -> Value:
        """Add a parameter by its ``state_dict`` key; ``aliases`` are further keys tied to it."""
        argument = Argument(InputKind.PARAMETER, target, tuple(aliases))
        return self._add_argument(target if name is None else name, type, argument)

    def add_buffer(
        self,
        target: str,
        type: TensorType,
        *,
        aliases: Sequence[str] = (),
        persistent: bool = True,
        data: torch.Tensor | None = None,
        name: str | None = None,
    ) -> Value:
        """Add a buffer; ``data`` is the content of a non-persistent one, where it is known."""
        if persistent and data is not None:
            raise GraphError(f"buffer {target!r} is persistent: its content comes with the weights")
        checked = None if data is None else checked_data(data, type, target)
        argument = Argument(InputKind.BUFFER, target, tuple(aliases), persistent, checked)
        return self._add_argument(target if name is None else name, type, argument)

    def add_state(self, target: str, type: TensorType, *, name: str | None = None) -> Value:
        """Add what an optimizer keeps between steps: a tensor that comes with the weights, but is not the model's.

        Args:
            target: Its name outside: that of the parameter, then its key in the optimizer's state
                (``fc.weight.exp_avg``).
            type: Its shape, dtype and strides.
            name: Wanted name of the value; made unique.

        Raises:
            GraphError: The graph has state of this name.
        """
        return self._add_argument(target if name is None else name, type, Argument(InputKind.STATE, target))

    def add_constant(
        self, target: str, data: torch.Tensor, *, type: TensorType | None = None, name: str | None = None
    ) -> Value:
        """Add a tensor whose content is part of the graph; it is not copied.

        Args:
            target: Its name outside.
            data: The content.
            type: Differs from that of ``data`` at most in strides: those that the graph needs.
            name: Wanted name of the value; made unique.

        Raises:
            GraphError: ``data`` is sparse, quantized, without data, or of another type.
        """
        checked = checked_data(data, type, target)
        argument = Argument(InputKind.CONSTANT, target, data=checked)
        return self._add_argument(target if name is None else name, type or TensorType.of(checked), argument)

    def _add_argument(self, name: str, type: Type, argument: Argument) -> Value:
        group = self._arguments[argument.kind]
        if argument.target in group:
            raise GraphError(f"graph {self.name!r} already has {argument.kind.value} {argument.target!r}")
        value = self._new_value(name, type, argument=argument)
        group[argument.target] = value
        self._edits += 1
        return value

    def erase_argument(self, value: Value) -> None:
        """Remove a parameter, buffer, optimizer state or constant that nothing reads.

        Raises:
            GraphError: It is a user input, is not in this graph, or is still read.
        """
        self._require_mine(value)
        if value.argument is None or value.argument.kind is InputKind.INPUT:
            raise GraphError(
                f"%{value.name} is no parameter, buffer, optimizer state or constant",
                fix="user inputs are part of the signature",
            )
        self._require_unused(value)
        if value in self._updates:
            raise GraphError(
                f"%{value.name} is updated by the graph", fix="drop the update first: set_update(value, None)"
            )
        del self._arguments[value.argument.kind][value.argument.target]
        del self._values[value.name]
        self._edits += 1

    def fix_input(self, value: Value, literal: Literal) -> None:
        """Make an input that nothing reads a constant of the call: the graph is then made for ``literal``.

        Raises:
            GraphError: It is no input of this graph, or is still read, or ``literal`` is not plain data.
        """
        self._require_mine(value)
        if value.argument is None or value.argument.kind is not InputKind.INPUT:
            raise GraphError(f"%{value.name} is no input", fix="erase_argument removes the others")
        self._require_unused(value)
        structure, leaves = self.call
        fixed = self._leaves(structure, [literal if leaf is value else leaf for leaf in leaves])
        del self._arguments[InputKind.INPUT][value.argument.target]
        del self._values[value.name]
        self._call = structure, fixed
        self._edits += 1

    def replace_input(self, value: Value, type: Type) -> Value:
        """Give an input that nothing reads another type; return the new value, with its name and place in the call.

        Raises:
            GraphError: It is no input of this graph, or is still read, or is updated.
        """
        self._require_mine(value)
        argument = value.argument
        if argument is None or argument.kind is not InputKind.INPUT:
            raise GraphError(f"%{value.name} is no input", fix="erase_argument removes the others")
        self._require_unused(value)
        if value in self._updates:
            raise GraphError(
                f"%{value.name} is updated by the graph", fix="drop the update first: set_update(value, None)"
            )
        del self._values[value.name]
        new = self._new_value(value.name, type, argument=argument)
        self._arguments[InputKind.INPUT][argument.target] = new
        if self._call is not None:
            structure, leaves = self._call
            self._call = structure, tuple(new if leaf is value else leaf for leaf in leaves)
        self._edits += 1
        return new

    def set_overlap(self, value: Value, other: Value, offset: int) -> None:
        """State that an input is in the memory of another, ``offset`` elements behind the first element of that.

        Raises:
            GraphError: They are not two inputs of this graph that are tensors of one dtype.
        """
        for item in (value, other):
            self._require_mine(item)
        problem = overlap_problem(value, other)
        if problem is not None:
            raise GraphError(problem, fix="state it of inputs that are views of one tensor")
        assert value.argument is not None
        assert other.argument is not None
        value.argument = replace(value.argument, overlaps=(other.argument.target, offset))
        self._edits += 1

    # How it is called and what it gives back

    def set_call(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> None:
        """State how the graph is called: nested containers with its inputs, and literals, as leaves.

        An input that stands in two places is one tensor passed twice.

        Raises:
            GraphError: An input does not appear, or a leaf is neither input nor literal.
        """
        leaves, structure = flatten((tuple(args), dict(kwargs or {})))
        self.set_call_structure(structure, leaves)

    def set_call_structure(self, structure: Structure, leaves: Sequence[Any]) -> None:
        """Like `set_call`, with the structure of ``(args, kwargs)`` and its leaves apart."""
        problem = call_problem(structure)
        if problem is not None:
            raise GraphError(problem)
        checked = self._leaves(structure, leaves)
        passed = [leaf for leaf in checked if isinstance(leaf, Value)]
        if set(passed) != set(self.inputs):
            raise GraphError("the call must use every input of the graph, and no other value")
        self._call = structure, checked
        self._edits += 1

    def set_outputs(self, tree: Any) -> None:
        """State what the graph returns: a value or literal, or nested containers of them.

        Raises:
            GraphError: A leaf is neither a value of this graph nor a literal.
        """
        leaves, structure = flatten(tree)
        self.set_results(structure, leaves)

    def set_results(self, structure: Structure, leaves: Sequence[Any]) -> None:
        """Like `set_outputs`, with the structure and its leaves apart."""
        checked = self._leaves(structure, leaves)
        for index, leaf in enumerate(self.results[1]):
            if isinstance(leaf, Value):
                del leaf._uses[None, index]
        self._results = structure, checked
        for index, leaf in enumerate(checked):
            if isinstance(leaf, Value):
                leaf._uses[None, index] = None
        self._edits += 1

    def set_update(self, target: Value, value: Value | None, *, replaces: bool = False) -> None:
        """State that running the graph gives ``target`` the content of ``value``; None: leaves it.

        Args:
            target: An input, a parameter, a buffer or optimizer state.
            value: Its new content.
            replaces: It may be of another shape or dtype, if ``target`` is a buffer (`replacements`).

        Raises:
            GraphError: ``target`` does not come from outside, is a constant or no tensor, or the types
                differ; or the prologue reads ``target``.
        """
        self._require_mine(target)
        is_constant = target.argument is None or target.argument.kind is InputKind.CONSTANT
        if is_constant or not isinstance(target.type, TensorType):
            raise GraphError(
                f"%{target.name} cannot be updated",
                fix="update a tensor: an input, a parameter, a buffer or optimizer state",
            )
        if value is not None:
            self._require_mine(value)
            if not (replaces and is_replaceable(target, value)):
                require_same_type(target, value)
            reader = next((node for node in target.users if node.in_prologue), None)
            if reader is not None:
                raise GraphError(
                    f"%{target.name} cannot be updated: node {reader.name!r} of the prologue reads it",
                    fix="what the graph updates is not known when weights are bound: leave its readers in the body",
                )
        old = self._updates.pop(target, None)
        if old is not None:
            del old._uses[None, target]
        if value is not None:
            self._updates[target] = value
            value._uses[None, target] = None
        self._edits += 1

    def _leaves(self, structure: Structure, leaves: Sequence[Any]) -> tuple[Any, ...]:
        problem = structure_problem(structure)
        if problem is not None:
            raise GraphError(problem)
        if structure.num_leaves != len(leaves):
            raise GraphError(
                f"a structure with {structure.num_leaves} places cannot hold {len(leaves)} leaves"
            )
        for leaf in leaves:
            if isinstance(leaf, Value):
                self._require_mine(leaf)
            elif isinstance(leaf, (list, tuple, dict)):
                raise GraphError(
                    f"a leaf is a value or a single literal, not {leaf!r}",
                    fix="make the list part of the structure",
                )
        return tuple(leaf if isinstance(leaf, Value) else to_literal(leaf) for leaf in leaves)

    # Inside

    def _put_result(self, index: int, value: Value) -> None:
        """Change one leaf of the results, in constant time: many may change before they are looked at."""
        if self._pending_results is None:
            self._pending_results = list(self._results[1])
        self._pending_results[index] = value

    def _new_value(self, name: str, type: Type, **fields: Any) -> Value:
        value = Value(self._next_id, self._unique(self._values, name), type, graph=self, **fields)  # type: ignore[arg-type]
        self._next_id += 1
        self._values[value.name] = value
        if self._origins is not None:
            value._origins = ()
        return value

    def _unique(self, taken: Mapping[str, object], name: str) -> str:
        return unique_name(taken, self._counters, name)

    def _require_mine(self, value: Value) -> None:
        if self._values.get(value.name) is not value:
            raise GraphError(f"%{value.name} is not a value of graph {self.name!r}")

    def _require_unused(self, value: Value) -> None:
        if value._uses:
            readers = sorted({"the results" if node is None else node.name for node, _ in value._uses})
            raise GraphError(
                f"%{value.name} is still read by {', '.join(readers[:5])}",
                where=f"graph {self.name!r}",
                fix="replace_all_uses first",
            )
