"""Results whose size depends on the content of tensors."""

from typing import Any

import torch
from torch import arange, ones, randint, randn, tensor, zeros

from tests.support.corpus.case import Call, Table, call, floats

CASES = Table(floats((4, 3)))
function = CASES.function


def others() -> list[Call]:
    """Return what gives other numbers of elements: all, and none."""
    return [call(ones(4, 3)), call(-ones(4, 3))]


masked = CASES.given(CASES.inputs, more_inputs=others)


masked.function("nonzero", lambda x: x.relu().nonzero(), op="aten.nonzero.default")
masked.function("nonzero_as_tuple", lambda x: (x > 0).nonzero(as_tuple=True))
masked.function("boolean_mask", lambda x: x[x > 0], op="aten.index.Tensor")
masked.function("boolean_mask_of_rows", lambda x: x[x[:, 0] > 0] * 2)
masked.function("boolean_mask_and_its_size", lambda x: (x[x > 0].shape[0], x[x > 0].sum()))
masked.function("masked_select", lambda x: x.masked_select(x > 0).sum())
masked.function("where_with_one_argument", lambda x: torch.where(x > 0))
masked.function("argwhere", lambda x: torch.argwhere(x > 0) + 1)
masked.function("mask_of_a_mask", lambda x: (lambda y: y[y < 1])(x[x > 0]))
masked.function("two_masks_joined", lambda x: torch.cat([x[x > 0], x[x <= 0]]).view(4, 3))
masked.function("mask_viewed", lambda x: x[x[:, 0] > 0].reshape(-1).view(-1, 3).sum(1))


def counts() -> Call:
    return call(randint(0, 4, (6,)))


def more_counts() -> list[Call]:
    return [call(arange(6)), call(zeros(6, dtype=torch.int64))]


counted = CASES.given(counts, more_inputs=more_counts)


counted.function("unique", lambda x: torch.unique(x))
counted.function(
    "unique_with_inverse_and_counts", lambda x: torch.unique(x, return_inverse=True, return_counts=True)
)
counted.function("unique_rows", lambda x: torch.unique(x.view(3, 2), dim=0))
counted.function("unique_consecutive_rows", lambda x: torch.unique_consecutive(x.view(3, 2), dim=0))
masked.function("masked_select_by_rows", lambda x: torch.masked_select(torch.stack([x, x]), x > 0))
counted.function("unique_consecutive", lambda x: torch.unique_consecutive(x))
counted.function("bincount", lambda x: x.bincount())
counted.function("bincount_with_weights", lambda x: x.bincount(x.float() * 0.5, minlength=3))
counted.function("repeat_by_an_input", lambda x: x.repeat_interleave(x))
function("repeat_by_a_constant", lambda x: x.repeat_interleave(tensor([1, 2, 0, 1]), dim=0))
counted.function("size_by_an_element", lambda x: zeros(x[0].item(), 2))
counted.function("range_to_an_element", lambda x: arange(x.max().item()) * 2)


@counted.add()
def slice_to_an_element(x: Any) -> Any:
    end = x.max().item()
    torch._check(end >= 0)
    torch._check(end <= x.shape[0])
    return x[:end], x[end:].sum()


@counted.add()
def row_chosen_by_an_element(x: Any) -> Any:
    index = x[1].item()
    torch._check(index >= 0)
    torch._check(index < 6)
    return x.select(0, index), torch.narrow(x, 0, index, 1)


@CASES.add(lambda: call(tensor([2, 1, 3])), more_inputs=lambda: [call(tensor([1, 1, 4]))])
def split_by_elements(x: Any) -> Any:
    first, second, third = x.tolist()
    torch._check(first + second + third == 6)
    return [part * 2 for part in arange(6).split([first, second, third])]


@CASES.add(
    lambda: call(randn(5, 2), tensor([1, 0, 1, 1, 0]).bool()),
    more_inputs=lambda: [call(randn(7, 2), torch.ones(7).bool())],
    dynamic_shapes=({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}),
)
def mask_of_a_dynamic_batch(x: Any, keep: Any) -> Any:
    kept = x[keep]
    return kept, x.shape[0] - kept.shape[0]
