"""Sparse tensors: made, multiplied, returned."""

from __future__ import annotations

import torch
from torch import eye, ones, randn

from tests.support.corpus.case import Call, Table, call

CASES = Table()
function = CASES.function


def one() -> Call:
    return call(randn(4, 3).relu())


def more() -> list[Call]:
    return [call(ones(4, 3)), call(eye(4, 3))]


function("sparse_result", lambda x: x.to_sparse(), one, more_inputs=more)
function("sparse_product", lambda x: torch.sparse.mm(x.to_sparse(), x.T), one, more_inputs=more)
function("sparse_and_back", lambda x: (x.to_sparse() * 2).to_dense() + x, one, more_inputs=more)
function("sparse_sum", lambda x: torch.sparse.sum(x.to_sparse(), dim=0).to_dense(), one, more_inputs=more)
