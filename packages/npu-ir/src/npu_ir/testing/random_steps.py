"""Steps that random graphs grow by: each draws an op and its operands from what the graph has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_ir.core.node import Value
from npu_ir.core.types import TensorType
from npu_ir.errors import GraphError
from npu_ir.graph.graph import Graph
from npu_ir.ops.arguments import flatten_arguments
from npu_ir.ops.inference import infer_types
from npu_ir.ops.schema import find_op, schema_of
from npu_ir.symbolic.expressions import Expr

F32 = torch.float32
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
NUMBERS = (0, 1, 2, 0.0, 1.0, -0.0, 0.5, True, False)
LARGEST = 2048
# Returns one of the items that it is given.
Choose = Callable[[Sequence[Any]], Any]


class GraphGrowth:
    """A graph while it grows; ``choose`` makes every choice."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.graph = Graph("model")
        self.values: list[Value] = []

    def pick(self, *items: Any) -> Any:
        return self.choose(items)

    def tensor(self, *dtypes: torch.dtype, rank: int | None = None) -> Value:
        """Return a tensor of the graph."""
        found = [
            value
            for value in self.values
            if (not dtypes or value.tensor_type.dtype in dtypes)
            and (rank is None or value.tensor_type.rank == rank)
        ]
        if not found:
            raise GraphError("no such tensor")
        chosen: Value = self.choose(found)
        return chosen

    def call(self, op_type: str, *args: Any, **kwargs: Any) -> tuple[Value, ...]:
        """Add a node, as one would call the op."""
        schema = schema_of(find_op(op_type))
        flat = flatten_arguments(schema, args, kwargs, lambda item: isinstance(item, Value))
        types = infer_types(
            op_type, flat.inputs, flat.attrs, operands=flat.operands, symbols=self.graph.symbols
        )
        if any(isinstance(type, TensorType) and not _is_small(type) for type in types):
            raise GraphError("too large")
        node = self.graph.insert(op_type, flat.inputs, flat.attrs, types=types, operands=flat.operands)
        self.values += [value for value in node.outputs if isinstance(value.type, TensorType)]
        return node.outputs

    def weight(self, shape: Sequence[int], dtype: torch.dtype = F32) -> Value:
        name = f"w{len(self.graph.parameters) + len(self.graph.buffers)}"
        add = self.pick(self.graph.add_parameter, self.graph.add_buffer)
        value: Value = add(name, TensorType(tuple(shape), dtype))
        return value

    def constant(self, data: torch.Tensor) -> Value:
        return self.graph.add_constant(f"c{len(self.graph.constants)}", data)


def _is_small(type: TensorType) -> bool:
    numel = type.numel
    return not isinstance(numel, int) or numel <= LARGEST


def _unary(growing: GraphGrowth) -> None:
    name = growing.pick("relu", "sin", "neg", "sigmoid", "abs", "positive", "floor", "round")
    growing.call(f"aten.{name}.default", growing.tensor())


def _with_number(growing: GraphGrowth) -> None:
    name = growing.pick("add", "sub", "mul", "div", "floor_divide", "eq", "lt", "remainder")
    overload = (
        growing.pick("Tensor", "Scalar") if name != "floor_divide" else growing.pick("default", "Scalar")
    )
    alpha = {"alpha": growing.pick(0, 1, 2)} if name in ("add", "sub") and growing.pick(True, False) else {}
    growing.call(f"aten.{name}.{overload}", growing.tensor(), growing.pick(*NUMBERS), **alpha)


def _power(growing: GraphGrowth) -> None:
    growing.call("aten.pow.Tensor_Scalar", growing.tensor(), growing.pick(1, 1.0, 2))


def _with_tensor(growing: GraphGrowth) -> None:
    name = growing.pick("add", "sub", "mul", "div", "maximum", "pow")
    overload = {"maximum": "default", "pow": "Tensor_Tensor"}.get(name, "Tensor")
    alpha = {"alpha": growing.pick(1, 2)} if name in ("add", "sub") and growing.pick(True, False) else {}
    growing.call(f"aten.{name}.{overload}", growing.tensor(), growing.tensor(), **alpha)


