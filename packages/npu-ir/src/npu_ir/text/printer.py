"""Printer of the text form of graphs.

```
graph Net {
  input %x: f32[8, 64]
  param %fc.weight: f32[10, 64]
  const %c0: f32[2] = [0.5, 1.0]
  call (%x, scale=2.0)

  prologue {
    %half: f32[10, 64] = aten.mul.Tensor(self=%fc.weight) {other=0.5}
  }
  %linear: f32[8, 10] = aten.linear.default(input=%x, weight=%half)
  %max.values: f32[8], %max.indices: i64[8] = aten.max.dim(self=%linear) {dim=1}

  return {"logits": %linear, "best": %max.indices}
}
```

Symbols and constraints come first (``symbol s0 in [2, 64]``, ``require mod(s0, 2) == 0``); the nodes of the
prologue precede the others, in braces; a node's regions follow it, each a graph in braces
(``region true_fn = graph true_graph_0 {``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from npu_ir.core.literals import format_literal
from npu_ir.core.naming import short_name
from npu_ir.core.node import OpNode, Value
from npu_ir.core.structure import LEAF, Structure
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import RECORD_ATTRS
from npu_ir.text.data import format_data
from npu_ir.text.lexer import quote_name, quote_op_type, quote_word
from npu_ir.text.operands import Nested, Operand, group_operands, quote_operand

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def format_ir(graph: Graph, *, provenance: bool = False) -> str:
    """Return the text form of ``graph``; with ``provenance``, a comment says where each node comes from.

    Raises:
        GraphError: It is not a graph.
    """
    if not hasattr(graph, "arguments"):  # its class is in a folder above
        raise GraphError(
            f"expected a graph, got {type(graph).__name__}", fix="load_ir(path) reads one from a file"
        )
    return "\n".join(_lines(graph, provenance)) + "\n"


def _lines(graph: Graph, provenance: bool, *, is_inner: bool = False) -> Iterator[str]:
    yield f"graph {quote_word(graph.name)} {{"
    if not is_inner:
        yield from (f"  symbol {name} in {range}" for name, range in graph.symbols.items())
    yield from (f"  require {constraint}" for constraint in graph.constraints)
    yield from (f"  {format_argument(value)}" for value in graph.arguments)
    if graph._call is not None:
        yield f"  {format_call(graph)}"
    yield ""
    if graph.prologue:
        yield "  prologue {"
        yield from _indent(format_nodes(graph.prologue, provenance), 2)
        yield "  }"
    yield from _indent(format_nodes(graph.body, provenance), 1)
    yield ""
    yield from (f"  {format_update(graph, target)}" for target in graph.updates)
    yield f"  {format_results(graph)}"
    yield "}"


def format_nodes(nodes: Iterable[OpNode], provenance: bool = False) -> Iterator[str]:
    """Yield the line of each node, followed by the lines of its regions."""
    for node in nodes:
        yield f"{format_node(node)}{_comment(node) if provenance else ''}"
        for argument, region in node.regions.items():
            first, *rest = _lines(region, provenance, is_inner=True)
            yield f"region {quote_operand(argument)} = {first}"
            yield from rest


def _indent(lines: Iterable[str], levels: int) -> Iterator[str]:
    return (f"{'  ' * levels}{line}" if line else line for line in lines)


def _ref(value: Value) -> str:
    return "%" + quote_name(value.name)


def _typed_ref(value: Value) -> str:
    return f"{_ref(value)}: {value.type}"


def format_argument(value: Value) -> str:
    argument = value.argument
    assert argument is not None
    line = f"{argument.kind.value} {_typed_ref(value)}"
    if argument.target != value.name:
        line += f" target {json.dumps(argument.target)}"
    if argument.aliases:
        line += f" aliases {format_literal(list(argument.aliases))}"
    if not argument.persistent:
        line += " non_persistent"
    if argument.overlaps is not None:
        line += f" overlaps {json.dumps(argument.overlaps[0])} at {argument.overlaps[1]}"
    return line if argument.data is None else f"{line} = {format_data(argument.data)}"


def _comment(node: OpNode) -> str:
    text = str(node.provenance)
    # A line break would end the comment.
    return f"  # {text if text.isprintable() else repr(text)}" if text else ""


def format_node(node: OpNode) -> str:
    """Return the line of a node, without its regions."""
    outputs = ", ".join(map(_typed_ref, node.outputs))
    operands, hidden = _operands(node)
    shown = {name: value for name, value in node.attrs.items() if name not in hidden}
    attrs = ", ".join(f"{quote_word(name)}={format_literal(value)}" for name, value in shown.items())
    line = f"{outputs} = " if outputs else ""
    line += f"{quote_op_type(node.op_type)}({', '.join(operands)})"
    if attrs:
        line += f" {{{attrs}}}"
    if node.name != implied_node_name(node.op_type, [value.name for value in node.outputs]):
        line += f" as {json.dumps(node.name)}"
    return line


def implied_node_name(op_type: str, outputs: list[str]) -> str:
    """Return the node name that the text form omits: the stem of its outputs' names, or the op's name."""
    if not outputs:
        return short_name(op_type)
    return outputs[0] if len(outputs) == 1 else outputs[0].rpartition(".")[0]


def _operands(node: OpNode) -> tuple[list[str], tuple[str, ...]]:
    """Return the inputs as written in the call, and the names of the attrs that they already contain."""
    if node.operands is None:
        return [_ref(value) for value in node.inputs], ()
    shown = group_operands(node)
    if shown is None:
        named = zip(node.operands, node.inputs, strict=True)
        return [f"{quote_operand(name)}={_ref(value)}" for name, value in named], ()
    nested = tuple(operand.name for operand in shown if operand.mark == "(")
    return [f"{quote_word(operand.name)}={_operand(operand)}" for operand in shown], (*nested, *RECORD_ATTRS)


def _operand(operand: Operand) -> str:
    if operand.mark == "(":
        return _format_nested(Nested(operand.items))
    items = ", ".join("None" if item is None else _ref(item) for item in operand.items)
    return f"{operand.mark}{items}]" if operand.mark else items


def _format_nested(item: Any) -> str:
    """Return an item of a list that contains inputs: ``(%n, -1, (%x, None))``."""
    if isinstance(item, Nested):
        return f"({', '.join(map(_format_nested, item.items))})"
    return format_leaf(item)


def format_update(graph: Graph, target: Value) -> str:
    """Return the line of the update of ``target``; with the new type if the update replaces it."""
    value = graph.updates[target]
    type = f": {value.type}" if graph.is_replaced(target) else ""
    return f"update {_ref(target)}{type} = {_ref(value)}"


def format_results(graph: Graph) -> str:
    """Return the line of the graph's results."""
    structure, leaves = graph.results
    return f"return {_tree(structure, iter(leaves))}"


