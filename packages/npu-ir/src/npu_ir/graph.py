"""The graph: ordered nodes over SSA values, and the only methods that edit them.

Every method checks what it is given before it changes anything, so an edit that fails leaves the
graph as it was. Edits cost O(1) or O(number of uses); whole-graph methods are linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from npu_ir.edit_checks import checked_data, merged_symbols, plain_attrs, require_same_type
from npu_ir.errors import GraphError
from npu_ir.literals import Literal, to_literal
from npu_ir.naming import default_output_names, short_name, unique_name
from npu_ir.node import NO_PROVENANCE, Argument, InputKind, OpNode, Provenance, Value
from npu_ir.structure import Structure, flatten
from npu_ir.structure_rules import call_problem, structure_problem
from npu_ir.symbols import Constraint, Expr, Range, symbol
from npu_ir.types import ScalarType, TensorType, Type


class Graph:
    """A functional program over tensors: what a model computes, without its weights.

    Args:
        name: Shown when the graph is printed; any string.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._next_id = 0
        self._counters: dict[str, int] = {}
        self._values: dict[str, Value] = {}
        self._nodes: dict[str, OpNode] = {}
        self._root = OpNode("", "", (), None, {}, NO_PROVENANCE)
        self._arguments: dict[InputKind, dict[str, Value]] = {kind: {} for kind in InputKind}
        self._call: tuple[Structure, tuple[Any, ...]] | None = None
        self._results: tuple[Structure, tuple[Any, ...]] = flatten(())[1], ()
        self._updates: dict[Value, Value] = {}
        self._symbols: dict[str, Range] = {}
        self._constraints: list[Constraint] = []
        self._owner: OpNode | None = None

    # What is in it

    @property
    def nodes(self) -> tuple[OpNode, ...]:
        """The nodes in order: a snapshot, safe to iterate over while editing."""
        return tuple(self._iterate())

    def nodes_of(self, *op_types: str) -> Iterator[OpNode]:
        """Yield the nodes of these op types in order; nodes erased meanwhile are left out."""
        for node in [node for node in self._iterate() if node.op_type in op_types]:
            if not node.is_erased:
                yield node

    def _iterate(self) -> Iterator[OpNode]:
        node = self._root._next
        while node is not self._root:
            yield node
            node = node._next

    def __len__(self) -> int:
        return len(self._nodes)

    def graphs(self) -> Iterator[Graph]:
        """Yield this graph, and every region in it, each before the regions of its own nodes."""
        yield self
        for node in self._iterate():
            for region in node.regions.values():
                yield from region.graphs()

    @property
    def owner(self) -> OpNode | None:
        """The node that this graph is a region of; None for a program."""
        return self._owner

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value: what comes from outside, then what the nodes produce, in order."""
        return tuple(self.arguments) + tuple(value for node in self._iterate() for value in node.outputs)

    @property
    def arguments(self) -> tuple[Value, ...]:
        """Every value that comes from outside: inputs, parameters, buffers, constants."""
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
    def constants(self) -> Mapping[str, Value]:
        """The tensors made while the model ran, by name; ``value.argument.data`` holds each."""
        return MappingProxyType(self._arguments[InputKind.CONSTANT])

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values returned to the user, flat; constants among the results are left out."""
        return tuple(leaf for leaf in self._results[1] if isinstance(leaf, Value))

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
        return self._results

    @property
    def updates(self) -> Mapping[Value, Value]:
        """For each input, parameter or buffer that the model changes in place: its new content."""
        return MappingProxyType(self._updates)

    def value(self, name: str) -> Value:
        """Return the value called ``name``.

        Raises:
            GraphError: There is none.
        """
        if name not in self._values:
            raise GraphError(f"graph {self.name!r} has no value {name!r}")
        return self._values[name]

    def node(self, name: str) -> OpNode:
        """Return the node called ``name``.

        Raises:
            GraphError: There is none.
        """
        if name not in self._nodes:
            raise GraphError(f"graph {self.name!r} has no node {name!r}")
        return self._nodes[name]

    # Sizes it leaves open

    @property
    def symbols(self) -> Mapping[str, Range]:
        """The symbols that sizes may be written in, with their values; a region has those of its program."""
        return MappingProxyType(self._symbols)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What sizes of the inputs must fulfil besides what their types say."""
        return tuple(self._constraints)

    def add_symbol(self, name: str, range: Range = Range()) -> Expr:
        """Declare a symbol, and return it as a size.

        Its value is the size it stands for where it first appears: in the type of an input, or of what a
        node returns.

        Raises:
            GraphError: The name is no identifier or is taken, or the range is empty.
        """
        size = symbol(name)
        if name in self._symbols:
            raise GraphError(f"graph {self.name!r} already has a symbol {name!r}")
        if range.is_empty:
            raise GraphError(f"no value is in the range {range} of symbol {name!r}")
        self._symbols[name] = range
        return size

    def add_constraint(self, constraint: Constraint) -> None:
        """State what the sizes of the inputs must fulfil.

        Raises:
            GraphError: It names a symbol that is not declared, or none at all.
        """
        unknown = sorted(constraint.symbols - self._symbols.keys())
        if unknown or not constraint.symbols:
            raise GraphError(f"the constraint {constraint} has {f'an unknown symbol {unknown[0]!r}' if unknown else 'no symbol'}")
        self._constraints.append(constraint)

    def specialize(self, sizes: Mapping[str, int]) -> Graph:
        """Return the graph for fixed values of symbols: with all of them given, a static graph.

        Raises:
            GraphError: A symbol is unknown, or a value is out of its range or violates a constraint.
        """
        from npu_ir.specialize import specialize

        return specialize(self, sizes)

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
        return value

    def erase_argument(self, value: Value) -> None:
        """Remove a parameter, buffer or constant that nothing reads.

        Raises:
            GraphError: It is a user input, is not in this graph, or is still read.
        """
        self._require_mine(value)
        if value.argument is None or value.argument.kind is InputKind.INPUT:
            raise GraphError(
                f"%{value.name} is no parameter, buffer or constant",
                fix="user inputs are part of the signature",
            )
        self._require_unused(value)
        if value in self._updates:
            raise GraphError(
                f"%{value.name} is updated by the graph", fix="drop the update first: set_update(value, None)"
            )
        del self._arguments[value.argument.kind][value.argument.target]
        del self._values[value.name]

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
        for index, leaf in enumerate(self._results[1]):
            if isinstance(leaf, Value):
                del leaf._uses[None, index]
        self._results = structure, checked
        for index, leaf in enumerate(checked):
            if isinstance(leaf, Value):
                leaf._uses[None, index] = None

    def set_update(self, target: Value, value: Value | None) -> None:
        """State that running the graph gives ``target`` the content of ``value``; None: leaves it.

        Raises:
            GraphError: ``target`` does not come from outside, is a constant or no tensor, or the types
                differ.
        """
        self._require_mine(target)
        is_constant = target.argument is None or target.argument.kind is InputKind.CONSTANT
        if is_constant or not isinstance(target.type, TensorType):
            raise GraphError(
                f"%{target.name} cannot be updated", fix="update a tensor: an input, a parameter or a buffer"
            )
        if value is not None:
            self._require_mine(value)
            require_same_type(target, value)
        old = self._updates.pop(target, None)
        if old is not None:
            del old._uses[None, target]
        if value is not None:
            self._updates[target] = value
            value._uses[None, target] = None

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

    # Nodes

    def insert(
        self,
        op_type: str,
        inputs: Sequence[Value] = (),
        attrs: Mapping[str, Literal] | None = None,
        *,
        types: Type | Sequence[Type],
        operands: Sequence[str] | None = None,
        regions: Mapping[str, Graph] | None = None,
        name: str | None = None,
        output_names: Sequence[str] | None = None,
        before: OpNode | None = None,
        after: OpNode | None = None,
        provenance: Provenance = NO_PROVENANCE,
    ) -> OpNode:
        """Add a node: at the end, or right before or after another one.

        Args:
            op_type: The op's full name.
            inputs: Values of this graph, flat, in the order of the schema's arguments.
            attrs: The arguments that are no values; plain data (`npu_ir.literals`).
            types: One type per output; a single type for one output.
            operands: For each input the schema argument it fills.
            regions: Graphs that the node is to own, by the argument each fills; their symbols are
                declared here, too.
            name: Wanted name of the node; made unique.
            output_names: Wanted names of the outputs; made unique.
            before: Insert in front of this node.
            after: Insert behind this node.
            provenance: Where the node comes from.

        Raises:
            GraphError: An input is of another graph, an attr is not plain data, a region belongs to
                another node, both ``before`` and ``after`` are given, or the records do not fit in number.
        """
        output_types = (types,) if isinstance(types, (TensorType, ScalarType)) else tuple(types)
        for value in inputs:
            self._require_mine(value)
        plain = plain_attrs(op_type, attrs or {})
        if operands is not None and len(operands) != len(inputs):
            raise GraphError(f"{op_type}: {len(inputs)} inputs but {len(operands)} operand names")
        if output_names is not None and len(output_names) != len(output_types):
            raise GraphError(f"{op_type}: {len(output_types)} outputs but {len(output_names)} output names")
        next_node = self._position(before, after)
        owned = dict(regions or {})
        symbols = merged_symbols(self, owned)

        node = OpNode(
            self._unique(self._nodes, short_name(op_type) if name is None else name),
            op_type,
            tuple(inputs),
            None if operands is None and inputs else tuple(operands or ()),
            plain,
            provenance,
            owned,
        )
        self._symbols.update(symbols)
        for region in owned.values():
            region._owner = node
            for graph in region.graphs():
                graph._symbols = self._symbols
        self._link(node, next_node)
        self._nodes[node.name] = node
        for index, value in enumerate(node.inputs):
            value._uses[node, index] = None
        wanted = default_output_names(node.name, len(output_types)) if output_names is None else output_names
        node.outputs = tuple(
            self._new_value(wanted[index], type, producer=node, index=index)
            for index, type in enumerate(output_types)
        )
        return node

    def erase(self, node: OpNode) -> None:
        """Remove a node whose outputs nothing reads.

        Raises:
            GraphError: The node is not in this graph, or an output is still read.
        """
        self._require_my_node(node)
        for value in node.outputs:
            self._require_unused(value)
        for index, value in enumerate(node.inputs):
            del value._uses[node, index]
        for value in node.outputs:
            del self._values[value.name]
        del self._nodes[node.name]
        node._previous._next, node._next._previous = node._next, node._previous
        node._graph = None

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Make everything that reads ``old`` read ``new``: nodes, results and updates.

        Raises:
            GraphError: One of them is not in this graph, or they differ in shape or dtype.
        """
        self._require_mine(old)
        self._require_mine(new)
        require_same_type(old, new)
        if old is new:
            return
        nodes: dict[OpNode, None] = {}
        for user, slot in old.uses:
            new._uses[user, slot] = None
            if user is not None:
                nodes[user] = None
            elif isinstance(slot, Value):
                self._updates[slot] = new
        for node in nodes:
            node._inputs = tuple(new if value is old else value for value in node._inputs)
            node._binding = None
        if any(user is None and isinstance(slot, int) for user, slot in old._uses):
            structure, leaves = self._results
            self._results = structure, tuple(new if leaf is old else leaf for leaf in leaves)
        old._uses.clear()

    def set_input(self, node: OpNode, index: int, value: Value) -> None:
        """Make ``node`` read ``value`` as its input number ``index``.

        Raises:
            GraphError: Node or value is not in this graph, or there is no such input.
        """
        self._require_my_node(node)
        self._require_mine(value)
        if not 0 <= index < len(node.inputs):
            raise GraphError(f"node {node.name!r} has {len(node.inputs)} inputs, no input {index}")
        del node.inputs[index]._uses[node, index]
        node._inputs = (*node.inputs[:index], value, *node.inputs[index + 1 :])
        node._binding = None
        value._uses[node, index] = None

    def set_attrs(self, node: OpNode, attrs: Mapping[str, Literal]) -> None:
        """Replace all attributes of ``node``.

        Raises:
            GraphError: The node is not in this graph, or an attribute is not plain data.
        """
        self._require_my_node(node)
        node._attrs = plain_attrs(node.op_type, attrs)
        node._binding = None

    def set_provenance(self, node: OpNode, provenance: Provenance) -> None:
        """Replace what is known of where ``node`` came from."""
        self._require_my_node(node)
        node.provenance = provenance

    def rename(self, value: Value, name: str) -> None:
        """Give ``value`` the name ``name``, made unique if another value has it."""
        self._require_mine(value)
        del self._values[value.name]
        value._name = self._unique(self._values, name)
        self._values[value.name] = value

    # Whole graph

    def sort(self) -> None:
        """Put every node behind the producers of its inputs; otherwise the order stays.

        Raises:
            GraphError: The nodes depend on each other in a cycle; nothing was moved.
        """
        from npu_ir.order import topological_order

        order = topological_order(self)
        self._root._next = self._root._previous = self._root
        for node in order:
            self._link(node, self._root)

    def clone(self, name: str | None = None) -> Graph:
        """Return a graph equal to this one that shares nothing with it but the constants' data.

        Raises:
            GraphError: A node stands before one that it needs.
        """
        from npu_ir.copying import clone

        return clone(self, self.name if name is None else name)

    def __copy__(self) -> Graph:
        return self.clone()

    def __deepcopy__(self, memo: object) -> Graph:
        return self.clone()  # as copy.deepcopy goes from node to node, it would not come back

    def subgraph(self, nodes: Iterable[OpNode], name: str = "subgraph") -> Graph:
        """Return the given nodes as a graph of their own.

        Values that they read and do not produce become its inputs (parameters, buffers and
        constants stay what they are); values of theirs that are read elsewhere are its results.
        """
        from npu_ir.copying import subgraph

        return subgraph(self, nodes, name)

    def check(self) -> None:
        """Verify every rule of `npu_ir.check.RULES`.

        Raises:
            GraphError: Names the rule that is broken and where.
        """
        from npu_ir.check import check

        check(self)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same program: names, types, order, data; provenance aside."""
        from npu_ir.equality import same_graph

        return isinstance(other, Graph) and same_graph(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        from npu_ir.text.printer import format_ir

        return format_ir(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.inputs)} inputs, {len(self.parameters)} parameters, {len(self)} nodes>"

    # Inside

    def _new_value(self, name: str, type: Type, **fields: Any) -> Value:
        value = Value(self._next_id, self._unique(self._values, name), type, **fields)
        self._next_id += 1
        self._values[value.name] = value
        return value

    def _unique(self, taken: Mapping[str, object], name: str) -> str:
        return unique_name(taken, self._counters, name)

    def _position(self, before: OpNode | None, after: OpNode | None) -> OpNode:
        """Return the node in front of which to insert."""
        if before is not None and after is not None:
            raise GraphError("a node is inserted before one node or after one, not both")
        anchor = before or after
        if anchor is None:
            return self._root
        self._require_my_node(anchor)
        return anchor if before is not None else anchor._next

    def _link(self, node: OpNode, next_node: OpNode) -> None:
        node._graph = self
        node._previous, node._next = next_node._previous, next_node
        node._previous._next = node
        next_node._previous = node

    def _require_mine(self, value: Value) -> None:
        if self._values.get(value.name) is not value:
            raise GraphError(f"%{value.name} is not a value of graph {self.name!r}")

    def _require_my_node(self, node: OpNode) -> None:
        if node._graph is not self:
            raise GraphError(f"node {node.name!r} is not in graph {self.name!r}")

    def _require_unused(self, value: Value) -> None:
        if value._uses:
            readers = sorted({"the results" if node is None else node.name for node, _ in value._uses})
            raise GraphError(
                f"%{value.name} is still read by {', '.join(readers[:5])}",
                where=f"graph {self.name!r}",
                fix="replace_all_uses first",
            )
