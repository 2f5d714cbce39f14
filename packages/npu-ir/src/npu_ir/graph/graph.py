"""The graph: ordered nodes over SSA values, and the only methods that edit them.

Every method validates its arguments before it changes anything, so a failed edit leaves the graph
unchanged. Edits cost O(1) or O(number of uses); whole-graph methods are linear.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from npu_ir.core.literals import Literal
from npu_ir.core.naming import default_output_names, short_name
from npu_ir.core.node import NO_PROVENANCE, OpNode, Provenance, Value
from npu_ir.core.origins import OriginRecord, share_origin
from npu_ir.core.types import ScalarType, TensorType, Type
from npu_ir.core.user_code import did_you_mean
from npu_ir.errors import GraphError
from npu_ir.graph.copy import clone, extract_subgraph, reduce_graph
from npu_ir.graph.equality import same_graph
from npu_ir.graph.rules.check import check, check_edits
from npu_ir.graph.rules.edits import (
    merge_symbols,
    normalize_attrs,
    release_region,
    require_same_type,
)
from npu_ir.graph.rules.prologue import UNKNOWN_OP_FIX, call_dependence, prologue_obstacle
from npu_ir.graph.signature import Signature
from npu_ir.graph.specialize import specialize
from npu_ir.graph.topological_order import topological_order
from npu_ir.ops.arguments import replace_by_literal
from npu_ir.ops.schema import find_op
from npu_ir.text.printer import format_ir


class Graph(Signature):
    """A functional program over tensors: the computation of a model, without its weights.

    Args:
        name: Shown when the graph is printed; any string.
    """

    def __init__(self, name: str = "graph") -> None:
        super().__init__(name)
        self._nodes: dict[str, OpNode] = {}
        # The sentinel of a circular doubly linked list: insertion, erasure and moves in constant time.
        self._root = OpNode("", "", (), None, {}, NO_PROVENANCE)
        self._last_prologue = self._root  # the sentinel where the prologue is empty
        self._owner: OpNode | None = None
        self._region_owners = 0  # nodes that own regions
        self._edited: dict[OpNode, None] = {}  # since the last check

    # Nodes, values and regions

    @property
    def nodes(self) -> tuple[OpNode, ...]:
        """The nodes in order: a snapshot, safe to iterate over while editing."""
        return tuple(self._list())

    @property
    def prologue(self) -> tuple[OpNode, ...]:
        """The leading nodes that are evaluated once, when weights are bound."""
        return tuple(itertools.takewhile(lambda node: node._in_prologue, self._iterate()))

    @property
    def body(self) -> tuple[OpNode, ...]:
        """The nodes after the prologue: those that run at each call."""
        return tuple(self._list(self._last_prologue))

    def nodes_of(self, *op_types: str) -> Iterator[OpNode]:
        """Yield the nodes of these op types in order; nodes erased during the iteration are skipped."""
        wanted = frozenset(op_types)
        for node in [node for node in self._list() if node._op_type in wanted]:
            if not node.is_erased:
                yield node

    def _iterate(self) -> Iterator[OpNode]:
        node = self._root._next
        while node is not self._root:
            yield node
            node = node._next

    def _list(self, behind: OpNode | None = None) -> list[OpNode]:
        nodes, node, end = [], (behind or self._root)._next, self._root
        while node is not end:
            nodes.append(node)
            node = node._next
        return nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def graphs(self) -> Iterator[Graph]:
        """Yield this graph and every region nested in it, in preorder."""
        yield self
        if self._region_owners == 0:
            return  # the usual case, in constant time
        for node in self._iterate():
            for region in node.regions.values():
                yield from region.graphs()

    @property
    def owner(self) -> OpNode | None:
        """The node that this graph is a region of; None for a program."""
        return self._owner

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value: the arguments, then the outputs of the nodes, in order."""
        return tuple(self.arguments) + tuple(value for node in self._iterate() for value in node.outputs)

    def node(self, name: str) -> OpNode:
        """Return the node called ``name``.

        Raises:
            GraphError: There is none.
        """
        if name not in self._nodes:
            near = did_you_mean(name, self._nodes)
            raise GraphError(f"graph {self.name!r} has no node {name!r}{near}", fix="graph.nodes has them")
        return self._nodes[name]

    # Edits of nodes

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
        """Add a node to the body: at the end, or directly before or after another node.

        Args:
            op_type: The op's full name.
            inputs: Values of this graph, flat, in the order of the schema's arguments.
            attrs: The arguments that are not values; plain data (`npu_ir.core.literals`).
            types: One type per output; a single type for one output.
            operands: For each input the schema argument it fills.
            regions: Graphs that the node will own, by the argument each fills; with their symbols.
            name: Preferred name of the node; made unique.
            output_names: Preferred names of the outputs; made unique.
            before: Insert directly before this node of the body.
            after: Insert directly after this node; for a node of the prologue, at the start of the body.
            provenance: Module and source line of the node.

        Raises:
            GraphError: An input is of another graph, an attr is not plain data, a region belongs to
                another node or has a prologue, both ``before`` and ``after`` are given, ``before`` is in the
                prologue, or ``operands`` or ``output_names`` have another length than inputs or outputs.
        """
        output_types = (types,) if isinstance(types, (TensorType, ScalarType)) else tuple(types)
        for value in inputs:
            self._require_own_value(value)
        literals = normalize_attrs(op_type, attrs or {})
        if operands is not None and len(operands) != len(inputs):
            raise GraphError(f"{op_type}: {len(inputs)} inputs but {len(operands)} operand names")
        if output_names is not None and len(output_names) != len(output_types):
            raise GraphError(f"{op_type}: {len(output_types)} outputs but {len(output_names)} output names")
        next_node = self._insertion_point(before, after)
        owned = dict(regions or {})
        symbols = merge_symbols(self, owned) if owned else {}
        node = OpNode(
            self._unique_name(self._nodes, short_name(op_type) if name is None else name),
            op_type,
            tuple(inputs),
            None if operands is None and inputs else tuple(operands or ()),
            literals,
            provenance,
            owned,
        )
        self._symbols.update(symbols)
        self._adopt_regions(node)
        wanted = default_output_names(node.name, len(output_types)) if output_names is None else output_names
        self._attach(node, next_node, zip(wanted, output_types, strict=True))
        return node

    def _adopt_regions(self, node: OpNode) -> None:
        # A program and all regions in it share one symbol table.
        for region in node.regions.values():
            region._owner = node
            for graph in region.graphs():
                graph._symbols = self._symbols

    def move_to_prologue(self, node: OpNode) -> None:
        """Append ``node`` to the prologue: it is evaluated once, when weights are bound, not at each call.

        Raises:
            GraphError: The node is not in this graph; the graph is a region; an input is an input of the
                call, is computed by the body, or is updated by the graph; the op is not pure
                (`npu_ir.ops.effects`); or the shape of an output is symbolic.
        """
        self._require_own_node(node)
        if node.in_prologue:
            return
        reason = prologue_obstacle(self, node)
        if reason is not None:
            fix = UNKNOWN_OP_FIX if find_op(node.op_type) is None else None
            raise GraphError(f"node {node.name!r} cannot move to the prologue: {reason}", fix=fix)
        self._append_to_prologue(node)
        self._edited[node] = None
        self._edits += 1

    def erase(self, node: OpNode) -> None:
        """Remove a node whose outputs have no uses.

        Raises:
            GraphError: The node is not in this graph, or an output is still read.
        """
        self._require_own_node(node)
        for value in node.outputs:
            self._require_unused(value)
        for index, value in enumerate(node.inputs):
            del value._uses[node, index]
        for value in node.outputs:
            del self._values[value.name]
        del self._nodes[node.name]
        for region in node.regions.values():
            release_region(region)
        self._region_owners -= bool(node.regions)
        self._unlink(node)
        self._edited.pop(node, None)
        node._graph = None
        self._edits += 1

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Redirect every use of ``old`` to ``new``: in nodes, results and updates.

        ``new`` gains the origins of ``old`` (`Value.origins`).

        Raises:
            GraphError: One of them is not in this graph, or they differ in shape or dtype; or the prologue
                reads ``old``, and ``new`` is not known when weights are bound.
        """
        self._require_own_value(old)
        self._require_own_value(new)
        require_same_type(old, new)
        if old is new or not old._uses:
            return
        for node in old.users:
            self._require_readable(node, new)
        for user, slot in old._uses:
            new._uses[user, slot] = None
            if isinstance(slot, Value):
                self._updates[slot] = new
            elif user is None:
                self._replace_result(slot, new)
            else:
                user._replace_input(slot, new)
                self._edited[user] = None
        old._uses.clear()
        if self._origins is not None:
            self._origins.add(new, old)
        self._edits += 1

    def set_input(self, node: OpNode, index: int, value: Value) -> None:
        """Replace input number ``index`` of ``node`` by ``value``.

        Raises:
            GraphError: Node or value is not in this graph, or there is no such input; or the node is in the
                prologue, and ``value`` is not known when weights are bound.
        """
        self._require_own_node(node)
        self._require_own_value(value)
        if not 0 <= index < len(node.inputs):
            raise GraphError(f"node {node.name!r} has {len(node.inputs)} inputs, there is no input {index}")
        self._require_readable(node, value)
        if not share_origin(node.inputs[index], value):
            self._note_change(node)
        del node.inputs[index]._uses[node, index]
        node._replace_input(index, value)
        self._edited[node] = None
        value._uses[node, index] = None
        self._edits += 1

    def set_literal(self, node: OpNode, index: int, literal: Literal) -> None:
        """Replace input number ``index`` of ``node`` by plain data, which becomes an attribute.

        Raises:
            GraphError: The node is not in this graph, has no such input or does not record its operands,
                or ``literal`` is not plain data.
        """
        self._require_own_node(node)
        if node.operands is None or not 0 <= index < len(node.inputs):
            raise GraphError(
                f"node {node.name!r} does not say which argument its input {index} fills",
                fix="insert the node with operands=",
            )
        attrs = normalize_attrs(node.op_type, replace_by_literal(node.attrs, node.operands[index], literal))
        inputs = list(enumerate(node.inputs))
        # Uses are keyed by operand index, so those of every later input change, too.
        for position, value in inputs:
            del value._uses[node, position]
        node._inputs = tuple(value for position, value in inputs if position != index)
        node._operands = tuple(name for position, name in enumerate(node.operands) if position != index)
        node._attrs = attrs
        node._binding = None
        self._edited[node] = None
        self._note_change(node)
        for position, value in enumerate(node.inputs):
            value._uses[node, position] = None
        self._edits += 1

    def set_attrs(self, node: OpNode, attrs: Mapping[str, Literal]) -> None:
        """Replace all attributes of ``node``.

        Raises:
            GraphError: The node is not in this graph, or an attribute is not plain data.
        """
        self._require_own_node(node)
        node._attrs = normalize_attrs(node.op_type, attrs)
        node._binding = None
        self._edited[node] = None
        self._note_change(node)
        self._edits += 1

    def set_provenance(self, node: OpNode, provenance: Provenance) -> None:
        """Replace the provenance of ``node``."""
        self._require_own_node(node)
        node.provenance = provenance
        self._edits += 1

    def rename(self, value: Value, name: str) -> None:
        """Rename ``value`` to ``name``, made unique if another value has it."""
        self._require_own_value(value)
        del self._values[value.name]
        if self._origins is not None:
            value._origins = value.origins  # stored before the captured name is lost
        value._name = self._unique_name(self._values, name)
        self._values[value.name] = value
        self._edits += 1

    # Origins of values

    @property
    def tracks_origins(self) -> bool:
        """True if rewrites maintain `Value.origins`: a new value has none until it replaces another."""
        return self._origins is not None

    def track_origins(self) -> None:
        """Declare this graph and its regions captured: rewrites from here on maintain `Value.origins`."""
        for graph in self.graphs():
            graph._origins = graph._origins or OriginRecord()

    def add_origins(self, value: Value, other: Value) -> None:
        """Add the origins of ``other`` to those of ``value``, which equals it up to strides.

        Raises:
            GraphError: One of them is not in this graph, or they differ in shape or dtype.
        """
        self._require_own_value(value)
        self._require_own_value(other)
        require_same_type(other, value)
        if self._origins is not None:
            self._origins.add(value, other)

    def settle_origins(self) -> None:
        """End a rewrite: clear the origins of values between an edited node and a replacement value."""
        if self._origins is not None:
            self._origins.settle()

    def _note_change(self, node: OpNode) -> None:
        if self._origins is not None:
            self._origins.note_change(node)

    # Whole graph

    def sort(self) -> None:
        """Sort the nodes topologically; otherwise their order is kept, the prologue first.

        Raises:
            GraphError: The nodes depend on each other in a cycle; nothing was moved.
        """
        order = topological_order(self)
        if all(map(operator.is_, order, self._iterate())):
            return
        self._root._next = self._root._previous = self._last_prologue = self._root
        for node in order:
            self._link(node, self._root)
            if node.in_prologue:
                self._last_prologue = node
        self._edits += 1

    def specialize(self, sizes: Mapping[str, int]) -> Graph:
        """Return the graph for fixed values of symbols; if all are given, a static graph.

        Raises:
            GraphError: A symbol is unknown, or a value is out of its range or violates a constraint.
        """
        return specialize(self, sizes)

    def clone(self, name: str | None = None) -> Graph:
        """Return a graph equal to this one that shares only the data of constants with it.

        Raises:
            GraphError: A node precedes the producer of one of its inputs.
        """
        return clone(self, self.name if name is None else name)

    def __copy__(self) -> Graph:
        return self.clone()

    def __deepcopy__(self, memo: object) -> Graph:
        return self.clone()

    def __reduce__(self) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
        return reduce_graph(self)

    def subgraph(self, nodes: Iterable[OpNode], name: str = "subgraph") -> Graph:
        """Return these nodes as a separate graph.

        Values that the nodes read and do not produce become its inputs, except that parameters, buffers,
        optimizer state and constants keep their kind; values that are used elsewhere become its results.
        """
        return extract_subgraph(self, nodes, name)

    def check(self) -> None:
        """Verify every rule of `npu_ir.graph.rules.check.RULES`.

        Raises:
            GraphError: Names the rule that is broken and where.
        """
        check(self)

    def check_edits(self) -> None:
        """Verify the rules that edits since the last check can have broken.

        Invariants that every edit maintains, such as the uses of a value, are left to `check`.

        Raises:
            GraphError: Names the rule that is broken and where.
        """
        check_edits(self)

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same program: names, types, order and data, ignoring provenance."""
        return isinstance(other, Graph) and same_graph(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return format_ir(self)

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self.inputs)} inputs, {len(self.parameters)} parameters, "
            f"{len(self)} nodes>"
        )

    def _repr_html_(self) -> str:
        """Return a page in a frame, which notebooks show (`npu_ir.to_html`)."""
        # By name: drawings are above graphs, and are imported only by who draws.
        page: str = import_module("npu_ir.viz").notebook_html(self)
        return page

    # Internals

    def _insertion_point(self, before: OpNode | None, after: OpNode | None) -> OpNode:
        """Return the node to insert before; the sentinel means at the end."""
        if before is not None and after is not None:
            raise GraphError("a node is inserted before one node or after one, not both")
        anchor = before or after
        if anchor is None:
            return self._root
        self._require_own_node(anchor)
        if anchor.in_prologue and before is not None:
            raise GraphError(
                f"node {anchor.name!r} is in the prologue: a node is inserted into the body",
                fix="insert it there, then move_to_prologue(node)",
            )
        if anchor.in_prologue:
            return self._last_prologue._next
        return anchor if before is not None else anchor._next

    def _attach(self, node: OpNode, next_node: OpNode, outputs: Iterable[tuple[str, Type]]) -> None:
        """Link a new node in before ``next_node``, and create its outputs with these names and types."""
        self._link(node, next_node)
        self._nodes[node.name] = node
        self._region_owners += bool(node.regions)
        self._edited[node] = None
        for index, value in enumerate(node.inputs):
            value._uses[node, index] = None
        node.outputs = tuple(
            [
                self._new_value(name, type, producer=node, index=index)
                for index, (name, type) in enumerate(outputs)
            ]
        )
        self._edits += 1

    def _link(self, node: OpNode, next_node: OpNode) -> None:
        node._graph = self
        node._previous, node._next = next_node._previous, next_node
        node._previous._next = node
        next_node._previous = node

    def _unlink(self, node: OpNode) -> None:
        node._previous._next, node._next._previous = node._next, node._previous
        if node is self._last_prologue:
            self._last_prologue = node._previous
        node._in_prologue = False

    def _append_to_prologue(self, node: OpNode) -> None:
        """Move ``node`` to the end of the prologue, without a check of its inputs."""
        self._unlink(node)
        self._link(node, self._last_prologue._next)
        node._in_prologue = True
        self._last_prologue = node

    def _require_readable(self, node: OpNode, value: Value) -> None:
        """Require that a prologue node reads only values that are known when weights are bound."""
        reason = call_dependence(self, value) if node.in_prologue else None
        if reason is not None:
            raise GraphError(
                f"node {node.name!r} of the prologue cannot read %{value.name}: {reason}",
                fix="insert a node into the body instead, and replace_all_uses of this one's outputs",
            )

    def _require_own_node(self, node: OpNode) -> None:
        if not isinstance(node, OpNode):
            raise GraphError(
                f"expected a node of graph {self.name!r}, got {type(node).__name__}",
                fix="graph.nodes has them",
            )
        if node._graph is not self:
            raise GraphError(f"node {node.name!r} is not in graph {self.name!r}")
