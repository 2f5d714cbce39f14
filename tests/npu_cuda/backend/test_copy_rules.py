"""Each rule of a node that only copies gives what PyTorch gives: values, dtype, shape and strides."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_cuda.backend.copy_rules import COPY_RULES
from npu_cuda.backend.rules import RULES
from npu_ir import extract_ir
from npu_runtime import IRExecutor
from tests.support.backends.native_backends import HOST
from tests.support.corpus.case import Function

aten = torch.ops.aten
X, Y = torch.randn(3, 4), torch.randn(4, 3)
INTEGERS = torch.arange(-6, 6).view(3, 4)
CALLS: dict[str, tuple[str, Callable[..., Any], tuple[Tensor, ...]]] = {
    "clone": ("aten.clone.default", lambda x: x.t().clone(), (X,)),
    "copy": ("aten.copy.default", lambda x, y: aten.copy(x, y.t()), (X, Y)),
    "contiguous": ("aten.contiguous.default", lambda x: x.t().contiguous(), (X,)),
    "_to_copy": ("aten._to_copy.default", lambda x: aten._to_copy(x, dtype=torch.float64), (X,)),
    "_to_copy with all": (
        "aten._to_copy.default",
        lambda x: aten._to_copy(
            x, dtype=torch.int32, layout=torch.strided, device=x.device, pin_memory=False
        ),
        (X,),
    ),
    "to.dtype": ("aten.to.dtype", lambda x: x.to(torch.bfloat16), (X,)),
    "to.dtype_layout": (
        "aten.to.dtype_layout",
        lambda x: aten.to.dtype_layout(
            x, dtype=torch.int64, layout=torch.strided, device=torch.device("cpu")
        ),
        (X,),
    ),
    "to.device": ("aten.to.device", lambda x: (x > 0).to("cpu", torch.float32), (X,)),
    "to.device of the same dtype": ("aten.to.device", lambda x: x.to("cpu", torch.float32, copy=True), (X,)),
    "fill": ("aten.fill.Tensor", lambda x, y: aten.fill(x, y[0, 0]), (X, Y)),
    "fill of integers": ("aten.fill.Tensor", lambda x, y: aten.fill(x, y[0, 0] * 3), (INTEGERS, Y)),
    "dropout of nothing": ("aten.dropout.default", lambda x: torch.dropout(x, 0.5, False), (X,)),
    "dropout of no probability": ("aten.dropout.default", lambda x: torch.dropout(x, 0.0, True), (X,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_node_gives_what_pytorch_gives(name: str) -> None:
    op_type, function, inputs = CALLS[name]
    graph = extract_ir(Function(function), inputs)

    (node,) = graph.nodes_of(op_type)
    found = IRExecutor(graph, backend="host")(*inputs)

    expected = function(*inputs)
    assert HOST.supports(node) is None
    assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_every_rule_has_a_call() -> None:
    assert {op_type for op_type, _, _ in CALLS.values()} == set(COPY_RULES)


def test_integers_are_divided_towards_minus_infinity_in_the_canonical_form() -> None:
    function = lambda x: x // 4  # noqa: E731 - a model
    graph = extract_ir(Function(function), (INTEGERS,))

    executor = IRExecutor(graph, backend="host", passes="host")

    assert [item.backend for item in executor.instructions] == ["host"]
    torch.testing.assert_close(executor(INTEGERS), function(INTEGERS), rtol=0, atol=0)


@pytest.mark.parametrize("op_type", ["aten.empty_like.default", "aten.new_empty.default"])
def test_elements_that_are_not_defined_are_native(op_type: str) -> None:
    call = {
        "aten.empty_like.default": torch.empty_like,
        "aten.new_empty.default": lambda x: x.new_empty(2, 3),
    }
    graph = extract_ir(Function(lambda x: call[op_type](x) * 0), (INTEGERS,))

    (node,) = graph.nodes_of(op_type)

    assert op_type in RULES
    assert HOST.supports(node) is None
    assert IRExecutor(graph, backend="host")(INTEGERS).count_nonzero() == 0


@pytest.mark.parametrize("source", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_floats_that_no_integer_is_become_those_that_aten_makes_of_them(source: torch.dtype) -> None:
    numbers = [
        float("nan"),
        float("inf"),
        -float("inf"),
        3e9,
        -3e9,
        5.5e9,
        1e20,
        70000.5,
        300.7,
        -300.7,
        -1.0,
    ]
    x = torch.tensor(numbers * 7, dtype=torch.float64).to(source)
    targets = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

    graph = extract_ir(Function(lambda x: [x.to(target) for target in targets]), (x,))
    converted = IRExecutor(graph, backend="host", passes=None)(x)

    assert all(torch.equal(own, x.to(target)) for own, target in zip(converted, targets, strict=True))
