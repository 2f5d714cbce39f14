"""Rewrites of a graph: new nodes, replaced values, provenance, and the journal entry."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_ir import Graph, OpNode, Provenance, ScalarType, TensorType, Value
from npu_ir.ops.arguments import FlatArguments, flatten_arguments
from npu_ir.ops.effects import is_pure
from npu_ir.ops.inference import infer_types
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.core import journal
from npu_passes.core.journal import Rewrite, region_path
from npu_passes.errors import PassError, failure_of

_Type = TensorType | ScalarType
_USUAL = frozenset({Value, int, float, bool, str, list, type(None)})  # classes of most arguments


class Edit:
    """An open rewrite of some nodes, begun by `npu_passes.Pass.rewrite`.

    New nodes are inserted before the last of the nodes, and carry the provenance of all of them.
    """

    def __init__(self, graph: Graph, nodes: Sequence[OpNode]) -> None:
        self.graph = graph
        self.made: list[str] = []
        self.replaced: set[OpNode | None] = set()
        self._nodes = tuple(nodes)

    @functools.cached_property
    def _provenance(self) -> Provenance:
        return merge_provenance(self._nodes)

    def call(
        self, op_type: str, /, *args: Any, type: _Type | None = None, name: str | None = None, **kwargs: Any
    ) -> Value:
        """Add a node that calls an op with one output, and return that output.

        Args:
            op_type: The op's full name: ``aten.add.Tensor``.
            *args: Positional arguments: values of the graph, plain data, lists of them.
            type: The type of the output; inferred from the op by default.
            name: Preferred name of the node and its output.
            **kwargs: Keyword arguments of the op.

        An op unknown to PyTorch takes values by position and plain data by name, and needs ``type``.

        Raises:
            GraphError: The arguments do not fit the op's schema, or its type cannot be inferred.
            PassError: The op is unknown, or does not have exactly one output.
        """
        outputs = self.calls(op_type, *args, types=None if type is None else [type], name=name, **kwargs)
        if len(outputs) != 1:
            raise PassError(f"{op_type} has {len(outputs)} outputs", fix="use edit.calls(...)")
        return outputs[0]

    def calls(
        self,
        op_type: str,
        /,
        *args: Any,
        types: Sequence[_Type] | None = None,
        name: str | None = None,
        output_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> tuple[Value, ...]:
        """Add a node as `call` does, for an op with any number of outputs, whose names may be preferred."""
        _require_types(op_type, types or ())
        op = find_op(op_type)
        if op is None:
            for item in args:
                _is_value(item)
            return self._insert(op_type, args, kwargs, None, types, name, output_names)
        flat = flatten_arguments(schema_of(op), args, kwargs, _is_value)
        if types is None:
            types = _infer(self.graph, op_type, flat)
        return self._insert(op_type, flat.inputs, flat.attrs, flat.operands, types, name, output_names)

    def _insert(
        self,
        op_type: str,
        inputs: Sequence[Value],
        attrs: Mapping[str, Any],
        operands: Sequence[str] | None,
        types: Sequence[_Type] | None,
        name: str | None,
        output_names: Sequence[str] | None,
    ) -> tuple[Value, ...]:
        if types is None:
            raise PassError(
                f"there is no operator {op_type}",
                fix="import the library that registers it, or state the types that it returns",
            )
        node = self.graph.insert(
            op_type,
            inputs,
            attrs,
            types=list(types),
            operands=operands,
            name=name,
            output_names=output_names,
            before=self._nodes[-1],
            provenance=self._provenance,
        )
        self.made.append(node.name)
        return node.outputs

    def to_prologue(self, value: Value) -> Value:
        """Move the node that makes ``value`` to the prologue, and return ``value``."""
        assert value.producer is not None
        self.graph.move_to_prologue(value.producer)
        return value

    def replace(self, old: Value, new: Value) -> None:
        """Replace every use of ``old`` by ``new``.

        Raises:
            GraphError: They differ in shape or dtype.
        """
        self.graph.replace_all_uses(old, new)
        self.replaced.add(old.producer)

    def erase(self, node: OpNode) -> None:
        """Remove a node whose outputs nothing reads."""
        self.graph.erase(node)


def infer_call(graph: Graph, op_type: str, /, *args: Any, **kwargs: Any) -> list[_Type]:
    """Return the types that a call of a known op would have in a graph; arguments as for `Edit.call`.

    Raises:
        GraphError: They cannot be inferred, for example not for all sizes that the graph accepts.
    """
    op = find_op(op_type)
    assert op is not None
    return _infer(graph, op_type, flatten_arguments(schema_of(op), args, kwargs, _is_value))


def _infer(graph: Graph, op_type: str, flat: FlatArguments) -> list[_Type]:
    return infer_types(op_type, flat.inputs, flat.attrs, operands=flat.operands, symbols=graph.symbols)


def _is_value(item: object) -> bool:
    """Return whether an argument is a value of the graph rather than plain data."""
    if item.__class__ in _USUAL:
        return item.__class__ is Value
    if isinstance(item, torch.Tensor):
        raise PassError(
            "a tensor is given as an argument of an op",
            fix="make it a value of the graph: graph.add_constant(name, tensor)",
        )
    if isinstance(item, OpNode):
        raise PassError(
            f"node {item.name!r} is given as an argument of an op",
            fix="give one of the values that it returns: node.outputs[0]",
        )
    return isinstance(item, Value)


def _require_types(op_type: object, types: Sequence[object]) -> None:
    if not isinstance(op_type, str):
        raise PassError(f"an op is named by text, not by {op_type!r}", fix=f'write "{op_type}"')
    for type in types:
        if not isinstance(type, (TensorType, ScalarType)):
            raise PassError(f"{type!r} is not a type", fix="give a TensorType or a ScalarType")


def merge_provenance(nodes: Sequence[OpNode]) -> Provenance:
    """Return the provenance of a node that replaces ``nodes``: the last one's location, the names of all."""
    last = nodes[-1].provenance
    if len(nodes) == 1:
        return last
    names = [name for node in nodes for name in (node.provenance.fused_from or (node.name,))]
    return dataclasses.replace(last, fused_from=tuple(dict.fromkeys(names)))


