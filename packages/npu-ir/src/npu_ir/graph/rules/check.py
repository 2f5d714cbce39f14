"""The invariants of the IR, as a table of rules.

Each rule is a function that yields one message per violation; ``check`` raises the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from npu_ir.core.literals import same_literal, to_literal
from npu_ir.core.node import InputKind, Value, external_names
from npu_ir.core.types import SCALAR_KINDS, ScalarType, TensorType, dtype_name
from npu_ir.errors import GraphError
from npu_ir.graph.rules.edits import is_replaceable, overlap_problem
from npu_ir.graph.rules.node_rules import region_problems, schema_problems
from npu_ir.graph.rules.prologue import edited_prologue_problems, prologue_problems
from npu_ir.graph.rules.structures import call_problem, structure_problem
from npu_ir.ops.arguments import record_problem
from npu_ir.symbolic.expressions import Expr, is_integral

if TYPE_CHECKING:
    from npu_ir.core.node import OpNode, Use
    from npu_ir.graph.graph import Graph


# Literals of these classes are plain data whatever their value; integers have a size limit.
_PLAIN_CLASSES = frozenset({bool, float, str, type(None)})
_END_OF_SIZES = 1 << 63  # PyTorch's sizes are int64


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the IR: an invariant, and the functions that find its violations."""

    name: str
    statement: str
    violations: Callable[[Graph], Iterator[str]]  # yields the violations in a whole graph
    # Yields the violations that edits of these nodes, or of the signature, may have caused; None if edits
    # through the methods of the graph cannot cause any.
    violations_among: Callable[[Graph, Sequence[OpNode]], Iterator[str]] | None = None


def _name_violations(graph: Graph) -> Iterator[str]:
    values, nodes = graph.values, graph.nodes
    for value in values:
        if graph._values.get(value.name) is not value:
            yield f"%{value.name} is not the value its graph knows by that name"
    for node in nodes:
        if graph._nodes.get(node.name) is not node:
            yield f"node {node.name!r} is not the node its graph knows by that name"
    if len(graph._values) != len(values) or len(graph._nodes) != len(nodes):
        yield "the graph knows names of values or nodes that are not in it"