def _with_constant(growing: GraphGrowth) -> None:
    name = growing.pick("add", "sub", "mul", "div", "pow")
    value = growing.tensor()
    shape = growing.pick((), (1,), (1, 1), value.tensor_type.shape)
    if not all(isinstance(size, int) for size in shape):
        shape = ()
    dtype = growing.pick(value.tensor_type.dtype, torch.float64, torch.int64)
    constant = growing.constant(torch.full(shape, growing.pick(0, 1, 2), dtype=dtype))
    pair = growing.pick((value, constant), (constant, value))
    growing.call(f"aten.{name}.{'Tensor_Tensor' if name == 'pow' else 'Tensor'}", *pair)


def _cast(growing: GraphGrowth) -> None:
    value, dtype = growing.tensor(), growing.pick(*DTYPES)
    which = growing.pick("dtype", "layout", "copy", "device", "prims")
    if which == "dtype":
        growing.call("aten.to.dtype", value, dtype, copy=growing.pick(True, False))
    elif which == "layout":
        device = torch.device("cpu")
        growing.call("aten.to.dtype_layout", value, dtype=dtype, layout=torch.strided, device=device)
    elif which == "copy":
        growing.call("aten._to_copy.default", value, dtype=dtype)
    elif which == "device":
        growing.call("aten.to.device", value, torch.device("cpu"), dtype)
    else:
        growing.call("prims.convert_element_type.default", value, dtype)


def _there_and_back(growing: GraphGrowth) -> None:
    value = growing.tensor()
    (wide,) = growing.call("aten.to.dtype", value, growing.pick(*DTYPES))
    growing.call("aten.to.dtype", wide, value.tensor_type.dtype)


def _dropout(growing: GraphGrowth) -> None:
    value = growing.tensor(torch.float16, torch.float32, torch.float64)
    name = growing.pick("dropout", "alpha_dropout", "native_dropout")
    probability, train = growing.pick((0.5, False), (0.0, True), (0.5, False), (0.5, True))
    growing.call(f"aten.{name}.default", value, probability, train)


def _copy(growing: GraphGrowth) -> None:
    name = growing.pick("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy", "contiguous")
    growing.call(f"aten.{name}.default", growing.tensor())


def _reshape(growing: GraphGrowth) -> None:
    value = growing.tensor()
    shape = growing.pick(list(value.tensor_type.shape), [-1], [1, -1], [-1, 1], [2, -1])
    if all(isinstance(size, int) for size in shape):
        name = growing.pick("view", "reshape", "_unsafe_view")
        growing.call(f"aten.{name}.default", value, shape)
    else:
        growing.call("aten.flatten.using_ints", value, growing.pick(0, -1), -1)


def _view(growing: GraphGrowth) -> None:
    value = growing.tensor()
    last = growing.pick(0, -1)
    op_type, args = growing.pick(
        ("aten.flatten.using_ints", (0, -1)),
        ("aten.unsqueeze.default", (last,)),
        ("aten.squeeze.dim", (last,)),
        ("aten.squeeze.default", ()),
        ("aten.transpose.int", (0, -1)),
        ("aten.transpose.int", (-1, -2)),
        ("aten.t.default", ()),
        ("aten.mT.default", ()),
        ("aten.movedim.int", (0, -1)),
        ("aten.permute.default", (list(range(value.tensor_type.rank))[::-1],)),
        ("aten.slice.Tensor", (last, 0, 9223372036854775807)),
        ("aten.slice.Tensor", (last, growing.pick(0, 1), growing.pick(1, 3, -1), growing.pick(1, 2))),
        ("aten.narrow.default", (last, 0, 1)),
        ("aten.expand.default", ([-1] * value.tensor_type.rank,)),
        ("aten.expand.default", ([2] + [-1] * value.tensor_type.rank,)),
        ("aten.select.int", (last, 0)),
    )
    growing.call(op_type, value, *args)


def _back_and_forth(growing: GraphGrowth) -> None:
    value = growing.tensor()
    if growing.pick(True, False):
        (turned,) = growing.call("aten.transpose.int", value, 0, -1)
        growing.call(growing.pick("aten.transpose.int", "aten.swapaxes.default"), turned, -1, 0)
    else:
        (longer,) = growing.call("aten.unsqueeze.default", value, -1)
        growing.call("aten.squeeze.dim", longer, -1)