def format_leaf(leaf: Any) -> str:
    """Return a value or literal as written in a call or result."""
    return _ref(leaf) if isinstance(leaf, Value) else format_literal(leaf)


def format_call(graph: Graph) -> str:
    """Return the line of the call structure: ``call (%x, [%a, None], scale=2.0)``."""
    structure, leaves = graph.call
    args, kwargs = structure.children
    pending = iter(leaves)
    shown = [_tree(child, pending) for child in args.children]
    for name, child in zip(kwargs.context, kwargs.children, strict=True):
        shown.append(f"{quote_word(name)}={_tree(child, pending)}")
    return f"call ({', '.join(shown)})"


def _tree(structure: Structure, leaves: Iterator[Any]) -> str:
    """Return nested containers with their leaves; types other than tuple, list, dict as ``@"name"(...)``."""
    if structure.kind == LEAF:
        return format_leaf(next(leaves))
    children = [_tree(child, leaves) for child in structure.children]
    if structure.kind == "tuple":
        return f"({', '.join(children)}{',' if len(children) == 1 else ''})"
    if structure.kind == "list":
        return f"[{', '.join(children)}]"
    if structure.kind == "dict":
        keys = map(format_literal, structure.context)
        return f"{{{', '.join(f'{key}: {child}' for key, child in zip(keys, children, strict=True))}}}"
    return f"@{json.dumps(structure.kind)}({', '.join([format_literal(structure.context), *children])})"
