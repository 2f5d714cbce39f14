"""Numbers as values: sizes, elements read from tensors, what is computed with them, inputs and results."""

import math
from typing import Any

import torch
from torch import arange, full, ones, randn, tensor
from torch.export import Dim

from tests.support.corpus.case import Call, Table, call, floats

CASES = Table(floats((4, 3)))
function = CASES.function


def others() -> list[Call]:
    return [call(randn(7, 3)), call(randn(12, 3) * 10)]


def same_size() -> list[Call]:
    return [call(randn(4, 3)), call(ones(4, 3))]


sized = CASES.given(CASES.inputs, more_inputs=others, dynamic_shapes=({0: Dim.AUTO},))
fixed = CASES.given(CASES.inputs, more_inputs=same_size)


# Elements of tensors

fixed.function("item_returned", lambda x: x.sum().item(), op="aten.item.default")
fixed.function("item_in_arithmetic", lambda x: x * x.max().item())
fixed.function("item_as_size", lambda x: ones(x.long().abs().max().item()))
fixed.function("tolist", lambda x: x[0].tolist())
fixed.function("item_of_integers", lambda x: (x > 0).sum().item() * 2 + 1)
fixed.function("item_of_a_bool", lambda x: (x > 0).any().item())
fixed.function("item_as_fill_value", lambda x: full((2, 2), x[0, 0].item()))
fixed.function("item_as_exponent", lambda x: x.abs() ** x[0, 0].item())
fixed.function("items_in_float_arithmetic", lambda x: x.sum().item() * 2.5 / 3 - 1)

# Sizes, and Python's operators on them


@sized.add()
def operators_on_sizes(x: Any) -> Any:
    n = x.shape[0]
    return n + 1, 2 - n, n * n, n // 3, n % 3, -n, n**2, n / 2, 7 // n, abs(-n)


@sized.add()
def comparisons_of_an_element(x: Any) -> Any:
    n = (x > 0).sum().item()
    return n == 3, n != 3, n < 3, n <= 3, n > 3, n >= 3


@sized.add()
def functions_of_sizes(x: Any) -> Any:
    n = x.shape[0]
    return math.ceil(n / 3), math.floor(n * 0.7), math.trunc(n / 2), round(n / 4), math.ceil(n * 1.25)


sized.function(
    "roots_of_sizes",
    lambda x: (torch.sym_sqrt(x.shape[0]), x / torch.sym_sqrt(x.shape[0] + 1), x.shape[0] ** 0.5),
)


@sized.add()
def symbolic_functions(x: Any) -> Any:
    n = x.shape[0]
    return torch.sym_max(n, 5), torch.sym_min(n, 5), torch.sym_float(n), torch.sym_int(n * 1.5)


@sized.add()
def choice_by_a_number(x: Any) -> Any:
    n = (x > 0).sum().item()
    return torch.sym_ite(n > 3, n, n * 2), torch.sym_not(n > 3), torch.sym_sum([n, n, x.shape[0]])


@fixed.add()
def choice_of_a_negative_number(x: Any) -> Any:
    n = (x > 0).sum().item()
    return torch.sym_ite(n > 12, n, -n)


sized.function("size_returned", lambda x: (x.shape[0], x + 1))
sized.function("size_of_tensor", lambda x: x * x.numel() / x.size(0))
sized.function("shape_returned", lambda x: list(x.t().shape))
sized.function("size_as_scalar", lambda x: x / x.shape[0] + x.shape[0])
sized.function("size_in_a_tensor", lambda x: tensor([1, 2]) * x.shape[0])
sized.function("size_as_tensor_of_no_dimension", lambda x: torch.scalar_tensor(x.shape[0]) + x)

# Lists that mix integers and values

sized.function("view_by_size", lambda x: x.view(x.shape[0], 1, -1))
sized.function("view_by_computed_size", lambda x: x.view(x.shape[0] * 3))
sized.function("expand_by_size", lambda x: x[:1].expand(x.shape[0], -1) + x)
sized.function("zeros_by_size", lambda x: torch.zeros(2, x.shape[0], 1))
sized.function("repeat_by_size", lambda x: x.repeat(x.shape[0], 2))
sized.function("arange_by_size", lambda x: arange(x.shape[0]) * x[:, 0])
sized.function("slice_by_size", lambda x: x[: x.shape[0] // 2])
sized.function("new_full_by_size", lambda x: x.new_full((x.shape[0], 2), x.shape[0]))

# Numbers as inputs

function("integer_input_as_size", lambda x, n: torch.zeros(n, 2) + x[0], lambda: call(randn(2), 3),
    more_inputs=lambda: [call(randn(2), 9)], dynamic_shapes=(None, Dim.DYNAMIC))  # fmt: skip
function("numbers_that_are_part_of_the_graph", lambda x, n, f, b: (x * n * f if b else x, n),
    lambda: call(randn(4), 3, 2.5, True), more_inputs=lambda: [call(randn(6), 3, 2.5, True)],
    dynamic_shapes=({0: Dim.AUTO}, None, None, None))  # fmt: skip
function("integer_input_and_size", lambda x, n: x.view(n, -1) * n, lambda: call(randn(4, 3), 4),
    more_inputs=lambda: [call(randn(6, 3), 6)], dynamic_shapes=({0: Dim.AUTO}, Dim.AUTO))  # fmt: skip


# Assertions that hold


@CASES.add(lambda: call(tensor([3, 4])), more_inputs=lambda: [call(tensor([5, 9]))])
def checked_element(x: Any) -> Any:
    n = x[0].item()
    torch._check(n > 2, lambda: "n is too small")
    torch._check(n < 100)
    return ones(n), n - 1


@CASES.add(lambda: call(randn(3).abs()))
def asserted_tensor(x: Any) -> Any:
    torch._assert_async((x >= 0).all() | True, "never")
    return x + 1
