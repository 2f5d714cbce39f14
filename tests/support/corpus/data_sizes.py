"""Results whose size depends on the content of tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import arange, ones, randint, randn, tensor, zeros

from tests.support.corpus.case import Call, Table, call

CASES = Table()
function = CASES.function


def one() -> Call:
    return call(randn(4, 3))


def others() -> list[Call]:
    """Return what gives other numbers of elements: all, and none."""
    return [call(ones(4, 3)), call(-ones(4, 3))]


function("nonzero", lambda x: x.relu().nonzero(), one, more_inputs=others, op="aten.nonzero.default")
function("nonzero_as_tuple", lambda x: (x > 0).nonzero(as_tuple=True), one, more_inputs=others)
function("boolean_mask", lambda x: x[x > 0], one, more_inputs=others, op="aten.index.Tensor")
function("boolean_mask_of_rows", lambda x: x[x[:, 0] > 0] * 2, one, more_inputs=others)
function("boolean_mask_and_its_size", lambda x: (x[x > 0].shape[0], x[x > 0].sum()), one, more_inputs=others)
function("masked_select", lambda x: x.masked_select(x > 0).sum(), one, more_inputs=others)
function("where_with_one_argument", lambda x: torch.where(x > 0), one, more_inputs=others)
function("argwhere", lambda x: torch.argwhere(x > 0) + 1, one, more_inputs=others)
function("mask_of_a_mask", lambda x: (lambda y: y[y < 1])(x[x > 0]), one, more_inputs=others)
function("two_masks_joined", lambda x: torch.cat([x[x > 0], x[x <= 0]]).view(4, 3), one, more_inputs=others)
function("mask_viewed", lambda x: x[x[:, 0] > 0].reshape(-1).view(-1, 3).sum(1), one, more_inputs=others)


def counts() -> Call:
    return call(randint(0, 4, (6,)))


def more_counts() -> list[Call]:
    return [call(arange(6)), call(zeros(6, dtype=torch.int64))]


function("unique", lambda x: torch.unique(x), counts, more_inputs=more_counts)
function(
    "unique_with_inverse_and_counts",
    lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    counts,
    more_inputs=more_counts,
)
function("unique_rows", lambda x: torch.unique(x.view(3, 2), dim=0), counts, more_inputs=more_counts)
function("unique_consecutive", lambda x: torch.unique_consecutive(x), counts, more_inputs=more_counts)
function("bincount", lambda x: x.bincount(), counts, more_inputs=more_counts)
function(
    "bincount_with_weights",
    lambda x: x.bincount(x.float() * 0.5, minlength=3),
    counts,
    more_inputs=more_counts,
)
function("repeat_by_an_input", lambda x: x.repeat_interleave(x), counts, more_inputs=more_counts)
function("repeat_by_a_constant", lambda x: x.repeat_interleave(tensor([1, 2, 0, 1]), dim=0), one)
function("size_by_an_element", lambda x: zeros(x[0].item(), 2), counts, more_inputs=more_counts)
function("range_to_an_element", lambda x: arange(x.max().item()) * 2, counts, more_inputs=more_counts)


@CASES.add(counts, more_inputs=more_counts)
def slice_to_an_element(x: Any) -> Any:
    end = x.max().item()
    torch._check(end >= 0)
    torch._check(end <= x.shape[0])
    return x[:end], x[end:].sum()


@CASES.add(counts, more_inputs=more_counts)
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
