"""One node per tensor takes the place of ops on lists of tensors, and computes the same bits."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from npu_ir import Graph, Provenance, TensorType, Value, execute_ir
from npu_ir.core.types import Type
from npu_ir.ops.arguments import flatten_arguments
from npu_ir.ops.inference import infer_types
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.core.journal import Journal, use_journal
from npu_passes.library.training.lower_foreach import LowerForeach
from tests.support.rows import each_row

PLACE = Provenance("layer", "model.py:3")
CONTENT_OF_A_TENSOR = {"aten._foreach_addcdiv.Tensor", "aten._foreach_addcmul.Tensor"}


def functional_ops() -> list[str]:
    """Return every ``_foreach_*`` op of this PyTorch that writes nothing."""
    schemas = [
        schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::_foreach_")
    ]
    functional = [
        schema
        for schema in schemas
        if not any(arg.alias_info is not None and arg.alias_info.is_write for arg in schema.arguments)
    ]
    return sorted(
        f"aten.{item.name.removeprefix('aten::')}.{item.overload_name or 'default'}" for item in functional
    )


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(shape, generator=generator) + 0.5 for shape in ((3, 3), (2, 2), (4, 4))]


def argument(name: str, type: str) -> Any:
    """Return an argument for a parameter of a schema."""
    if type == "List[Tensor]":
        return tensors()
    if type == "List[number]":
        return [2, 0.5, 1.25]
    if type == "Tensor":
        return torch.tensor([0.5, 2.0, 1.5]) if name == "scalars" else torch.tensor(1.75)
    return 3 if name == "ord" else 0.75


def foreach_graph(op_type: str, args: Sequence[Any]) -> tuple[Graph, list[torch.Tensor]]:
    """Return a graph of one call, and what to call it with."""
    graph, called = Graph(), []

    def add(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            called.append(item)
            return graph.add_input(f"x{len(called)}", TensorType.of(item))
        return [add(part) for part in item] if isinstance(item, list) else item

    op = find_op(op_type)
    types: Sequence[Type]
    flat = flatten_arguments(
        schema_of(op), [add(item) for item in args], {}, lambda item: isinstance(item, Value)
    )
    if op_type in CONTENT_OF_A_TENSOR:  # PyTorch does not tell their types
        types = [TensorType.of(item) for item in args[0]]
    else:
        types = infer_types(op_type, flat.inputs, flat.attrs, operands=flat.operands, symbols={})
    node = graph.insert(
        op_type, flat.inputs, flat.attrs, types=types, operands=flat.operands, provenance=PLACE
    )
    graph.set_outputs(list(node.outputs))
    return graph, called


def test_a_foreach_op_becomes_an_op_per_tensor_with_the_same_results(subtests: pytest.Subtests) -> None:
    for op_type in sorted(set(functional_ops()) - CONTENT_OF_A_TENSOR):
        with subtests.test(op_type=op_type):
            op = find_op(op_type)
            args = [
                argument(arg.name, str(arg.type))
                for arg in op._schema.arguments  # type: ignore[union-attr]
                if not arg.kwarg_only and not arg.has_default_value()
            ]
            graph, called = foreach_graph(op_type, args)

            changed = LowerForeach().run(graph)

            graph.check()
            assert changed
            assert not any("_foreach_" in node.op_type for node in graph.nodes)
            assert {node.provenance for node in graph.nodes} == {PLACE}
            assert not LowerForeach().run(graph)
            found = execute_ir(graph, called)
            for ours, theirs in zip(found, op(*args), strict=True):  # type: ignore[misc,operator]
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.smoke
@each_row("op_type", sorted(CONTENT_OF_A_TENSOR))
def test_an_op_with_scalars_in_a_tensor_stays(op_type: Any) -> None:
    graph, _ = foreach_graph(op_type, [tensors(), tensors(), tensors(), torch.tensor([0.5, 2.0, 1.5])])
    before, journal = str(graph), Journal()

    with use_journal(journal):
        changed = LowerForeach().run(graph)

    assert not changed
    assert str(graph) == before
    assert "PyTorch cannot trace it" in journal.refusals[0].reason
