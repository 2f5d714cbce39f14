"""Models that have no place in a graph, or that torch.export cannot capture; and what the error says."""

from __future__ import annotations

import collections

import torch
from torch import nn, randn, tensor

from npu_ir import ExportError, NpuError
from tests.npu_ir.corpus.case import Refusals, call
from tests.npu_ir.corpus.containers import ModelOutput

REFUSED = Refusals()
refuse = REFUSED.add

# Sizes and numbers that depend on data

refuse(
    "nonzero",
    lambda x: x.nonzero(),
    r"aten.nonzero.default returns a tensor of shape \[u0, 2\]: dimension 0 is symbolic",
)
refuse("boolean_mask", lambda x: x[x > 0], r"aten.index.Tensor returns .*dimension 0 is symbolic")
refuse("masked_select", lambda x: x.masked_select(x > 0).sum(), r"dimension 0 is symbolic")
refuse("where_with_one_argument", lambda x: torch.where(x > 0), r"is symbolic")
refuse("unique", lambda x: torch.unique(x), r"is symbolic")
refuse("repeat_by_tensor", lambda x: x.repeat_interleave(tensor([1, 2, 0, 1]), dim=0), r"is symbolic")
refuse("item_returned", lambda x: x.sum().item(), r"returns the number .*, which is known only at run time")
refuse("item_in_arithmetic", lambda x: x * x.max().item(), r"known only at run time")
refuse("item_as_size", lambda x: torch.ones(x.long().max().item()), r"known only at run time|is symbolic")
refuse("tolist", lambda x: x[0].tolist(), r"known only at run time")
refuse("source_line_is_named", lambda x: x.nonzero(), r"at: node 'nonzero', .*case\.py:\d+")
refuse("a_fix_is_named", lambda x: x.nonzero(), r"replace ops whose result size depends on data")

# Control flow

refuse(
    "cond",
    lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)),
    r"control-flow op cond has no place in a graph yet",
)
refuse(
    "while_loop",
    lambda x: torch._higher_order_ops.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (tensor(0), x)
    ),
    r"control-flow op while_loop",
)
refuse(
    "scan",
    lambda x: torch._higher_order_ops.scan(lambda a, b: (a + b, a * b), x[0], x),
    r"control-flow op scan",
)
refuse("map", lambda x: torch._higher_order_ops.map(lambda row: row * 2, x), r"control-flow op map")
refuse(
    "branch_on_data",
    lambda x: x + 1 if x.sum() > 0 else x,
    r"torch.export cannot capture \w+: .*data-dependent[\s\S]*choose by torch.where",
    error=ExportError,
)
refuse(
    "loop_over_data",
    lambda x: sum(x for _ in range(int(x[0, 0]))),
    r"cannot capture .*data-dependent",
    error=ExportError,
)
refuse("assert_on_data", lambda x: x if bool((x > -100).all()) else -x, r"cannot capture", error=ExportError)

# What torch.export refuses

refuse("a_dtype_returned", lambda x: (x, x.dtype), r"cannot capture|no place", error=ExportError)
refuse("shapes_that_do_not_fit", lambda x: x @ x, r"cannot capture .*reduction dim", error=ExportError)
refuse("numpy_in_forward", lambda x: torch.from_numpy(x.numpy() * 2), r"cannot capture", error=ExportError)
refuse(
    "an_object_returned",
    lambda x: object(),
    r"not a known type[\s\S]*return tensors, numbers and",
    error=ExportError,
)
refuse("nan_returned", lambda x: (x, float("nan")), r"cannot capture .*nan", error=ExportError)
refuse(
    "a_dtype_passed",
    lambda x, d: x.to(d),
    r"Unsupported input type[\s\S]*pass tensors, numbers, strings",
    lambda: call(randn(2), torch.float64),
    ExportError,
)
refuse(
    "container_without_key_paths",
    lambda x: x["a"],
    r"flatten_with_keys_fn",
    lambda: call(ModelOutput(a=randn(2))),
    ExportError,
)
refuse("wrong_arguments", lambda x: x, r"cannot capture", lambda: call(randn(2), y=randn(2)), ExportError)
refuse(
    "batch_norm_with_cumulative_average",
    lambda: nn.BatchNorm1d(3, momentum=None),
    r"data-dependent",
    error=ExportError,
)
refuse(
    "mask_checked_for_causality",
    lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 1, 4), 1),
    r"data-dependent",
    lambda: call(randn(3, 1, 4), randn(3, 1, 4), tgt_mask=nn.Transformer.generate_square_subsequent_mask(3)),
    ExportError,
)

# What a graph has no place for

refuse("sparse_result", lambda x: x.to_sparse(), r"layout torch.sparse_coo")
refuse("sparse_product", lambda x: torch.sparse.mm(x.to_sparse(), x.T), r"layout torch.sparse_coo")
refuse("dict_with_object_keys", lambda x: {Key(): x}, r"not plain data")
refuse(
    "defaultdict_of_a_lambda", lambda x: collections.defaultdict(lambda: 1, a=x), r"cannot be written down"
)
refuse("input_transposed_in_place", lambda x: x.t_(), r"changes the shape or strides of 'args_0'")
refuse("input_resized", lambda x: x.resize_(2, 2), r"changes the shape|cannot")


refuse(
    "gradient_by_torch_func",
    lambda x: torch.func.grad(lambda y: (y**2).sum())(x),
    r"a tensor that torch.func differentiates",
)
refuse(
    "a_generator_of_its_own",
    lambda x: x + torch.rand(3, generator=torch.Generator()),
    r"cannot capture|CustomObj",
    error=NpuError,
)


class Key:
    """Not plain data."""
