"""Inference of result types without data: equal to real results, for all open sizes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from npu_ir import Graph, GraphError, ScalarType, TensorType, Value
from npu_ir.core.types import Type
from npu_ir.ops import register_executor, unregister_executor
from npu_ir.ops.arguments import flatten_arguments
from npu_ir.ops.inference import infer_types
from npu_ir.ops.schema import find_op, schema_of
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import call
from tests.support.rows import each_row

F32 = torch.float32


def infer(graph: Graph, op_type: str, *args: Any, **kwargs: Any) -> list[Type]:
    """Return the inferred types of a call, whose arguments are values of ``graph`` and plain data."""
    op = find_op(op_type)
    assert op is not None
    flat = flatten_arguments(schema_of(op), args, kwargs, lambda item: isinstance(item, Value))
    return infer_types(op_type, flat.inputs, flat.attrs, operands=flat.operands, symbols=graph.symbols)


def stated(graph: Graph, items: Any) -> Any:
    """Return arguments with an input of the graph in place of each tensor."""
    if isinstance(items, torch.Tensor):
        return graph.add_input("x", TensorType.of(items))
    return [stated(graph, item) for item in items] if isinstance(items, (list, tuple)) else items


def flat(result: Any) -> list[Any]:
    return [leaf for item in result for leaf in flat(item)] if isinstance(result, (list, tuple)) else [result]


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return (torch.rand(shape) * 8).to(dtype)


IMAGE = rand(2, 6, 9, 7)
CALLS: Sequence[tuple[str, Sequence[Any], Mapping[str, Any]]] = [
    ("aten.relu.default", [rand(3, 4)], {}),
    ("aten.relu.default", [rand()], {}),
    ("aten.add.Tensor", [rand(3, 1), rand(2, 1, 4)], {"alpha": 2}),
    ("aten.add.Tensor", [rand(3, dtype=torch.int64), rand(dtype=torch.float64)], {}),
    ("aten.add.Tensor", [rand(3, dtype=torch.int32), rand(1, dtype=torch.float16)], {}),
    ("aten.add.Tensor", [rand(3, dtype=torch.int32), 1.5], {}),
    ("aten.add.Tensor", [rand(3, dtype=torch.bool), 1], {}),
    ("aten.div.Tensor", [rand(3, dtype=torch.int64), rand(3, dtype=torch.int64)], {}),
    ("aten.div.Tensor_mode", [rand(3, dtype=torch.int64), 2], {"rounding_mode": "floor"}),
    ("aten.mul.Tensor", [rand(3, 4).t(), rand(4, 3)], {}),
    ("aten.mul.Tensor", [IMAGE.to(memory_format=torch.channels_last), rand(1, 6, 1, 1)], {}),
    ("aten.gt.Scalar", [rand(3), 1.0], {}),
    ("aten.where.self", [rand(3, 1, dtype=torch.bool), rand(4), rand(3, 4, dtype=torch.float64)], {}),
    ("aten.abs.default", [rand(3, dtype=torch.complex64)], {}),
    ("aten.conv2d.default", [IMAGE, rand(4, 3, 3, 3), rand(4)], {"stride": [2, 2], "groups": 2}),
    (
        "aten.conv2d.default",
        [IMAGE.to(memory_format=torch.channels_last), rand(4, 6, 3, 3).to(memory_format=torch.channels_last)],
        {},
    ),
    ("aten.conv1d.default", [rand(2, 4, 9), rand(5, 4, 3)], {"padding": [1], "dilation": [2]}),
    ("aten.conv_transpose2d.input", [IMAGE, rand(6, 4, 3, 3)], {"stride": [2, 2], "output_padding": [1, 0]}),
    ("aten.batch_norm.default", [IMAGE, *[rand(6)] * 4, False, 0.1, 1e-5, False], {}),
    ("aten.linear.default", [rand(2, 3, 4), rand(5, 4), rand(5)], {}),
    ("aten.matmul.default", [rand(2, 1, 3, 4), rand(5, 4, 6)], {}),
    ("aten.bmm.default", [rand(2, 3, 4), rand(2, 6, 4).transpose(1, 2)], {}),
    ("aten.permute.default", [IMAGE, [0, 2, 3, 1]], {}),
    ("aten.transpose.int", [rand(3, 4), 0, 1], {}),
    ("aten.reshape.default", [rand(3, 4).t(), [-1]], {}),
    ("aten.reshape.default", [rand(3, 4), [2, 6]], {}),
    ("aten.view.default", [rand(2, 6), [2, -1, 3]], {}),
    ("aten.expand.default", [rand(3, 1), [2, 3, 4]], {}),
    ("aten.slice.Tensor", [rand(5, 6), 1, 1, 9, 2], {}),
    ("aten.select.int", [rand(5, 6), 1, -1], {}),
    ("aten.contiguous.default", [rand(5, 6).t()], {}),
    ("aten.clone.default", [rand(5, 6).t()], {}),
    ("aten.index.Tensor", [rand(5, 6), [None, rand(3, dtype=torch.int64).clamp(0, 5)]], {}),
    ("aten.cat.default", [[rand(2, 3), rand(2, 4, dtype=torch.float64)], 1], {}),
    ("aten.stack.default", [[rand(2, 3), rand(2, 3)]], {"dim": -1}),
    ("aten.split.Tensor", [rand(7, 2), 3], {}),
    ("aten.split_with_sizes.default", [rand(7, 4), [1, 3], 1], {}),
    ("aten.unbind.int", [rand(3, 2), 1], {}),
    ("aten.topk.default", [rand(3, 9), 2], {}),
    ("aten.max.dim", [rand(3, 9), 0], {"keepdim": True}),
    ("aten.sum.dim_IntList", [rand(3, 9, dtype=torch.bool), [0]], {}),
    ("aten.mean.default", [rand(3, 9)], {}),
    ("aten.var_mean.correction", [rand(3, 9), [1]], {"correction": 0, "keepdim": True}),
    ("aten.softmax.int", [rand(3, 9, dtype=torch.bfloat16), -1, F32], {}),
    ("aten.layer_norm.default", [rand(3, 9), [9], rand(9), rand(9)], {}),
    ("aten.native_layer_norm.default", [rand(3, 9), [9], None, None, 1e-5], {}),
    ("aten.embedding.default", [rand(9, 4), rand(2, 3, dtype=torch.int64)], {}),
    ("aten.max_pool2d_with_indices.default", [IMAGE, [2, 2]], {}),
    ("aten.adaptive_avg_pool2d.default", [IMAGE, [1, 1]], {}),
    ("aten.upsample_nearest2d.vec", [IMAGE, None, [2.0, 2.0]], {}),
    ("aten.full.default", [[2, 3], 1], {}),
    ("aten.full.default", [[2, 3], 1.0], {"dtype": torch.float16, "device": torch.device("meta")}),
    ("aten.arange.start_step", [0, 7, 2], {}),
    ("aten.zeros_like.default", [rand(3, 4).t()], {}),
    ("aten._to_copy.default", [rand(3, 4).t()], {"dtype": torch.int8}),
    ("aten.scalar_tensor.default", [2.5], {}),
    ("aten.scaled_dot_product_attention.default", [rand(2, 4, 5, 8)] * 3, {"is_causal": True}),
    ("aten.native_dropout.default", [rand(4), 0.5, True], {}),
    ("aten._foreach_mul.Scalar", [[rand(4), rand(2, 3)], 2.0], {}),
    (
        "aten.lstm.input",
        [rand(5, 2, 4), [rand(1, 2, 3)] * 2, [rand(12, 4), rand(12, 3)], False, 1, 0.0, False, False, False],
        {}
    ),
]  # fmt: skip


@each_row(
    ("op_type", "args", "kwargs"), [pytest.param(*call, id=f"{i}-{call[0]}") for i, call in enumerate(CALLS)]
)
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
    rstd = graph.add_input("r", TensorType((2, 1), F32))
    mask = [True, False, False]

    found = infer(graph, "aten.native_layer_norm_backward.default", x, x, [3], mean, rstd, None, None, mask)

    assert found == [TensorType((2, 3), F32), ScalarType("none"), ScalarType("none")]


def test_a_new_tensor_is_float32_whatever_the_process_has_set() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 3), F32))

    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = infer(graph, "aten.ones.default", [5]) + infer(
                graph, "aten.mm.default", x, infer_t(graph)
            )
    finally:
        torch.set_default_dtype(F32)

    assert found == [TensorType((5,), F32), TensorType((2, 2), F32)]


def infer_t(graph: Graph) -> Value:
    return graph.add_input("t", TensorType((3, 2), F32))


def test_an_op_that_writes_returns_what_it_wrote_last() -> None:
    with torch.library._scoped_library("inference_test", "DEF") as library:
        library.define("fill(Tensor(a!) x, Tensor y) -> Tensor")
        library.impl("fill", lambda x, y: y + 1, "Meta")
        library.impl("fill", lambda x, y: y + 1, "CPU")
        graph = Graph()
        x, y = (
            graph.add_input("x", TensorType((2,), F32)),
            graph.add_input("y", TensorType((3,), torch.int64)),
        )

        found = infer(graph, "inference_test.fill.default", x, y)

    assert found == [TensorType((3,), torch.int64), TensorType((2,), F32)]


def test_an_op_without_results_has_no_types() -> None:
    graph = Graph()

    assert (
        infer(graph, "aten._assert_scalar.default", graph.add_input("b", ScalarType("bool")), "wrong") == []
    )


# Sizes and numbers


@pytest.fixture
def open_graph() -> Graph:
    graph = Graph()
    s0, s1 = graph.add_symbol("s0", Range(1, None)), graph.add_symbol("s1", Range(2, 64))
    graph.add_input("x", TensorType((s0, 8), F32))
    graph.add_input("y", TensorType((s1, 8), F32))
    graph.add_input("image", TensorType((s0, 3, s1 * 8, 32), F32))
    graph.add_input("n", ScalarType("int", s0 * 2))
    graph.add_input("unknown", ScalarType("int"))
    graph.add_input("f", ScalarType("float"))
    graph.add_input("padded", TensorType((call("max", s1, 4), 8), F32))
    graph.add_input("triples", TensorType((s1, 3), F32))
    graph.add_input("rounded", TensorType(((s1 + 1) // 2, 4), F32))
    return graph


def arguments(graph: Graph, text: str) -> Any:
    """Return what Python code says, with the inputs of the graph by name."""
    return eval(text, {"__builtins__": {}}, {value.name: value for value in graph.inputs})  # noqa: S307


@pytest.mark.parametrize(
    ("op_type", "args", "expected"),
    [
        ("aten.relu.default", "[x]", "f32[s0, 8]"),
        ("aten.add.Tensor", "[x, x]", "f32[s0, 8]"),
        ("aten.cat.default", "[[x, y], 0]", "f32[s0+s1, 8]"),
        ("aten.view.default", "[x, [-1]]", "f32[8*s0]"),
        ("aten.view.default", "[x, [4, -1]]", "f32[4, 2*s0]"),
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
        # an implementation is chosen by the batch size
        ("aten.conv2d.default", "[image, w]", "f32[s0, 4, 8*s1-2, 30]"),
        ("aten.max_pool2d_with_indices.default", "[image, [2, 2]]", "f32[s0, 3, 4*s1, 16]"),
        ("aten.layer_norm.default", "[x, [8]]", "f32[s0, 8]"),
    ],
)
def test_types_are_told_in_terms_of_the_symbols_of_the_graph(
    open_graph: Graph, op_type: str, args: str, expected: str
) -> None:
    open_graph.add_input("w", TensorType((4, 3, 3, 3), F32))
    (s1, _) = open_graph.value("y").tensor_type.shape
    open_graph.add_input("y_t", TensorType((8, s1), F32, (1, 8)))

    found = infer(open_graph, op_type, *arguments(open_graph, args))

    assert str(found[0]) == expected


@pytest.mark.parametrize(
    ("op_type", "args", "message"),
    [
        ("aten.add.Tensor", "[x, y]", "cannot be inferred: RuntimeError: The size of tensor a"),
        ("aten.view.default", "[x, [2, -1, 3]]", "cannot be inferred"),
        (
            "aten.view.default", "[x, [unknown, -1]]",
            "a size depends on data, or on a number that is not known"
        ),
        ("aten.nonzero.default", "[x]", "a size depends on data"),
        ("aten.squeeze.dim", "[x, 0]", r"for all sizes: f32\[8\] where s0 = 1"),
        ("aten.squeeze.dim", "[multiple, 0]", r"only where Eq|f32\[8\] where"),
        ("aten.chunk.default", "[y, 3]", "only where Eq"),
        ("aten.cross.default", "[triples, triples]", "only where Ne"),
        ("aten.relu_.default", "[x]", "changes a tensor in place: a graph is functional"),
        ("aten.mm.default", "[x, x]", "cannot be inferred: RuntimeError"),
    ],
)  # fmt: skip
def test_types_that_cannot_be_told_for_all_sizes_are_refused(
    open_graph: Graph, op_type: str, args: str, message: str
) -> None:
    (s1, _) = open_graph.value("y").tensor_type.shape
    open_graph.add_input("multiple", TensorType((s1 // 2, 8), F32))

    with pytest.raises(GraphError, match=message):
        infer(open_graph, op_type, *arguments(open_graph, args))


def test_another_range_of_a_symbol_is_another_question() -> None:
    told = []
    for low in (2, 1):
        graph = Graph()
        size = graph.add_symbol("s0", Range(low, 64))
        x = graph.add_input("x", TensorType((size, 8), F32))
        try:
            told.append(str(infer(graph, "aten.squeeze.dim", x, 0)[0]))
        except GraphError:
            told.append("refused")

    assert told == ["f32[s0, 8]", "refused"]


def test_an_op_that_only_has_an_executor_does_not_tell_its_types() -> None:
    register_executor("only_executed")(lambda inputs, attrs: inputs)
    try:
        with pytest.raises(GraphError, match=r"no operator only_executed to infer[^\0]*types="):
            infer_types("only_executed", [], {}, operands=None, symbols={})
    finally:
        unregister_executor("only_executed")


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
