"""Sparse tensors: made, multiplied, returned."""

import torch
from torch import eye, ones, randn

from tests.support.corpus.case import Call, Table, call


def one() -> Call:
    return call(randn(4, 3).relu())


def more() -> list[Call]:
    return [call(ones(4, 3)), call(eye(4, 3))]


CASES = Table(one, more_inputs=more)
function = CASES.function


function("sparse_result", lambda x: x.to_sparse())
function("sparse_product", lambda x: torch.sparse.mm(x.to_sparse(), x.T))
function("sparse_and_back", lambda x: (x.to_sparse() * 2).to_dense() + x)
function("sparse_sum", lambda x: torch.sparse.sum(x.to_sparse(), dim=0).to_dense())