@contextlib.contextmanager
def open_rewrite(pass_name: str, graph: Graph, rule: str, nodes: Sequence[OpNode]) -> Iterator[Edit]:
    """Open a rewrite of ``nodes``; on exit erase those of them that nothing reads, and record the rewrite.

    Nodes that draw random numbers or have effects are erased only if they were replaced.

    Raises:
        PassError: The body raises; names pass, rule and nodes.
    """
    _require_nodes(pass_name, graph, rule, nodes)
    log = journal.current_journal()
    entry = Rewrite(pass_name, rule, tuple(node.name for node in nodes), region=region_path(graph))
    log.begin_rewrite(graph, entry)
    edit = Edit(graph, nodes)
    try:
        yield edit
        for node in reversed(nodes):  # readers before what they read, which they keep in use
            if node.is_erased or any(value.use_count for value in node.outputs):
                continue
            if node in edit.replaced or is_pure(node):
                graph.erase(node)
        graph.settle_origins()
    except Exception as error:
        where = f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(repr, entry.paths))}"
        failure = failure_of(f"{pass_name}: {rule}", error, where)
        log.fail_rewrite(failure)
        raise failure from error
    except BaseException:  # such as GeneratorExit: edits so far count, but are not this rewrite
        log.fail_rewrite(None)
        raise
    log.end_rewrite(graph, edit.made)


def _require_nodes(pass_name: str, graph: Graph, rule: str, nodes: Sequence[OpNode]) -> None:
    if not nodes:
        raise PassError(
            f"{pass_name}: the rewrite {rule!r} names no nodes",
            fix="name the nodes: self.rewrite(graph, rule, node)",
        )
    for node in nodes:
        if node.graph is not graph:
            raise PassError(
                f"{pass_name}: the rewrite {rule!r} is of node {node.name!r}, which is not in graph"
                f" {graph.name!r}"
            )
