"""Models that have no place in a graph, or that torch.export cannot capture; and what the error says."""

from __future__ import annotations

import collections
import functools

import torch
from torch import nn, randn
from torch._higher_order_ops.out_dtype import out_dtype

from npu_ir import ExportError
from tests.support.corpus import operator_library  # noqa: F401 - defines ops
from tests.support.corpus.case import Call, Refusals, call
from tests.support.corpus.containers import ModelOutput

REFUSED = Refusals()
refuse = REFUSED.add

# Decisions by content

refuse(
    "branch_on_data",
    lambda x: x + 1 if x.sum() > 0 else x,
    (
        r"torch.export cannot capture \w+: .*data-dependent[\s\S]*at: .*refused\.py:\d+\n"
        r"[\s\S]*choose by torch.where"
    ),
    error=ExportError,
)
refuse("loop_over_data", lambda x: sum(x for _ in range(int(x[0, 0]))), r"cannot capture .*data-dependent",
    error=ExportError)  # fmt: skip
refuse("assert_on_data", lambda x: x if bool((x > -100).all()) else -x, r"cannot capture", error=ExportError)

# What runs code of another kind, or takes an operator as an argument

refuse(
    "an_operator_as_an_argument",
    lambda x: out_dtype(torch.ops.aten.mul.Tensor, torch.int32, x, 2),
    (
        r"out_dtype takes an operator as an argument[\s\S]*at: node 'out_dtype', "
        r".*case\.py:\d+[\s\S]*call the operator"
    ),
    lambda: call(torch.ones(3, dtype=torch.int8)),
)

# What torch.export refuses

refuse("a_dtype_returned", lambda x: (x, x.dtype), r"cannot capture|no place", error=ExportError)
refuse("shapes_that_do_not_fit", lambda x: x @ x, r"cannot capture .*reduction dim", error=ExportError)
refuse("numpy_in_forward", lambda x: torch.from_numpy(x.numpy() * 2), r"cannot capture", error=ExportError)
refuse("an_object_returned", lambda x: object(), r"not a known type[\s\S]*return tensors, numbers and",
    error=ExportError)  # fmt: skip
refuse("nan_returned", lambda x: (x, float("nan")), r"cannot capture .*nan", error=ExportError)
refuse("a_dtype_passed", lambda x, d: x.to(d),
    r"Unsupported input type[\s\S]*pass tensors, numbers, strings", lambda: call(randn(2), torch.float64),
    ExportError)  # fmt: skip
refuse("container_without_key_paths", lambda x: x["a"], r"flatten_with_keys_fn",
    lambda: call(ModelOutput(a=randn(2))), ExportError)  # fmt: skip
refuse("wrong_arguments", lambda x: x, r"cannot capture .*argument 'y'", lambda: call(randn(2), y=randn(2)),
    ExportError)  # fmt: skip
refuse("batch_norm_with_cumulative_average", lambda: nn.BatchNorm1d(3, momentum=None), r"data-dependent",
    error=ExportError)  # fmt: skip
refuse("mask_checked_for_causality", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 1, 4), 1),
    r"data-dependent",
    lambda: call(randn(3, 1, 4), randn(3, 1, 4), tgt_mask=nn.Transformer.generate_square_subsequent_mask(3)),
    ExportError)  # fmt: skip

# What a graph has no place for

refuse("dict_with_object_keys", lambda x: {Key(): x}, r"not plain data")
refuse(
    "defaultdict_of_a_lambda", lambda x: collections.defaultdict(lambda: 1, a=x), r"cannot be written down"
)
refuse("input_transposed_in_place", lambda x: x.t_(), r"changes the shape or strides of 'args_0'")
refuse("input_transposed_by_way_of_an_op_that_returns_it", lambda x: x.add_(1).t_(),
    r"aten\.t_\.default changes the shape or strides of 'args_0'[\s\S]*take a view of it")  # fmt: skip
refuse("input_resized", lambda x: x.resize_(2, 2), r"changes the shape|cannot")


refuse("gradient_by_torch_func", lambda x: torch.func.grad(lambda y: (y**2).sum())(x),
    r"a tensor that torch.func differentiates")  # fmt: skip
