"""Pooling, embedding and image layers by themselves."""

import torch
from torch import nn, randint
from torch.nn import functional as fn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((1, 2, 4, 4)))
function, module = CASES.function, CASES.module

# Pooling

function("max_pool2d", lambda x: fn.max_pool2d(x, 2, ceil_mode=True), floats((1, 2, 5, 5)),
    op="aten.max_pool2d.default")  # fmt: skip
function("max_pool2d_indices", lambda x: fn.max_pool2d(x, 2, return_indices=True))
function("max_unpool2d", lambda x: fn.max_unpool2d(*fn.max_pool2d(x, 2, return_indices=True), 2))
function("avg_pool2d", lambda x: fn.avg_pool2d(x, 2, divisor_override=3), op="aten.avg_pool2d.default")
function("avg_pool1d", lambda x: fn.avg_pool1d(x, 3, padding=1, count_include_pad=False), floats((1, 2, 6)))
function("adaptive_avg_pool2d", lambda x: fn.adaptive_avg_pool2d(x, (2, None)), floats((1, 2, 5, 4)),
    op="aten.adaptive_avg_pool2d.default")  # fmt: skip
function("adaptive_max_pool2d", lambda x: fn.adaptive_max_pool2d(x, 2), floats((1, 2, 5, 4)),
    op="aten.adaptive_max_pool2d.default")  # fmt: skip
function("lp_pool2d", lambda x: fn.lp_pool2d(x.abs(), 2.0, 2))

# Embedding

module("embedding", lambda: nn.Embedding(10, 4, padding_idx=0), lambda: call(randint(0, 10, (2, 3))),
    op="aten.embedding.default")  # fmt: skip
module("embedding_bag", lambda: nn.EmbeddingBag(10, 4, mode="mean"),
    lambda: call(randint(0, 10, (6,)), torch.tensor([0, 2, 6 - 1])))  # fmt: skip

# Images

function("interpolate_nearest", lambda x: fn.interpolate(x, size=(5, 7)))
function("pixel_shuffle", lambda x: fn.pixel_unshuffle(fn.pixel_shuffle(x, 2), 2), floats((1, 4, 3, 3)))
function("unfold_fold", lambda x: fn.fold(fn.unfold(x, 2), (4, 4), 2))
function("pad_modes", lambda x: fn.pad(fn.pad(x, (1, 2), value=3.0), (1, 1, 1, 1), mode="replicate"))
