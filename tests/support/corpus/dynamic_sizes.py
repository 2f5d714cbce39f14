"""Models captured with sizes left open, executed at others."""

from typing import Any

import torch
from torch import nn, ones, randint, randn
from torch.export import Dim
from torch.nn import functional as fn

from tests.support.corpus.case import Call, Table, call, floats

CASES = Table(floats((4, 6)))
image = floats((2, 3, 8, 8))
function = CASES.function
batch = Dim("batch", min=2, max=64)
length = Dim("length", min=2, max=64)
half = Dim("half", min=1, max=32)
ROWS = {0: batch}


def others() -> list[Call]:
    return [call(randn(7, 6)), call(randn(64, 6))]


rows = CASES.given(CASES.inputs, more_inputs=others, dynamic_shapes=(ROWS,))
automatic = CASES.given(CASES.inputs, more_inputs=others, dynamic_shapes=({0: Dim.AUTO},))


# How sizes are said to be open

rows.function("batch_by_name", lambda x: x.relu() + 1)
automatic.function("batch_by_auto", lambda x: x.relu() + 1)
function("batch_by_dynamic", lambda x: x * 2, more_inputs=others, dynamic_shapes=({0: Dim.DYNAMIC},))
function("batch_in_a_tuple", lambda x: x * 2, more_inputs=others, dynamic_shapes=((batch, None),))
function("batch_by_hint", lambda x: x * 2, more_inputs=others, dynamic_shapes=({0: Dim.AUTO, 1: Dim.STATIC},))
function("sizes_of_nested_inputs", lambda tree: tree["a"] + tree["b"][0],
    lambda: call({"a": randn(3, 2), "b": [randn(3, 2)]}),
    more_inputs=lambda: [call({"a": randn(5, 2), "b": [randn(5, 2)]})],
    dynamic_shapes=({"a": ROWS, "b": [ROWS]},))  # fmt: skip
function("two_sizes_with_a_name_each", lambda x, y: x @ y.t(), floats((3, 2), (4, 2)),
    more_inputs=lambda: [call(randn(8, 2), randn(3, 2)), call(randn(5, 2), randn(5, 2))],
    dynamic_shapes=({0: batch}, {0: length}))  # fmt: skip
function("two_sizes_that_must_be_equal", lambda x, y: x + y, floats((3, 2), (3, 2)),
    more_inputs=lambda: [call(randn(8, 2), randn(8, 2))],
    dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))  # fmt: skip
function("size_twice_another", lambda x, y: x.view(-1, 2, 3).sum(1) + y, floats((6, 3), (3, 3)),
    more_inputs=lambda: [call(randn(10, 3), randn(5, 3))],
    dynamic_shapes=({0: 2 * half}, {0: half}))  # fmt: skip
function("size_one_more_than_another", lambda x, y: x[1:] - y, floats((5, 3), (4, 3)),
    more_inputs=lambda: [call(randn(9, 3), randn(8, 3))],
    dynamic_shapes=({0: length + 1}, {0: length}))  # fmt: skip
function("size_with_a_constraint", lambda x: x.view(-1, 2, 6).sum(1),
    more_inputs=lambda: [call(randn(8, 6))], dynamic_shapes=({0: Dim.AUTO},))  # fmt: skip
automatic.function("branch_by_size", lambda x: x + 1 if x.shape[0] > 3 else x - 1)

# Shapes

rows.function("flatten_dynamic", lambda x: x.flatten())
rows.function("view_with_minus_one", lambda x: x.view(-1, 2))
automatic.function("cat_with_itself", lambda x: torch.cat([x, x[1:], x]))
automatic.function("slices", lambda x: (x[1:], x[:-1], x[::2], x[-2:]))
rows.function("transpose_dynamic", lambda x: x.t().contiguous())
rows.function("pad_dynamic", lambda x: fn.pad(x, (1, 1, 2, 0)))
rows.function("chunk_dynamic", lambda x: x.t().chunk(3))
rows.function("stack_dynamic", lambda x: torch.stack([x, x + 1], 1))
rows.function("flip_dynamic", lambda x: x.flip(0).cumsum(0))
rows.function("unfold_dynamic", lambda x: x.unfold(0, 2, 1))
rows.function("mean_of_rows", lambda x: x.mean(0) + x.var(0))
rows.function("softmax_dynamic", lambda x: x.softmax(0))
rows.function("outer_product", lambda x: x[:, None] * x[None])
rows.function(
    "causal_mask_of_any_length",
    lambda x: torch.ones(x.shape[0], x.shape[0]).tril().masked_fill(torch.eye(x.shape[0]) > 0, 5.0) @ x,
)


# Layers and small models


CASES.module(
    "convolution_of_any_size",
    lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    ).eval(),
    image,
    more_inputs=lambda: [call(randn(3, 3, 11, 9)), call(randn(5, 3, 8, 8))],
    dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},),
)
CASES.module("pooling_of_any_size", lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2)), image,
    more_inputs=lambda: [call(randn(2, 3, 13, 9))],
    dynamic_shapes=({2: Dim.AUTO, 3: Dim.AUTO},))  # fmt: skip
function("interpolate_by_factor", lambda x: fn.interpolate(x, scale_factor=1.5), image,
    more_inputs=lambda: [call(randn(2, 3, 7, 8))], dynamic_shapes=({2: Dim.AUTO},))  # fmt: skip
function("channels_last_image", lambda x: fn.avg_pool2d(x, 2) * 2,
    lambda: call(randn(2, 3, 8, 8).to(memory_format=torch.channels_last)),
    more_inputs=lambda: [call(randn(4, 3, 8, 6).to(memory_format=torch.channels_last))],
    dynamic_shapes=({0: Dim.AUTO, 3: Dim.AUTO},))  # fmt: skip
rows.module(
    "linear_of_any_batch", lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 2))
)
CASES.module("embedding_of_any_length", lambda: nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4)),
    lambda: call(randint(0, 10, (2, 5))), more_inputs=lambda: [call(randint(0, 10, (3, 2)))],
    dynamic_shapes=({0: batch, 1: length},))  # fmt: skip


@CASES.add(
    floats((2, 5, 8)),
    holding=lambda: {"project": nn.Linear(8, 24)},
    more_inputs=lambda: [call(randn(3, 7, 8)), call(randn(2, 2, 8))],
    dynamic_shapes=({0: batch, 1: length},),
)
def attention_of_any_length(self: Any, x: Any) -> Any:
    size, steps, width = x.shape
    parts = self.project(x).view(size, steps, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
    mixed = fn.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
    return mixed.transpose(1, 2).reshape(size, steps, width)


@rows.add(holding=lambda: {"seen": torch.zeros(6), "rows": torch.zeros((), dtype=torch.int64)})
def state_updated_by_any_batch(self: Any, x: Any) -> Any:
    self.seen.add_(x.sum(0))
    self.rows += x.shape[0]
    return x - self.seen / self.rows


@CASES.add(more_inputs=others, dynamic_shapes=({0: Dim("rows", min=3)},))
def input_of_any_size_changed_in_place(x: Any) -> Any:
    x[1:] += x.shape[0]
    return x.sum()


function("transposed_input", lambda x: (x * 2, x.contiguous()), lambda: call(ones(3, 4).t()),
    more_inputs=lambda: [call(randn(5, 4).t())], dynamic_shapes=({1: Dim.AUTO},))  # fmt: skip