def _part(growing: GraphGrowth) -> None:
    value, axis = growing.tensor(), growing.pick(0, -1)
    op_type, args = growing.pick(
        ("aten.split.Tensor", (growing.pick(1, 2, 100), axis)),
        ("aten.chunk.default", (growing.pick(1, 2), axis)),
        ("aten.unbind.int", (axis,)),
    )
    parts = growing.call(op_type, value, *args)
    if len(parts) > 1 and growing.pick(True, False):
        index = growing.pick(*range(len(parts)))
        node = growing.graph.insert(
            "<built-in function getitem>", parts, {"index": index}, types=parts[index].type
        )
        growing.values += node.outputs


def _join(growing: GraphGrowth) -> None:
    value = growing.tensor()
    rank = value.tensor_type.rank
    op_type, args = growing.pick(
        ("aten.cat.default", ([value], growing.pick(0, -1))),
        ("aten.cat.default", ([value, value], growing.pick(0, -1))),
        ("aten.stack.default", ([value, value], -1)),
        ("aten.repeat.default", (value, [1] * rank)),
        ("aten.repeat.default", (value, [2] + [1] * rank)),
        ("aten.constant_pad_nd.default", (value, growing.pick([0, 0], [1, -1], [0, 1]))),
        ("aten.where.self", (growing.tensor(torch.bool), value, value)),
        ("aten.copy.default", (value, growing.tensor())),
    )
    growing.call(op_type, *args)


def _reduction(growing: GraphGrowth) -> None:
    axis = growing.pick(-1, 0)
    op_type, args = growing.pick(
        ("aten.softmax.int", (axis,)),
        ("aten.sum.dim_IntList", ([axis], growing.pick(True, False))),
        ("aten.amax.default", ([axis],)),
        ("aten.max.dim", (axis,)),
        ("aten.sort.default", (axis,)),
        ("aten.cumsum.default", (axis,)),
    )
    dtypes = (F32, torch.float64) if op_type == "aten.softmax.int" else ()
    growing.call(op_type, growing.tensor(*dtypes), *args)


def _layer(growing: GraphGrowth) -> None:
    kind = growing.pick("linear", "conv", "norm", "layer_norm", "conv_norm", "conv_norm")
    if kind == "linear":
        value = growing.tensor(F32)
        features = _fixed(value.tensor_type.shape[-1:])
        growing.call("aten.linear.default", value, growing.weight((3, *features)), growing.weight((3,)))
    elif kind == "layer_norm":
        value = growing.tensor(F32)
        growing.call("aten.layer_norm.default", value, _fixed(value.tensor_type.shape[-1:]))
    else:
        value = growing.tensor(F32, rank=4)
        if kind != "norm":
            bias = growing.pick(None, growing.weight((4,)))
            kernel = growing.weight((4, *_fixed(value.tensor_type.shape[1:2]), 1, 1))
            (value,) = growing.call("aten.conv2d.default", value, kernel, bias)
        if kind != "conv":
            channels = _fixed(value.tensor_type.shape[1:2])
            weights = [growing.weight(channels) for _ in range(4)]
            growing.call("aten.batch_norm.default", value, *weights, False, 0.1, 1e-5, True)


def _fixed(sizes: Sequence[Any]) -> list[int]:
    if not sizes or any(isinstance(size, Expr) or size == 0 for size in sizes):
        raise GraphError("not fixed")
    return list(sizes)


def _size(growing: GraphGrowth) -> None:
    value = growing.tensor()
    (size,) = growing.call("aten.sym_size.int", value, growing.pick(0, -1))
    if growing.pick(True, False):
        (size,) = growing.call("operator.mul", size, growing.pick(1, 2))
    if growing.pick(True, False):
        growing.call("aten.add.Tensor", growing.tensor(), size)
    else:
        growing.call("aten.full.default", [size, 2], 1.0, dtype=F32, device=torch.device("cpu"))


def _again(growing: GraphGrowth) -> None:
    """Add a node that equals another one."""
    nodes = [node for node in growing.graph.nodes if node.outputs]
    if nodes:
        node = growing.pick(*nodes)
        types = [value.type for value in node.outputs]
        twin = growing.graph.insert(
            node.op_type, node.inputs, node.attrs, types=types, operands=node.operands, name=node.name
        )
        growing.values += [value for value in twin.outputs if isinstance(value.type, TensorType)]


STEPS: tuple[Callable[[GraphGrowth], None], ...] = (
    *(_unary, _with_number, _power, _with_tensor, _with_constant, _cast, _there_and_back, _dropout, _copy),
    *(_reshape, _view, _back_and_forth, _part, _join, _reduction, _layer, _layer, _size, _again),
)