def _output_violations(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        for index, value in enumerate(node.outputs):
            if value.producer is not node or value.index != index or value.argument is not None:
                yield f"%{value.name} is output {index} of node {node.name!r} but does not say so"
    for value in graph.arguments:
        if value.producer is not None or value.argument is None:
            yield f"%{value.name} comes from outside but also names a producer"


def _order_violations(graph: Graph) -> Iterator[str]:
    defined = set(graph.arguments)
    for node in graph.nodes:
        for value in node.inputs:
            if value not in defined:
                yield f"node {node.name!r} reads %{value.name} before it is produced"
        defined.update(node.outputs)
    for value in graph.returned_values:
        if value not in defined:
            yield f"the graph returns %{value.name}, which nothing in it produces"


def _order_violations_among(graph: Graph, nodes: Sequence[OpNode]) -> Iterator[str]:
    if not nodes:
        return
    positions = {node: position for position, node in enumerate(graph._iterate())}
    for node in nodes:
        for value in node.inputs:
            producer = value.producer
            if producer is not None and positions.get(producer, len(positions)) >= positions[node]:
                yield f"node {node.name!r} reads %{value.name} before it is produced"


def _use_violations(graph: Graph) -> Iterator[str]:
    # Every use must be recorded; equal counts then exclude records of uses that do not exist.
    counts = dict.fromkeys(graph.values, 0)
    unrecorded: dict[Value, None] = {}
    for value, use in _iterate_uses(graph):
        counts[value] = counts.get(value, 0) + 1
        if use not in value._uses:
            unrecorded[value] = None
    for value, count in counts.items():
        if len(value._uses) != count or value in unrecorded:
            yield f"the recorded uses of %{value.name} are not the places that read it"


def _iterate_uses(graph: Graph) -> Iterator[tuple[Value, Use]]:
    """Yield every use of every value, once."""
    for node in graph._iterate():
        for position, value in enumerate(node.inputs):
            yield value, (node, position)
    for index, leaf in enumerate(graph.results[1]):
        if isinstance(leaf, Value):
            yield leaf, (None, index)
    for target, value in graph.updates.items():
        yield value, (None, target)


def _type_violations(graph: Graph, nodes: Iterable[OpNode]) -> Iterator[str]:
    for value in graph.arguments:
        if value.kind is not InputKind.INPUT and isinstance(value.type, TensorType) and value.type.symbols:
            yield (
                f"%{value.name} comes with the weights or the graph: its sizes are integers, not {value.type}"
            )
    valid: set[int] = set()  # ids of type objects: many values share one, which is checked once
    values = list(graph.arguments)
    for node in nodes:
        values += node.outputs
    for value in values:
        if id(value.type) in valid:
            continue
        if _is_plain(value.type):
            valid.add(id(value.type))
            continue
        problems = list(_type_problems(value.type))
        yield from (f"%{value.name}{problem}" for problem in problems)
        if not problems:
            valid.add(id(value.type))


def _is_plain(type: Any) -> bool:
    """Return whether a type is a tensor of static sizes and strides: a fast path for the usual case."""
    if type.__class__ is not TensorType or not isinstance(type.dtype, torch.dtype):
        return False
    sizes = type.shape
    if type.strides is not None:
        if type.layout is not torch.strided or len(type.strides) != len(sizes):
            return False
        sizes = (*sizes, *type.strides)
    # Compared by class: bool is a subclass of int, and Expr has no order. A loop is twice as fast as `all`.
    for size in sizes:  # noqa: SIM110
        if size.__class__ is not int or not 0 <= size < _END_OF_SIZES:
            return False
    return True


def _type_problems(type: Any) -> Iterator[str]:
    if isinstance(type, TensorType):
        yield from (f": {problem}" for problem in _tensor_type_problems(type))
    elif not isinstance(type, ScalarType) or type.kind not in SCALAR_KINDS:
        yield f" has no type of the IR: {type!r}"
    elif type.value is not None and not (type.kind == "int" and type.value.__class__ in (int, Expr)):
        yield f" is {type}: only an int can be known, by an integer or expression"


def _tensor_type_problems(type: TensorType) -> Iterator[str]:
    try:
        dtype_name(type.dtype)
    except (KeyError, TypeError):
        yield f"{type.dtype!r} is not a dtype"
    for sizes in (type.shape, type.strides or ()):
        numbers = [size for size in sizes if not isinstance(size, Expr)]
        if not all(number.__class__ is int and 0 <= number < _END_OF_SIZES for number in numbers):
            yield f"sizes and strides are integers from 0 to 2**63 - 1 or expressions, not {sizes}"
        if not all(is_integral(size) for size in sizes):
            yield f"a size is whole for all values of its symbols, not as in {sizes}"
    if type.strides is not None and type.layout is not torch.strided:
        yield f"a tensor of layout {type.layout} has no strides"
    if type.strides is not None and len(type.strides) != len(type.shape):
        yield f"{len(type.strides)} strides for {len(type.shape)} dimensions"


def _symbol_violations(graph: Graph) -> Iterator[str]:
    # In a region, all symbols of the program count as determined.
    known = set(graph.symbols) if graph.owner is not None else set()
    arguments = [value for value in graph.arguments if not _is_plain(value.type)]
    _add_determined_symbols(known, arguments)
    for constraint in graph.constraints:
        if graph.owner is not None or not constraint.symbols <= known:
            yield f"the constraint {constraint} is not one of sizes of the inputs of a program"
    yield from _unknown_symbols(graph, arguments, known)
    fixed: set[int] = set()  # ids of types without symbols: many values share one, which is checked once
    for node in graph._iterate():
        open_types = [
            value.type for value in node.outputs if id(value.type) not in fixed and not _is_plain(value.type)
        ]
        if any(type.symbols for type in open_types):
            _add_determined_symbols(known, node.outputs)
            yield from _unknown_symbols(graph, node.outputs, known)
        else:
            fixed.update(map(id, open_types))


def _symbol_violations_among(graph: Graph, nodes: Sequence[OpNode]) -> Iterator[str]:
    types = [value.type for node in nodes for value in node.outputs]
    if graph.symbols or graph.constraints or any(type.symbols for type in types):
        yield from _symbol_violations(graph)


def _region_violations_among(graph: Graph, nodes: Sequence[OpNode]) -> Iterator[str]:  # noqa: ARG001 - regions count, too
    if graph._region_owners:
        yield from region_problems(graph)


def _add_determined_symbols(known: set[str], values: Sequence[Value]) -> None:
    """Add the symbols that the sizes of these values determine, each solved from one size."""
    sizes = [size for value in values for size in _sizes(value.type) if isinstance(size, Expr)]
    # Iterated to a fixed point: a solved symbol may leave a single unknown in another size.
    for _ in sizes:
        before = len(known)
        for size in sizes:
            missing = size.symbols - known
            if len(missing) == 1 and size.is_linear_in(*missing):
                known |= missing
        if len(known) == before:
            return


def _sizes(type: Any) -> tuple[Any, ...]:
    if isinstance(type, TensorType):
        return (*type.shape, *(type.strides or ()))
    return (getattr(type, "value", None),)


def _unknown_symbols(graph: Graph, values: Sequence[Value], known: set[str]) -> Iterator[str]:
    for value in values:
        for name in sorted(value.type.symbols):
            if name not in graph.symbols:
                yield f"%{value.name} is {value.type}, but no symbol {name} is declared"
            elif name not in known:
                yield f"%{value.name} is {value.type}, but nothing before it determines {name}"


def _attr_violations(nodes: Iterable[OpNode]) -> Iterator[str]:
    for node in nodes:
        for name, value in node._attrs.items():
            if value.__class__ in _PLAIN_CLASSES or _is_list_of_sizes(value):
                continue
            try:
                is_plain = same_literal(to_literal(value), value)
            except GraphError as error:
                yield f"attribute {name!r} of node {node.name!r}: {error.message}"
            else:
                if not is_plain:
                    yield f"attribute {name!r} of node {node.name!r} is not plain data: {value!r}"


def _is_list_of_sizes(value: Any) -> bool:
    """Return whether an attribute is a list of sizes, strides or axes: a fast path for the usual lists."""
    return value.__class__ is list and all(
        item.__class__ is int and -_END_OF_SIZES < item < _END_OF_SIZES for item in value
    )


def _record_violations(nodes: Iterable[OpNode]) -> Iterator[str]:
    for node in nodes:
        problem = record_problem(node._attrs)
        if problem is not None:
            yield f"node {node.name!r}: {problem}"
        if node.operands is not None and len(node.operands) != len(node.inputs):
            yield f"node {node.name!r} has {len(node.inputs)} inputs but {len(node.operands)} operand names"


def _signature_violations(graph: Graph) -> Iterator[str]:
    for what, (structure, leaves) in (("call", graph.call), ("results", graph.results)):
        problem = call_problem(structure) if what == "call" else structure_problem(structure)
        if problem is not None:
            yield f"the {what}: {problem}"
        elif structure.num_leaves != len(leaves):
            yield f"the {what}: {structure.num_leaves} places for {len(leaves)} leaves"
        elif any(isinstance(leaf, (list, tuple, dict)) for leaf in leaves):
            yield f"the {what}: a leaf is a value or a single literal, not a list"
    if {leaf for leaf in graph.call[1] if isinstance(leaf, Value)} != set(graph.inputs):
        yield "the call must use every input of the graph, and no other value"
    for target, value in graph.updates.items():
        if target.kind in (None, InputKind.CONSTANT):
            yield f"%{target.name} is updated but is not an input, parameter, buffer or optimizer state"
        is_same = isinstance(target.type, TensorType) and target.type.same_shape_and_dtype(value.type)
        if not is_same and not is_replaceable(target, value):
            yield f"%{target.name} is {target.type} but is updated with %{value.name}, which is {value.type}"
    names = Counter(name for target in graph.updates for name in external_names(target))
    yield from (
        f"two updated values are called {name!r} outside" for name, count in names.items() if count > 1
    )


def _overlap_violations(graph: Graph) -> Iterator[str]:
    inputs = {external_names(value)[0]: value for value in graph.inputs}
    for value in graph.arguments:
        assert value.argument is not None
        if value.argument.overlaps is None:
            continue
        other = inputs.get(value.argument.overlaps[0])
        problem = "there is no such input" if other is None else overlap_problem(value, other)
        if problem is not None:
            yield f"%{value.name} cannot overlap {value.argument.overlaps[0]!r}: {problem}"


def _data_violations(graph: Graph) -> Iterator[str]:
    keys: Counter[str] = Counter()
    for value in graph.arguments:
        argument: Any = value.argument
        if argument.kind is not InputKind.INPUT:
            keys.update(external_names(value))
        if argument.kind is InputKind.CONSTANT and argument.data is None:
            yield f"constant %{value.name} has no data"
        if argument.data is not None and argument.kind is not InputKind.CONSTANT and argument.persistent:
            yield f"{argument.kind.value} %{value.name} has data: it comes with the weights or from the user"
        if argument.data is not None and not TensorType.of(argument.data).same_shape_and_dtype(value.type):
            yield f"%{value.name} is {value.type} but its data is {TensorType.of(argument.data)}"
    yield from (
        f"{key!r} names more than one parameter, buffer, optimizer state or constant"
        for key, count in keys.items()
        if count > 1
    )


def _node_rule(name: str, statement: str, violations: Callable[[Iterable[OpNode]], Iterator[str]]) -> Rule:
    """Return a rule on individual nodes."""
    return Rule(
        name, statement, lambda graph: violations(graph._iterate()), lambda _, nodes: violations(nodes)
    )


def _signature_rule(name: str, statement: str, violations: Callable[[Graph], Iterator[str]]) -> Rule:
    """Return a rule on the signature, which is always checked as a whole."""
    return Rule(name, statement, violations, lambda graph, _: violations(graph))


RULES: tuple[Rule, ...] = (
    Rule(
        "names",
        "every value and node has a name of its own, and the graph finds it by that name",
        _name_violations,
    ),
    Rule("outputs", "every value has one producer, or comes from outside", _output_violations),
    Rule("order", "a value is produced before it is read", _order_violations, _order_violations_among),
    Rule("uses", "the recorded uses of a value are exactly the places that read it", _use_violations),
    Rule(
        "types",
        "every value has a type, with sizes and strides that are integers or expressions",
        lambda graph: _type_violations(graph, graph.nodes),
        _type_violations,
    ),
    Rule(
        "symbols",
        "a symbol is declared, and a size determines its value before it is used",
        _symbol_violations,
        _symbol_violations_among,
    ),
    Rule(
        "regions",
        "a region belongs to one node, and takes and returns what the node says",
        region_problems,
        _region_violations_among,
    ),
    Rule(
        "prologue",
        "leading nodes of a program may be its prologue: pure, of fixed sizes, on values known when weights "
        "are bound",
        prologue_problems,
        edited_prologue_problems,
    ),
    _node_rule("attrs", "attributes are plain data", _attr_violations),
    _node_rule(
        "records", "a node says of each input, or of none, which argument it fills", _record_violations
    ),
    _node_rule(
        "schemas",
        "the inputs and attributes of a known op fit its schema; no op changes a tensor in place",
        schema_problems,
    ),
    _signature_rule(
        "signature",
        "call, results and updates name values of the right kind, number and type",
        _signature_violations,
    ),
    _signature_rule(
        "overlaps",
        "inputs that are stated to overlap are tensors of fixed sizes, of one dtype",
        _overlap_violations,
    ),
    _signature_rule(
        "data",
        "constants have data of their type; the names of weights and constants are unique",
        _data_violations,
    ),
)


def check(graph: Graph) -> None:
    """Verify every rule, for the graph and every region in it.

    The first violation is raised, with the rule that it breaks.
    """
    parts = list(graph.graphs())
    for part in parts:
        for rule in RULES:
            _raise_first(part, rule, rule.violations(part))
    for part in parts:
        part._edited.clear()


def check_edits(graph: Graph) -> None:
    """Verify the rules that edits since the last check can have broken, for the graph and every region."""
    parts = list(graph.graphs())
    for part in parts:
        nodes = list(part._edited)
        for rule in RULES:
            if rule.violations_among is not None:
                _raise_first(part, rule, rule.violations_among(part, nodes))
    for part in parts:
        part._edited.clear()


def _raise_first(graph: Graph, rule: Rule, problems: Iterator[str]) -> None:
    for problem in problems:
        raise GraphError(problem, where=f"graph {graph.name!r}, rule {rule.name!r}: {rule.statement}")
