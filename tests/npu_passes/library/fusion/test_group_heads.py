"""Attention takes grouped keys and values as they are, where a model repeats them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir import extract_ir
from npu_passes import PassManager
from npu_passes.library.fusion.group_heads import GroupHeads
from npu_passes.testing import check_pass
from tests.support.corpus.case import Function
from tests.support.passes.pattern_cases import op_types, reasons
from tests.support.rows import each_row

DTYPES = [torch.float32, torch.bfloat16]


def repeat(x: Tensor, count: int) -> Tensor:
    batch, groups, rows, size = x.shape
    return x[:, :, None].expand(batch, groups, count, rows, size).reshape(batch, groups * count, rows, size)


def tensors(keys: int = 2, values: int = 2, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, heads, rows, 8).to(dtype) for heads, rows in ((4, 5), (keys, 7), (values, 7)))


def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, **options)


@each_row("dtype", DTYPES)
@each_row(
    "options",
    [{}, {"scale": 0.3}, {"is_causal": True}, {"attn_mask": torch.arange(35).reshape(5, 7) % 3 != 0}],
)
def test_keys_and_values_are_not_repeated(options: dict[str, Any], dtype: torch.dtype) -> None:
    inputs = tensors(dtype=dtype)
    graph = extract_ir(Function(lambda q, k, v: attend(q, repeat(k, 2), repeat(v, 2), **options)), inputs)

    assert check_pass(GroupHeads, graph) == 1

    found = PassManager([GroupHeads, "dead-code"]).run(graph).graph
    assert op_types(found) == ["scaled_dot_product_attention.default"]


@each_row(
    "function",
    {
        "nothing repeated": lambda q, k, v: attend(q, torch.cat([k, k], 1), torch.cat([v, v], 1)),
        "keys alone": lambda q, k, v: attend(q, repeat(k, 2), torch.cat([v, v], 1)),
        "whole turns": lambda q, k, v: attend(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)),
        "along another axis": lambda q, k, v: attend(
            q, *[x[:, None].expand(2, 2, 2, 7, 8).reshape(2, 4, 7, 8) for x in (k, v)]
        ),
    },
)
def test_other_keys_and_values_stay(function: Any) -> None:
    assert check_pass(GroupHeads, extract_ir(Function(function), tensors())) == 0


def test_keys_and_values_of_different_groups_are_refused() -> None:
    model = Function(lambda q, k, v: attend(q, repeat(k, 2), repeat(v, 4)))

    result = PassManager([GroupHeads]).run(extract_ir(model, tensors(2, 1)))

    assert reasons(result) == ["%args_1 and %args_2 have other heads"]
