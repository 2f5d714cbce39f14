"""Inference of result types without data: equal to real results, for all open sizes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from npu_ir import Graph, GraphError, ScalarType, TensorType, Value, parse_ir
from npu_ir.core.types import Type
from npu_ir.ops.arguments import flatten_arguments
from npu_ir.ops.inference import infer_types
from npu_ir.ops.schema import find_op, schema_of
from tests.support.corpus.dtypes import float64_default
from tests.support.registration import registered
from tests.support.rows import each_row

F32 = torch.float32


def infer(graph: Graph, op_type: str, *args: Any, **kwargs: Any) -> list[Type]:
    op = find_op(op_type)
    flat = flatten_arguments(schema_of(op), args, kwargs, lambda item: isinstance(item, Value))
    return infer_types(op_type, flat.inputs, flat.attrs, operands=flat.operands, symbols=graph.symbols)


def stated(graph: Graph, items: Any) -> Any:
    if isinstance(items, torch.Tensor):
        return graph.add_input("x", TensorType.of(items))
    return [stated(graph, item) for item in items] if isinstance(items, (list, tuple)) else items


def flat(result: Any) -> list[Any]:
    return [leaf for item in result for leaf in flat(item)] if isinstance(result, (list, tuple)) else [result]


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return (torch.rand(shape) * 8).to(dtype)


IMAGE = rand(2, 6, 9, 7)
CALLS: Sequence[tuple[str, Sequence[Any], Mapping[str, Any]]] = [
    ("aten.relu.default", [rand()], {}),
    ("aten.add.Tensor", [rand(3, 1), rand(2, 1, 4)], {"alpha": 2}),
    ("aten.add.Tensor", [rand(3, dtype=torch.int64), rand(dtype=torch.float64)], {}),
    ("aten.add.Tensor", [rand(3, dtype=torch.int32), 1.5], {}),
    ("aten.div.Tensor_mode", [rand(3, dtype=torch.int64), 2], {"rounding_mode": "floor"}),
    ("aten.mul.Tensor", [rand(3, 4).t(), rand(4, 3)], {}),
    ("aten.mul.Tensor", [IMAGE.to(memory_format=torch.channels_last), rand(1, 6, 1, 1)], {}),
    ("aten.conv2d.default", [IMAGE, rand(4, 3, 3, 3), rand(4)], {"stride": [2, 2], "groups": 2}),
    ("aten.batch_norm.default", [IMAGE, *[rand(6)] * 4, False, 0.1, 1e-5, False], {}),
    ("aten.permute.default", [IMAGE, [0, 2, 3, 1]], {}),
    ("aten.reshape.default", [rand(3, 4).t(), [-1]], {}),
    ("aten.index.Tensor", [rand(5, 6), [None, rand(3, dtype=torch.int64).clamp(0, 5)]], {}),
    ("aten.cat.default", [[rand(2, 3), rand(2, 4, dtype=torch.float64)], 1], {}),
    ("aten.split.Tensor", [rand(7, 2), 3], {}),
    ("aten.topk.default", [rand(3, 9), 2], {}),
    ("aten.max.dim", [rand(3, 9), 0], {"keepdim": True}),
    ("aten.native_layer_norm.default", [rand(3, 9), [9], None, None, 1e-5], {}),
    ("aten.full.default", [[2, 3], 1.0], {"dtype": torch.float16, "device": torch.device("meta")}),
    ("aten.arange.start_step", [0, 7, 2], {}),
    ("aten._to_copy.default", [rand(3, 4).t()], {"dtype": torch.int8}),
    ("aten.scaled_dot_product_attention.default", [rand(2, 4, 5, 8)] * 3, {"is_causal": True}),
    ("aten.native_dropout.default", [rand(4), 0.5, True], {}),
    ("aten._foreach_mul.Scalar", [[rand(4), rand(2, 3)], 2.0], {}),
]  # fmt: skip


@each_row("op_type, args, kwargs", {f"{i}-{call[0]}": call for i, call in enumerate(CALLS)})
def test_types_are_those_of_what_the_op_returns(
    op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    graph = Graph()
    on_cpu = {name: "cpu" if isinstance(item, torch.device) else item for name, item in kwargs.items()}

    found = infer(graph, op_type, *stated(graph, args), **kwargs)

    assert found == [TensorType.of(item) for item in flat(find_op(op_type)(*args, **on_cpu))]  # type: ignore[operator,misc]


@pytest.mark.smoke
def test_none_stands_for_what_an_op_was_told_not_to_compute() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 3), F32))
    mean = graph.add_input("m", TensorType((2, 1), F32))
    mask = [True, False, False]

    found = infer(graph, "aten.native_layer_norm_backward.default", x, x, [3], mean, mean, None, None, mask)

    assert found == [TensorType((2, 3), F32), ScalarType("none"), ScalarType("none")]


def test_a_new_tensor_is_float32_whatever_the_process_has_set() -> None:
    graph = Graph()
    x, y = graph.add_input("x", TensorType((2, 3), F32)), graph.add_input("y", TensorType((3, 2), F32))

    with float64_default(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = infer(graph, "aten.ones.default", [5]) + infer(graph, "aten.mm.default", x, y)

    assert found == [TensorType((5,), F32), TensorType((2, 2), F32)]


def test_an_op_that_writes_returns_what_it_wrote_last() -> None:
    with torch.library._scoped_library("inference_test", "DEF") as library:
        library.define("fill(Tensor(a!) x, Tensor y) -> Tensor")
        library.impl("fill", lambda x, y: y + 1, "Meta")
        graph = Graph()
        x = graph.add_input("x", TensorType((2,), F32))
        y = graph.add_input("y", TensorType((3,), torch.int64))

        found = infer(graph, "inference_test.fill.default", x, y)

    assert found == [TensorType((3,), torch.int64), TensorType((2,), F32)]


def test_an_op_without_results_has_no_types() -> None:
    graph = Graph()
    condition = graph.add_input("b", ScalarType("bool"))

    assert infer(graph, "aten._assert_scalar.default", condition, "wrong") == []


OPEN = """
graph g {
  symbol s0 in [1, inf]
  symbol s1 in [2, 64]
  input %x: f32[s0, 8]
  input %y: f32[s1, 8]
  input %y_t: f32[8, s1]@[1, 8]
  input %w: f32[4, 3, 3, 3]
  input %image: f32[s0, 3, 8*s1, 32]
  input %time_first: f32[s0, 5, 8]@[24, 24*s0, 1]
  input %n: int(2*s0)
  input %unknown: int
  input %f: float
  input %padded: f32[max(4, s1), 8]
  input %triples: f32[s1, 3]
  input %rounded: f32[(s1+1)//2, 4]
  input %multiple: f32[s1//2, 8]
  return ()
}
"""


def arguments(graph: Graph, text: str) -> Any:
    return eval(text, {"__builtins__": {}}, {value.name: value for value in graph.inputs})  # noqa: S307


@each_row("op_type, args, expected", [
    ("aten.cat.default", "[[x, y], 0]", "f32[s0+s1, 8]"),
    ("aten.view.default", "[x, [-1]]", "f32[8*s0]"),
    ("aten.scaled_dot_product_attention.default", "[time_first] * 3", "f32[s0, 5, 8]"),  # asks for 8*s0 != 8
    ("aten.view.default", "[x, [n, 4]]", "f32[2*s0, 4]"),
    ("aten.full.default", "[[n, 2], 1.0]", "f32[2*s0, 2]"),
    ("aten.permute.default", "[image, [0, 2, 3, 1]]", "f32[s0, 8*s1, 32, 3]@[768*s1, 32, 1, 256*s1]"),
    ("aten.slice.Tensor", "[y, 0, 0, 100]", "f32[s1, 8]"),
    ("aten.slice.Tensor", "[y, 0, 1]", "f32[s1-1, 8]"),
    ("aten.mul.Tensor", "[rounded, 2]", "f32[(s1+1)//2, 4]"),
    ("aten.relu.default", "[padded]", "f32[max(4, s1), 8]"),
    ("aten.mm.default", "[x, y_t]", "f32[s0, s1]"),
    ("aten.sym_size.int", "[x, 0]", "int(s0)"),
    ("aten.sym_size.int", "[x, 1]", "int(8)"),
    ("aten.sym_storage_offset.default", "[x]", "int"),
    ("operator.add", "[n, 3]", "int(2*s0+3)"),
    ("operator.add", "[n, unknown]", "int"),
    ("operator.floordiv", "[n, 2]", "int(s0)"),
    ("operator.mul", "[f, 2]", "float"),
    ("operator.gt", "[n, 3]", "bool"),
    ("math.floor", "[f]", "int"),
    ("aten.mul.Tensor", "[x, f]", "f32[s0, 8]"),
    ("aten._local_scalar_dense.default", "[x]", "float"),
    ("aten.conv2d.default", "[image, w]", "f32[s0, 4, 8*s1-2, 30]"),  # chosen by the batch size
])  # fmt: skip
def test_types_are_told_in_terms_of_the_symbols_of_the_graph(op_type: str, args: str, expected: str) -> None:
    graph = parse_ir(OPEN)

    assert str(infer(graph, op_type, *arguments(graph, args))[0]) == expected


@each_row("op_type, args, message", [
    ("aten.add.Tensor", "[x, y]", "cannot be inferred: RuntimeError: The size of tensor a"),
    ("aten.view.default", "[x, [2, -1, 3]]", "cannot be inferred"),
    ("aten.add.Tensor", "[y, 2**64]", "cannot be inferred: OverflowError: int too big"),
    ("aten.view.default", "[x, [unknown, -1]]", "a size depends on data, or on a number that is not known"),
    ("aten.nonzero.default", "[x]", "a size depends on data"),
    ("aten.squeeze.dim", "[x, 0]", r"for all sizes: f32\[8\] where s0 = 1"),
    ("aten.squeeze.dim", "[multiple, 0]", r"only where Eq|f32\[8\] where"),
    ("aten.chunk.default", "[y, 3]", "only where Eq"),
    ("aten.cross.default", "[triples, triples]", "only where Ne"),
    ("aten.relu_.default", "[x]", "changes a tensor in place: a graph is functional"),
])  # fmt: skip
def test_types_that_cannot_be_told_for_all_sizes_are_refused(op_type: str, args: str, message: str) -> None:
    graph = parse_ir(OPEN)

    with pytest.raises(GraphError, match=message):
        infer(graph, op_type, *arguments(graph, args))


def test_another_range_of_a_symbol_is_another_question() -> None:
    graph, wider = parse_ir(OPEN), parse_ir(OPEN.replace("s0 in [1, inf]", "s0 in [2, inf]"))

    assert str(infer(wider, "aten.squeeze.dim", wider.value("x"), 0)[0]) == "f32[s0, 8]"
    with pytest.raises(GraphError, match="for all sizes"):
        infer(graph, "aten.squeeze.dim", graph.value("x"), 0)


def test_an_op_that_only_has_an_executor_does_not_tell_its_types() -> None:
    with (
        registered("only_executed", lambda inputs, attrs: inputs),
        pytest.raises(GraphError, match=r"no operator only_executed to infer[^\0]*types="),
    ):
        infer_types("only_executed", [], {}, operands=None, symbols={})


def test_inputs_that_do_not_fit_the_schema_are_refused() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2,), F32))

    with pytest.raises(GraphError, match="leaves 1 of 2 inputs unused"):
        infer_types("aten.relu.default", [x, x], {}, operands=None, symbols={})


def test_an_op_that_refuses_writes_nothing_to_the_log() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((1, 3, 1, 1), F32))
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    log = logging.getLogger("torch._subclasses.fake_tensor")

    log.addHandler(handler)
    try:
        with pytest.raises(GraphError, match="cannot be inferred: RuntimeError"):
            infer(graph, "aten.max_pool2d_with_indices.default", x, [2, 2])
    finally:
        log.removeHandler(handler)

    assert not records