refuse("a_generator_of_its_own", lambda x: x + torch.rand(3, generator=torch.Generator()),
    r"rand draws from a torch.Generator[\s\S]*at: .*refused\.py:\d+[\s\S]*leave generator= out")  # fmt: skip
refuse("a_generator_as_an_input", lambda x, g: x.bernoulli(0.5, generator=g),
    r"bernoulli draws from a torch.Generator[\s\S]*at: .*refused\.py:\d+[\s\S]*leave generator= out",
    lambda: call(torch.ones(3), torch.Generator()))  # fmt: skip
refuse("an_unread_generator_as_an_input", lambda x, g: x,
    r"input 'args_1' is an object of class .*Generator[\s\S]*pass tensors and numbers",
    lambda: call(torch.ones(3), torch.Generator()))  # fmt: skip


refuse(
    "a_custom_op_that_returns_what_it_writes",
    lambda x: torch.ops.corpus_schema.turn_(x * 2),
    r"corpus_schema.turn_.default returns the tensor that it changes[\s\S]*\.py:\d+[\s\S]*return nothing",
)


def mixed(*shapes: tuple[int, ...]) -> Call:
    """Return tensors of these shapes, the first of which is half as wide."""
    first, *others = (torch.randn(shape) for shape in shapes)
    return call(first.half(), *others)


MIXED = (
    r"does not take tensors of these dtypes together: [\s\S]*fix: cast in forward, as "
    r"in x\.to\(weight\.dtype\)"
)
for name, function, shapes in (
    ("linear", lambda *args: nn.functional.linear(*args), ((2, 3), (4, 3), (4,))),
    ("bias", lambda b, x, w: torch.addmm(b, x, w), ((4,), (2, 3), (3, 4))),
    ("matmul", lambda x, y: x @ y, ((5, 2, 3), (3, 4))),
    ("conv1d", lambda x, w: nn.functional.conv1d(x, w), ((1, 3, 9), (4, 3, 2))),
    ("index_put", lambda s, x: x.index_put((torch.tensor([1]),), s), ((1,), (3,))),
):
    refuse(f"half_by_float_{name}", function, MIXED, functools.partial(mixed, *shapes))


# Tensors of other kinds

refuse(
    "a_quantized_input",
    lambda x: x.dequantize(),
    (
        r"args\[0\] is a quantized tensor, which torch.export does not take\n  at: Function\n"
        r"  fix: pass dequantize\(\)"
    ),
    lambda: call(torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.quint8)),
    ExportError,
)
refuse("a_nested_input", lambda x: x * 2,
    r"args\[0\] is a nested tensor, which torch.export does not take[\s\S]*values\(\) and offsets\(\)",
    lambda: call(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)),
    ExportError)  # fmt: skip
refuse("an_input_of_onednn", lambda x: x.to_dense(),
    r"args\[0\] is a oneDNN tensor, which torch.export does not take[\s\S]*pass to_dense\(\)",
    lambda: call(torch.ones(3).to_mkldnn()), ExportError)  # fmt: skip
refuse(
    "quantized_in_forward",
    lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize(),
    r"aten.quantize_per_tensor.default makes a quantized tensor[\s\S]*case\.py:\d+[\s\S]*integers and scales",
)
for name, read in {
    "values": lambda s: s.values(),
    "indices": lambda s: s._indices(),
    "count": lambda s: torch.ones(3) * s._nnz(),
    "order": lambda s: torch.ones(3) * s.is_coalesced(),
}.items():
    refuse(f"stored_{name}_of_a_sparse_input", read,
        r"of a sparse tensor depends on the items that it stores[\s\S]*at: .*refused\.py:\d+[\s\S]*to_dense",
        lambda: call(torch.eye(3).to_sparse().coalesce()))  # fmt: skip
refuse("a_sparse_input_changed", lambda x: x.mul_(2),
    r"aten.mul_.Tensor changes a tensor of layout sparse_coo in place[\s\S]*compute a new one",
    lambda: call(torch.eye(3).to_sparse()))  # fmt: skip


class QuantizedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.quint8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table.dequantize() * x


refuse("a_quantized_buffer", QuantizedWeights, r"table is a quantized tensor[\s\S]*QuantizedWeights",
    error=ExportError)  # fmt: skip


class Key:
    """Not plain data."""
