"""Specialization of a graph to fixed sizes: symbols become integers, and known numbers are folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from npu_ir.core.literals import Literal
from npu_ir.core.node import OpNode, Value
from npu_ir.core.types import ScalarType
from npu_ir.errors import ExecutionError, GraphError
from npu_ir.graph.copy import clone
from npu_ir.ops.execution import execute_node
from npu_ir.ops.schema import SCALAR_FUNCTIONS
from npu_ir.symbolic.constraints import Constraint
from npu_ir.symbolic.expressions import substitute_symbols

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

_ASSERTION = "aten._assert_scalar.default"


def specialize(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return ``graph`` with symbols replaced by integers.

    Numbers that become known are folded: the nodes that computed them are removed, and the nodes that read
    them have them as attributes. An input that is such a number becomes a literal of the call. Symbols
    without a given size stay symbolic.

    Raises:
        GraphError: A symbol is unknown, a size is not an integer in its range, or a constraint or assertion
            of the graph does not hold.
    """
    _require_possible(graph, sizes)
    special = clone(graph, graph.name)
    for part in special.graphs():
        for value in part.values:
            value._type = value.type.substitute(sizes)
    special._constraints = _remaining_constraints(graph, sizes)
    for name in sizes:
        del special._symbols[name]
    for part in special.graphs():
        _fold_numbers(part)
    special.check()
    return special


def _require_possible(graph: Graph, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        if name not in graph.symbols:
            raise GraphError(
                f"graph {graph.name!r} has no symbol {name!r}",
                fix=f"its symbols: {', '.join(graph.symbols) or 'none'}",
            )
        if type(size) is not int or size not in graph.symbols[name]:
            raise GraphError(f"symbol {name!r} cannot be {size!r}: it is in {graph.symbols[name]}")


def _remaining_constraints(graph: Graph, sizes: Mapping[str, int]) -> list[Constraint]:
    """Return the constraints on the symbols that stay symbolic."""
    remaining = []
    for constraint in graph.constraints:
        sides = substitute_symbols(constraint.left, sizes), substitute_symbols(constraint.right, sizes)
        rest = Constraint(sides[0], constraint.relation, sides[1])
        if rest.symbols:
            remaining.append(rest)
        elif not rest.holds({}):
            given = sorted(constraint.symbols & sizes.keys())
            text = ", ".join(f"{name} = {sizes[name]}" for name in given)
            raise GraphError(f"the graph was made for sizes with {constraint}, not for {text}")
    return remaining


def _fold_numbers(graph: Graph) -> None:
    """Replace known numbers by literals, and remove the nodes that computed them (constant folding)."""
    for value in graph.inputs:
        literal = known_number(value)
        if literal is not None:
            replace_by_literal(graph, value, literal)
            if graph.owner is None:
                graph.fix_input(value, literal)
    # In execution order: a node whose inputs have all been folded can be folded itself.
    for node in graph.nodes:
        if node.op_type == _ASSERTION and not node.inputs:
            _execute(node)
            graph.erase(node)
            continue
        if len(node.outputs) != 1:
            continue
        literal = known_number(node.outputs[0])
        is_function = node.op_type in SCALAR_FUNCTIONS
        if literal is None and is_function and not node.inputs:
            literal = _execute(node)[0]
        # A node that reads a number from a tensor may fail, and stays.
        if literal is not None and (is_function or node.op_type.startswith("aten.sym_")):
            replace_by_literal(graph, node.outputs[0], literal)
            graph.erase(node)


def known_number(value: Value) -> int | None:
    """Return the number that the type of a value states; None if it states none."""
    known = value.type.value if isinstance(value.type, ScalarType) else None
    return known if isinstance(known, int) else None


def _execute(node: OpNode) -> list[Literal]:
    """Return the outputs of a node without inputs."""
    try:
        return execute_node(node, [], torch.device("cpu"))
    except ExecutionError as error:
        raise GraphError(
            f"the graph does not allow these sizes: {error.message}", where=error.where
        ) from error


def replace_by_literal(
    graph: Graph, value: Value, literal: Literal, uses: Sequence[tuple[OpNode, int]] | None = None
) -> None:
    """Replace ``value`` by ``literal`` in the results, and in these uses by nodes; by default in all."""
    if uses is None:
        uses = [(node, slot) for node, slot in value.uses if node is not None and isinstance(slot, int)]
    # From the last input on: set_literal shifts the later ones.
    for node, index in sorted(uses, key=lambda use: -use[1]):
        graph.set_literal(node, index, literal)
    if any(leaf is value for leaf in graph.results[1]):
        structure, leaves = graph.results
        graph.set_results(structure, [literal if leaf is value else leaf for leaf in leaves])
