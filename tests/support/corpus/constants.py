"""Tensors made in forward: their content is part of the graph, on ``meta`` too."""

import math
from typing import Any

import numpy
import torch
from torch import arange, nn, tensor

from tests.support.corpus.case import Table, floats

CASES = Table(floats((3, 4)))
function, module = CASES.function, CASES.module


function("constant_scalar", lambda x: x * tensor(3.0))
function("constant_list", lambda x: x + tensor([1.0, 2.0, 3.0, 4.0]))
function("constant_nested_list", lambda x: x @ tensor([[1.0, 0.0], [0.5, 0.25], [2, 3], [4, 5]]))
function("constant_of_each_number_type", lambda x: (tensor(True), tensor(3), tensor(2.5), tensor(1 + 2j), x))
function("constant_of_numpy_array", lambda x: x + torch.from_numpy(numpy.arange(4, dtype=numpy.float32)))
function("constant_as_tensor", lambda x: x + torch.as_tensor([1.0, 2.0, 3.0, 4.0]) + torch.asarray(2))
function(
    "constant_larger_than_the_text_shows", lambda x: x[:1, :1] + tensor([[float(i) for i in range(100)]])
)
function("constant_empty", lambda x: torch.cat([x, tensor([]).reshape(0, 4)]))
function("constant_with_a_size_of_zero", lambda x: (torch.zeros(2, 0, 4), tensor([[], []]), x))
function("constant_nan_and_infinity",
    lambda x: torch.where(x > 0, tensor(float("-inf")), tensor([math.nan, math.inf, -0.0, 1.0])))  # fmt: skip
function("constant_used_twice", lambda x: (lambda t: x * t + t.sum())(tensor([1.0, 2.0, 3.0, 4.0])))
function("constant_written_in_place",
    lambda x: (lambda t: (t.add_(x), t * 2))(tensor([1.0, 2.0, 3.0, 4.0]).repeat(3, 1)))  # fmt: skip
function("constant_itself_written", lambda x: (lambda t: (t.add_(1), x * t)[1])(tensor([1.0, 2.0, 3.0, 4.0])))
function("constant_index", lambda x: (x[tensor([2, 0])], x[[1, 1]], x[:, tensor([[0], [3]])]))


@CASES.add()
def constants_written_by_slices(x: Any) -> Any:
    mask = tensor([1.0, 1.0, 1.0, 1.0])
    mask[1] = 0.0
    mask[2:] = tensor([5.0, 6.0])
    row = mask[None]
    mask.mul_(2)
    return x * mask, row


@CASES.add()
def constant_written_in_every_call_of_a_function(x: Any) -> Any:
    def table() -> Any:
        made = tensor([1.0, 2.0, 3.0, 4.0])
        made[0] += 1
        return made

    first = table()
    return x * first + table().add_(first)


function("new_tensor", lambda x: x + x.new_tensor([1.0, 2.0, 3.0, 4.0]))

for dtype in (
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int16,
    torch.uint8,
    torch.int8,
    torch.bool,
    torch.complex64,
):
    function(
        f"constant_{str(dtype)[6:]}",
        lambda x, d=dtype: (tensor([1, 0, 3, 2], dtype=d), x + tensor([1, 2, 0, 4], dtype=d)),
    )
for dtype in (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.complex32,
):
    function(f"constant_{str(dtype)[6:]}", lambda x, d=dtype: (tensor([1.0, 0.5, 3.0]).to(d), x))

function(
    "aranges", lambda x: (arange(4), arange(1, 4), arange(0, 1, 0.25), arange(3, dtype=torch.float16), x)
)
function(
    "linspace_logspace_eye", lambda x: (torch.linspace(0, 1, 4), torch.logspace(0, 2, 3), torch.eye(3, 4) + x)
)
function(
    "new_factories",
    lambda x: (x.new_zeros(2), x.new_ones(2, dtype=torch.int32), x.new_full((2,), 7), torch.ones_like(x)),
)
function(
    "windows_and_triangles",
    lambda x: (torch.hamming_window(4), torch.tril_indices(3, 3), torch.triu(torch.ones(3, 4)) * x),
)
function("causal_mask", lambda x: x.masked_fill(torch.full((3, 4), float("-inf")).triu(1) < 0, -1.0))
function("scalar_tensor_and_item_free", lambda x: x * torch.scalar_tensor(2.0) / math.sqrt(x.shape[-1]))
function("factory_on_the_device_of_the_input", lambda x: x + arange(4, device=x.device, dtype=x.dtype))


class PositionTable(nn.Module):
    """A table computed with numpy when the model is built, not saved with its weights."""

    def __init__(self) -> None:
        super().__init__()
        table = numpy.sin(numpy.outer(numpy.arange(6), numpy.arange(4))).astype("float32")
        self.register_buffer("table", torch.tensor(table.tolist()), persistent=False)

    def forward(self, x: Any) -> Any:
        return x + self.table[: x.shape[0]]


module("nonpersistent_buffer", PositionTable)


class PlainAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = tensor([1.0, 2.0, 3.0, 4.0])
        self.options = {"shift": tensor(0.5), "list": [tensor([1.0, 1.0, 0.0, 0.0])]}

    def forward(self, x: Any) -> Any:
        return x * self.scale + self.options["shift"] - self.options["list"][0]


module("tensors_as_plain_attributes", PlainAttribute, unregistered=True)
OUTSIDE = tensor([4.0, 3.0, 2.0, 1.0])
function("tensor_of_the_enclosing_module", lambda x: x * OUTSIDE)


@CASES.add(holding=lambda: {"steps": 4})
def constants_from_python_attributes(self: Any, x: Any) -> Any:
    positions = torch.arange(self.steps, dtype=torch.float32)
    return x * torch.cos(positions) + torch.tensor([self.steps], dtype=x.dtype)


function(
    "large_constant", lambda x: x + torch.tensor(list(range(5000)), dtype=torch.float32).view(50, 100)[:3, :4]
)
