"""Attributes are accepted exactly where PyTorch accepts them as an argument of the type."""

import pytest
import torch

from npu_ir import Graph, GraphError, ScalarType, TensorType, parse_ir
from npu_ir.core.literals import Literal
from npu_ir.ops.schema import schema_of

TYPES = [
    "int", "SymInt", "float", "bool", "Scalar", "str", "ScalarType", "Layout", "MemoryFormat", "Device",
    "int[]", "int[2]", "SymInt[]", "SymInt[2]", "float[]", "bool[]", "bool[3]", "Scalar[]", "str[]",
    "int?", "float?", "bool?", "str?", "ScalarType?", "Scalar?", "int[]?", "int[1]?", "SymInt[1]?",
    "float[]?", "Layout?", "MemoryFormat?", "Device?", "Generator?",
]  # fmt: skip
LITERALS: tuple[Literal, ...] = (
    None, True, 3, -(2**63), 1.5, float("nan"), 1j, "cpu", torch.float32, torch.strided,
    torch.contiguous_format, torch.device("cpu"), [], [1], [2, 3], [True], [1.5], ["a"], [1j], [[1]],
    [2**63], [torch.device("cpu")],
)  # fmt: skip
CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


def is_taken(op: torch._ops.OpOverload, literal: Literal) -> bool:
    try:
        op(torch.ones(1), literal)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return True


def test_literals_are_accepted_where_pytorch_takes_them() -> None:
    with torch.library._scoped_library("npu_test_types", "DEF") as library:
        for index, type in enumerate(TYPES):
            library.define(f"take{index}(Tensor x, {type} a) -> Tensor")
            library.impl(f"take{index}", lambda x, a: x.clone(), "CPU")
            op = getattr(torch.ops.npu_test_types, f"take{index}").default
            argument = schema_of(op).args[1]
            assert argument.type is not None
            for literal in LITERALS:
                # For open sizes PyTorch refuses bools in places, and takes dtypes for numbers in others.
                if not ("Int" in type or (type.startswith("Scalar") and isinstance(literal, CONSTANTS))):
                    assert argument.type.accepts(literal) == is_taken(op, literal), (type, literal)
                elif "Int" in type and is_taken(op, literal):
                    assert argument.type.accepts(literal), (type, literal)


def test_ops_that_take_numbers_for_tensors_accept_them_as_attributes() -> None:
    add, linear = schema_of(torch.ops.aten.add.Tensor), schema_of(torch.ops.aten.linear.default)

    assert add.by_name["other"].type.accepts(2)  # type: ignore[union-attr]
    assert not linear.by_name["bias"].type.accepts(2)  # type: ignore[union-attr]


def test_a_text_with_an_attribute_of_another_type_is_refused() -> None:
    text = """
graph g {
  input %x: f32[2, 3]
  call (%x)

  %y: f32[3, 2] = aten.permute.default(%x) {dims="ab"}

  return %y
}
"""

    with pytest.raises(
        GraphError, match=r"aten.permute.default takes int\[\] as 'dims', not \"ab\"; its schema is"
    ):
        parse_ir(text)


def test_a_list_with_inputs_in_it_is_checked_around_them() -> None:
    graph = Graph("g")
    x, n = graph.add_input("x", TensorType((6,), torch.float32)), graph.add_input("n", ScalarType("int"))
    types = [TensorType((3, 2), torch.float32)]

    graph.insert("aten.view.default", [x, n], {"size": [None, 2]}, operands=["self", "size[0]"], types=types)
    graph.check()
    graph.insert(
        "aten.view.default", [x, n], {"size": [None, "2"]}, operands=["self", "size[0]"], types=types
    )
    with pytest.raises(GraphError, match=r"takes int\[\] as 'size', not \[None, \"2\"\]"):
        graph.check()
