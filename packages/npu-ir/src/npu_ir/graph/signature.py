"""The signature of a graph: arguments, call, results, updates, and symbolic sizes.

Every method validates its arguments before it changes anything.
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
from npu_ir.core.user_code import did_you_mean
from npu_ir.errors import GraphError
from npu_ir.graph.rules.edits import (
    is_replaceable,
    overlap_problem,
    require_same_type,
    validate_data,
)
from npu_ir.graph.rules.structures import call_problem, structure_problem
from npu_ir.symbolic.constraints import RELATIONS, Constraint, Range
from npu_ir.symbolic.expressions import Expr, symbol


class Signature:
    """The signature of a graph; `npu_ir.graph.graph.Graph` adds the nodes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._edits = 0
        self._next_id = 0
        self._counters: dict[str, int] = {}
        self._values: dict[str, Value] = {}
        self._arguments: dict[InputKind, dict[str, Value]] = {kind: {} for kind in InputKind}
        self._call: tuple[Structure, tuple[Any, ...]] | None = None
        self._results: tuple[Structure, tuple[Any, ...]] = flatten(())[1], ()
        self._pending_results: list[Any] | None = None  # edited leaves, until the next read of ``results``
        self._updates: dict[Value, Value] = {}
        self._symbols: dict[str, Range] = {}
        self._constraints: list[Constraint] = []
        self._origins: OriginRecord | None = None

    @property
    def edits(self) -> int:
        """The number of edits of this graph so far; edits inside a region count for the region only."""
        return self._edits

    @property
    def arguments(self) -> tuple[Value, ...]:
        """All arguments: inputs, parameters, buffers, optimizer state and constants."""
        return tuple(value for group in self._arguments.values() for value in group.values())

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensors and numbers that the user passes, in the order in which they were added."""
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
        """The optimizer state by name: the key of the parameter, then the key in its state."""
        return MappingProxyType(self._arguments[InputKind.STATE])

    @property
    def constants(self) -> Mapping[str, Value]:
        """The constants by name: tensors whose content is part of the graph (``value.data``)."""
        return MappingProxyType(self._arguments[InputKind.CONSTANT])

    @property
    def weights(self) -> tuple[Value, ...]:
        """The arguments that weights are bound to: parameters, buffers and optimizer state."""
        return (*self.parameters.values(), *self.buffers.values(), *self.optimizer_state.values())

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values returned to the user, flat; literals among the results are left out."""
        return tuple(leaf for leaf in self.results[1] if isinstance(leaf, Value))

    @property
    def call(self) -> tuple[Structure, tuple[Any, ...]]:
        """The calling convention: the structure of ``(args, kwargs)``, and its leaves.

        A leaf is an input, or a literal that the graph was captured for.
        """
        if self._call is not None:
            return self._call
        leaves, structure = flatten((self.inputs, {}))
        return structure, tuple(leaves)

    @property
    def results(self) -> tuple[Structure, tuple[Any, ...]]:
        """The results of the graph: their structure, and its leaves, values or literals."""
        if self._pending_results is not None:
            self._results, self._pending_results = (self._results[0], tuple(self._pending_results)), None
        return self._results

    @property
    def updates(self) -> Mapping[Value, Value]:
        """The new content of each input, parameter, buffer or optimizer state that the graph mutates."""
        return MappingProxyType(self._updates)

    @property
    def returned(self) -> tuple[Any, ...]:
        """All that a call returns, flat: the leaves of the results, then the new content of mutated state."""
        return (*self.results[1], *self._updates.values())

    @property
    def returned_values(self) -> tuple[Value, ...]:
        """The values that a call returns: outputs, then the new content of mutated state."""
        return (*self.outputs, *self._updates.values())

    @property
    def replacements(self) -> tuple[Value, ...]:
        """The buffers that are updated with another shape or dtype.

        The graph is valid for the state before such an update, and runs once in it.
        """
        return tuple(filter(self.is_replaced, self._updates))

    def is_replaced(self, target: Value) -> bool:
        """Return whether the update of ``target`` has another shape or dtype (`replacements`)."""
        type = target.type
        return isinstance(type, TensorType) and not type.same_shape_and_dtype(self._updates[target].type)

    def value(self, name: str) -> Value:
        """Return the value called ``name``.

        Raises:
            GraphError: There is none.
        """
        if name not in self._values:
            near = did_you_mean(name, self._values)
            raise GraphError(f"graph {self.name!r} has no value {name!r}{near}", fix="graph.values has them")
        return self._values[name]

    # Symbolic sizes

    @property
    def symbols(self) -> Mapping[str, Range]:
        """The declared symbols with their ranges; a region shares those of its program."""
        return MappingProxyType(self._symbols)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The constraints on sizes of the inputs, besides their types and the ranges of symbols."""
        return tuple(self._constraints)

    def add_symbol(self, name: str, range: Range | None = None) -> Expr:
        """Declare a symbol, and return it as a size; without a range it is at least 0.

        Its value is determined by the size that it first appears in: in the type of an input, or of a node
        output.

        Raises:
            GraphError: The name is not an identifier or is taken, or the range is empty.
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
        """Add a constraint on the sizes of the inputs.

        Raises:
            GraphError: It has an undeclared symbol, or no symbol.
        """
        if constraint.relation not in RELATIONS or not all(
            isinstance(side, (int, float, Expr)) for side in (constraint.left, constraint.right)
        ):
            raise GraphError(
                f"{constraint} is not a constraint", fix=f"put one of {', '.join(RELATIONS)} between sizes"
            )
        unknown = sorted(constraint.symbols - self._symbols.keys())
        if unknown or not constraint.symbols:
            problem = f"an unknown symbol {unknown[0]!r}" if unknown else "no symbol"
            raise GraphError(f"the constraint {constraint} has {problem}")
        self._constraints.append(constraint)
        self._edits += 1

    # Arguments

    def add_input(self, name: str, type: Type, *, target: str | None = None) -> Value:
        """Add a tensor or number that the user passes; ``target`` is its external name, if it differs."""
        unique = self._unique_name(self._values, name)
        return self._add_argument(
            unique, type, Argument(InputKind.INPUT, unique if target is None else target)
        )

    def add_parameter(
        self, target: str, type: TensorType, *, aliases: Sequence[str] = (), name: str | None = None
    ) -> Value:
        """Add a parameter by its ``state_dict`` key; ``aliases`` are further keys of the same tensor."""
        return self._add_argument(name, type, Argument(InputKind.PARAMETER, target, tuple(aliases)))

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
        """Add a buffer; ``data`` is the content of a non-persistent one, if known."""
        if persistent and data is not None:
            raise GraphError(f"buffer {target!r} is persistent: its content comes with the weights")
        checked = None if data is None else validate_data(data, type, target)
        return self._add_argument(
            name, type, Argument(InputKind.BUFFER, target, tuple(aliases), persistent, checked)
        )

    def add_state(self, target: str, type: TensorType, *, name: str | None = None) -> Value:
        """Add optimizer state: a tensor that is bound with the weights, but is not in the model's state_dict.

        Its external name is that of the parameter, then the key in the optimizer (``fc.weight.exp_avg``).

        Raises:
            GraphError: The graph already has state of this name.
        """
        return self._add_argument(name, type, Argument(InputKind.STATE, target))

    def add_constant(
        self, target: str, data: torch.Tensor, *, type: TensorType | None = None, name: str | None = None
    ) -> Value:
        """Add a tensor whose content is part of the graph; it is not copied.

        ``type`` has the strides that the graph needs; by default they are those of ``data``.

        Raises:
            GraphError: ``data`` is sparse, quantized, without data, or of another type.
        """
        checked = validate_data(data, type, target)
        argument = Argument(InputKind.CONSTANT, target, data=checked)
        return self._add_argument(name, type or TensorType.of(checked), argument)

    def _add_argument(self, name: str | None, type: Type, argument: Argument) -> Value:
        """Add an argument; its value has the name of the argument by default."""
        group = self._arguments[argument.kind]
        if argument.target in group:
            raise GraphError(f"graph {self.name!r} already has {argument.kind.value} {argument.target!r}")
        value = self._new_value(argument.target if name is None else name, type, argument=argument)
        group[argument.target] = value
        self._edits += 1
        return value

    def erase_argument(self, value: Value) -> None:
        """Remove a parameter, buffer, optimizer state or constant without uses.

        Raises:
            GraphError: It is a user input, is not in this graph, is still read, or is updated by the graph.
        """
        argument = self._require_removable(value, is_input=False)
        del self._arguments[argument.kind][argument.target]
        del self._values[value.name]
        self._edits += 1

    def fix_input(self, value: Value, literal: Literal) -> None:
        """Replace an input without uses by ``literal`` in the call, which callers then have to pass.

        Raises:
            GraphError: It is not an input of this graph, is still read or updated, or ``literal`` is not
                plain data.
        """
        argument = self._require_removable(value, is_input=True)
        structure, leaves = self.call
        fixed = self._validate_leaves(structure, [literal if leaf is value else leaf for leaf in leaves])
        del self._arguments[InputKind.INPUT][argument.target]
        del self._values[value.name]
        self._call = structure, fixed
        self._edits += 1

    def replace_input(self, value: Value, type: Type) -> Value:
        """Replace an input without uses by one of another type, and return it; name and position are kept.

        Raises:
            GraphError: It is not an input of this graph, or is still read, or is updated.
        """
        argument = self._require_removable(value, is_input=True)
        del self._values[value.name]
        new = self._new_value(value.name, type, argument=argument)
        self._arguments[InputKind.INPUT][argument.target] = new
        if self._call is not None:
            structure, leaves = self._call
            self._call = structure, tuple(new if leaf is value else leaf for leaf in leaves)
        self._edits += 1
        return new

    def set_overlap(self, value: Value, other: Value, offset: int) -> None:
        """Declare that an input overlaps another in memory, ``offset`` elements after its first element.

        Raises:
            GraphError: They are not two inputs of this graph, tensors of static shape and one dtype.
        """
        for item in (value, other):
            self._require_own_value(item)
        problem = overlap_problem(value, other)
        if problem is not None:
            raise GraphError(problem, fix="state it of inputs that are views of one tensor")
        assert value.argument is not None
        value.argument = replace(value.argument, overlaps=(other.target, offset))
        self._edits += 1

    # Call, results and updates

    def set_call(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> None:
        """Set the calling convention: nested containers with the inputs, and literals, as leaves.

        An input that appears twice is one tensor passed twice.

        Raises:
            GraphError: An input does not appear, or a leaf is neither input nor literal.
        """
        leaves, structure = flatten((tuple(args), dict(kwargs or {})))
        self.set_call_structure(structure, leaves)

    def set_call_structure(self, structure: Structure, leaves: Sequence[Any]) -> None:
        """Set the calling convention from the structure of ``(args, kwargs)`` and its leaves."""
        problem = call_problem(structure)
        if problem is not None:
            raise GraphError(problem)
        checked = self._validate_leaves(structure, leaves)
        inputs = [leaf for leaf in checked if isinstance(leaf, Value)]
        if set(inputs) != set(self.inputs):
            raise GraphError("the call must use every input of the graph, and no other value")
        self._call = structure, checked
        self._edits += 1

    def set_outputs(self, tree: Any) -> None:
        """Set the results: a value or literal, or nested containers of them.

        Raises:
            GraphError: A leaf is neither a value of this graph nor a literal.
        """
        leaves, structure = flatten(tree)
        self.set_results(structure, leaves)

    def set_results(self, structure: Structure, leaves: Sequence[Any]) -> None:
        """Set the results from their structure and its leaves."""
        checked = self._validate_leaves(structure, leaves)
        for index, leaf in enumerate(self.results[1]):
            if isinstance(leaf, Value):
                del leaf._uses[None, index]
        self._results = structure, checked
        for index, leaf in enumerate(checked):
            if isinstance(leaf, Value):
                leaf._uses[None, index] = None
        self._edits += 1

    def set_update(self, target: Value, value: Value | None, *, replaces: bool = False) -> None:
        """Set the new content of ``target`` after a run of the graph.

        Args:
            target: An input, a parameter, a buffer or optimizer state.
            value: Its new content; None removes the update.
            replaces: The content may have another shape or dtype, if ``target`` is a buffer (`replacements`).

        Raises:
            GraphError: ``target`` is not an argument, is a constant or not a tensor, or the types differ; or
                the prologue reads ``target``.
        """
        self._require_own_value(target)
        if target.kind in (None, InputKind.CONSTANT) or not isinstance(target.type, TensorType):
            raise GraphError(
                f"%{target.name} cannot be updated",
                fix="update a tensor: an input, a parameter, a buffer or optimizer state",
            )
        if value is not None:
            self._require_own_value(value)
            if not (replaces and is_replaceable(target, value)):
                require_same_type(target, value)
            reader = next((node for node in target.users if node.in_prologue), None)
            if reader is not None:
                raise GraphError(
                    f"%{target.name} cannot be updated: node {reader.name!r} of the prologue reads it",
                    fix="what the graph updates is not known when weights are bound: leave its readers in "
                    "the body",
                )
        old = self._updates.pop(target, None)
        if old is not None:
            del old._uses[None, target]
        if value is not None:
            self._updates[target] = value
            value._uses[None, target] = None
        self._edits += 1

    def _validate_leaves(self, structure: Structure, leaves: Sequence[Any]) -> tuple[Any, ...]:
        problem = structure_problem(structure)
        if problem is not None:
            raise GraphError(problem)
        if structure.num_leaves != len(leaves):
            raise GraphError(
                f"a structure with {structure.num_leaves} places cannot hold {len(leaves)} leaves"
            )
        for leaf in leaves:
            if isinstance(leaf, Value):
                self._require_own_value(leaf)
            elif isinstance(leaf, (list, tuple, dict)):
                raise GraphError(
                    f"a leaf is a value or a single literal, not {leaf!r}",
                    fix="make the list part of the structure",
                )
        return tuple(leaf if isinstance(leaf, Value) else to_literal(leaf) for leaf in leaves)

    # Internals

    def _replace_result(self, index: int, value: Value) -> None:
        """Replace one leaf of the results in constant time; the tuple is rebuilt lazily, on the next read."""
        if self._pending_results is None:
            self._pending_results = list(self._results[1])
        self._pending_results[index] = value

    def _new_value(self, name: str, type: Type, **fields: Any) -> Value:
        value = Value(self._next_id, self._unique_name(self._values, name), type, graph=self, **fields)  # type: ignore[arg-type]
        self._next_id += 1
        self._values[value.name] = value
        if self._origins is not None:
            value._origins = ()
        return value

    def _unique_name(self, taken: Mapping[str, object], name: str) -> str:
        return unique_name(taken, self._counters, name)

    def _require_own_value(self, value: Value) -> None:
        if not isinstance(value, Value):
            raise GraphError(
                f"expected a value of graph {self.name!r}, got {type(value).__name__}",
                fix="graph.values has them",
            )
        if self._values.get(value.name) is not value:
            raise GraphError(f"%{value.name} is not a value of graph {self.name!r}")

    def _require_removable(self, value: Value, *, is_input: bool) -> Argument:
        """Return the argument of ``value``, which must be of the right kind, and neither read nor updated."""
        self._require_own_value(value)
        argument = value.argument
        if argument is None or (argument.kind is InputKind.INPUT) != is_input:
            kind = "an input" if is_input else "a parameter, buffer, optimizer state or constant"
            others = (
                "erase_argument removes the others" if is_input else "user inputs are part of the signature"
            )
            raise GraphError(f"%{value.name} is not {kind}", fix=others)
        self._require_unused(value)
        if value in self._updates:
            raise GraphError(
                f"%{value.name} is updated by the graph", fix="drop the update first: set_update(value, None)"
            )
        return argument

    def _require_unused(self, value: Value) -> None:
        if value._uses:
            readers = sorted({"the results" if node is None else node.name for node, _ in value._uses})
            raise GraphError(
                f"%{value.name} is still read by {', '.join(readers[:5])}",
                where=f"graph {self.name!r}",
                fix="replace_all_uses first",
            )
