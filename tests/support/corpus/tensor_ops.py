"""Operators by themselves: shape, concatenation, softmax, indexing, sorting, losses."""

import torch
from torch import rand, randint, randn, tensor
from torch.nn import functional as fn

from tests.support.corpus.case import Call, Table, call, floats

CASES = Table(floats((2, 3, 4)))
function = CASES.function


def positive() -> Call:
    return call(rand(2, 3) + 0.1)


# Shape

function("view", lambda x: x.view(6, -1), op="aten.view.default")
function("reshape", lambda x: x.transpose(0, 1).reshape(6, 4), op="aten.reshape.default")
function("permute", lambda x: x.permute(2, 0, 1), op="aten.permute.default")
function("transpose", lambda x: x.transpose(0, -1), op="aten.transpose.int")
function("flatten", lambda x: x.flatten(1), op="aten.flatten.using_ints")
function(
    "squeeze", lambda x: x.squeeze(1) + x.squeeze().unsqueeze(0), floats((1, 1, 3)), op="aten.squeeze.dim"
)
function("unsqueeze", lambda x: x.unsqueeze(-1), op="aten.unsqueeze.default")
function("expand", lambda x: x.expand(3, -1, 4), floats((2, 1)), op="aten.expand.default")
function("repeat", lambda x: x.repeat(2, 1, 1, 2), op="aten.repeat.default")
function("unflatten_movedim", lambda x: x.unflatten(2, (2, 2)).movedim(0, -1))
function("roll_flip_rot90", lambda x: x.roll((1, 2), (0, 2)).flip(1).rot90(1, (1, 2)))
function("tile_repeat_interleave", lambda x: x.tile(2).repeat_interleave(2, dim=0))
function("diagonal_tril_triu", lambda x: x.diagonal(dim1=1, dim2=2) + x.tril().triu(-1).sum())

# Concatenation and splitting

function("cat", lambda x, y: torch.cat([x, y, x], dim=1), floats((2, 3), (2, 1)), op="aten.cat.default")
function("stack", lambda x: torch.stack([x, x * 2], dim=-1), op="aten.stack.default")
function("split", lambda x: torch.split(x, [1, 3], dim=2), op="aten.split_with_sizes.default")
function("split_size", lambda x: x.split(2, dim=2)[1], op="aten.split.Tensor")
function("chunk", lambda x: x.chunk(3, dim=2), op="aten.chunk.default")
function("unbind_tensor_split", lambda x: (*x.unbind(1), *torch.tensor_split(x, (1, 2), dim=2)))

# Softmax

function("softmax", lambda x: x.softmax(-1), op="aten.softmax.int")
function("log_softmax", lambda x: x.log_softmax(1), op="aten.log_softmax.int")
function("logsumexp_softmin", lambda x: x.logsumexp((0, 1)) + fn.softmin(x, dim=-1))

# Indexing

function("select", lambda x: x[0, :, -1], op="aten.select.int")
function("slice", lambda x: x[:, 1:, ::2], op="aten.slice.Tensor")
function("index", lambda x, i: x[i], lambda: call(randn(4, 3), tensor([3, 0, 0])), op="aten.index.Tensor")
function("gather", lambda x, i: x.gather(1, i), lambda: call(randn(2, 4), randint(0, 4, (2, 3))),
    op="aten.gather.default")  # fmt: skip
function("scatter", lambda x, i: x.scatter(1, i, 5.0).scatter_add(1, i, x),
    lambda: call(randn(2, 4), randint(0, 4, (2, 3))))  # fmt: skip
function("index_ops",
    lambda x, i: (x.index_select(1, i), x.index_add(1, i, x), x.index_fill(0, i, -1), x.take(i)),
    lambda: call(randn(3, 3), tensor([2, 0, 1])))  # fmt: skip
function(
    "index_with_none", lambda x, i: x[:, i], lambda: call(randn(2, 4), tensor([3, 1])), op="aten.index.Tensor"
)
function("index_around_none", lambda x, i: x[i, :, i], lambda: call(randn(4, 2, 4), tensor([3, 1])),
    op="aten.index.Tensor")  # fmt: skip
function("index_with_new_axis", lambda x, i: x[None, i, ..., None, 0],
    lambda: call(randn(4, 2, 3), tensor([[3, 1]])))  # fmt: skip
function("index_with_lists", lambda x: x[[0, 1], [2, 0]])
function("take_along_dim", lambda x: torch.take_along_dim(x, x.argsort(1), 1))
function("masked_fill", lambda x: x.masked_fill(x > 0, -1e9).masked_fill(x < -1, x.sum()))
function("one_hot", lambda x: fn.one_hot(x, 5), lambda: call(tensor([0, 4, 2])))
function("narrow_slices", lambda x: x.narrow(2, 1, 2) + x[..., -2:])

# Others

function("sort", lambda x: torch.sort(x, dim=1, descending=True, stable=True), op="aten.sort.stable")
function("sort_values_only", lambda x: x.sort(-1).values, op="aten.sort.default")
function("topk", lambda x: x.topk(2, dim=1, largest=False), op="aten.topk.default")
function("histogram", lambda x: torch.histc(x, 4, -2, 2))
function("cdist_cosine", lambda x: torch.cdist(x, x) + fn.cosine_similarity(x, x, 2).sum())
function(
    "losses",
    lambda x, y: (
        fn.cross_entropy(x, y, label_smoothing=0.1),
        fn.nll_loss(x.log_softmax(1), y, reduction="sum"),
    ),
    lambda: call(randn(4, 3), tensor([0, 2, 1, 1])),
)
