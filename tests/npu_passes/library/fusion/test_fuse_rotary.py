"""A rotary embedding that is written out becomes one op."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_passes import PassManager, PassResult
from npu_passes.library.cleanup.canonicalize import Canonicalize
from npu_passes.library.fusion.fuse_rotary import FuseRotary
from npu_passes.testing import check_pass
from tests.support.corpus.case import Holding
from tests.support.passes.pattern_cases import op_types, reasons

ROTARY = "npu.rotary_embedding.default"
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
HEADS, COUNT, SIZE = 3, 5, 8


def rotate_half(x: Tensor) -> Tensor:
    """As the models of transformers have it."""
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def rotate_chunks(x: Tensor) -> Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat([second.neg(), first], x.dim() - 1)


def turn(x: Tensor, cos: Tensor, sin: Tensor, rotate: Any = rotate_half) -> Tensor:
    return (x * cos) + (rotate(x) * sin)


def turn_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As Phi, GPT-NeoX and StableLM have it."""
    width = cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    return torch.cat((turn(turned, cos, sin), rest), dim=-1)


def tensors(width: int = SIZE, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(2, COUNT, HEADS, SIZE).to(dtype).transpose(1, 2)
    return x, torch.randn(2, 1, COUNT, width).to(dtype), torch.randn(2, 1, COUNT, width).to(dtype)


def fused(function: Callable[..., Any], *args: Tensor) -> PassResult:
    return PassManager([FuseRotary]).run(extract_ir(as_model(function), args))


def as_model(function: Callable[..., Any]) -> nn.Module:
    return Holding(lambda self, *args: function(*args)).eval()


FORMS = {
    "llama": (turn, SIZE),
    "chunks": (lambda x, cos, sin: turn(x, cos, sin, rotate_chunks), SIZE),
    "sum-swapped": (lambda x, cos, sin: sin * rotate_half(x) + cos * x, SIZE),
    "phi": (turn_part, SIZE // 2),
    "part-of-odd-rows": (lambda x, cos, sin: turn_part(x[..., : SIZE - 1], cos, sin), SIZE - 2),
}


@pytest.mark.smoke
def test_the_forms_of_transformers_become_one_op_with_equal_results(subtests: pytest.Subtests) -> None:
    for dtype in DTYPES:
        for name, (function, width) in FORMS.items():
            if dtype is not torch.float32 and name not in ("llama", "phi"):
                continue
            with subtests.test(name, dtype=dtype):
                graph = extract_ir(as_model(function), tensors(width, dtype))

                assert check_pass(FuseRotary, graph) == 1
                ops = op_types(PassManager([FuseRotary]).run(graph).graph)
                assert [op for op in ops if op not in ("slice.Tensor", "clone.default")] == [ROTARY]
                assert ops.count("slice.Tensor") == ("odd" in name)


def test_part_of_rows_is_turned_in_place_of_the_parts() -> None:
    x, cos, sin = tensors(SIZE // 2)

    result = fused(turn_part, x, cos, sin)

    (node,) = result.graph.nodes_of(ROTARY)
    assert node.inputs[0].tensor_type.shape == x.shape


def test_what_is_turned_stays_a_part_where_something_else_follows() -> None:
    def function(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned, rest = x[..., :4], x[..., 4:]
        return torch.cat((turn(turned, cos, sin), -rest), -1)

    result = fused(function, *tensors(4))

    assert op_types(result.graph) == ["slice.Tensor", "slice.Tensor", ROTARY, "neg.default", "cat.default"]


def test_parts_in_the_middle_of_rows_stay_parts() -> None:
    def function(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return torch.cat((turn(x[..., 2:6], cos, sin), x[..., 6:]), -1)

    result = fused(function, *tensors(4))

    assert op_types(result.graph) == ["slice.Tensor", ROTARY, "slice.Tensor", "cat.default"]


def test_queries_and_keys_are_both_fused_after_a_canonical_form() -> None:
    def function(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return turn(x, cos, sin), turn(x[:, :1] + 1, cos, sin)

    graph = extract_ir(as_model(function), tensors())

    result = PassManager([Canonicalize, FuseRotary]).run(graph)

    assert len(list(result.graph.nodes_of(ROTARY))) == 2


def test_halves_that_others_read_too_stay() -> None:
    def function(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        rotated = rotate_half(x)
        return x * cos + rotated * sin, rotated

    result = fused(function, *tensors())

    assert sorted(op_types(result.graph)) == [
        "cat.default", "neg.default", ROTARY, "slice.Tensor", "slice.Tensor",
    ]  # fmt: skip


def test_what_is_another_rotation_is_not_fused(subtests: pytest.Subtests) -> None:
    def neighbours(x: Tensor) -> Tensor:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

    forms = {
        "neighbours": lambda x, cos, sin: turn(x, cos, sin, neighbours),
        "no minus": lambda x, cos, sin: turn(x, cos, sin, lambda x: x.roll(SIZE // 2, -1)),
        "minus elsewhere": lambda x, cos, sin: x * cos
        + torch.cat((x[..., SIZE // 2 :], -x[..., : SIZE // 2]), -1) * sin,
        "unequal halves": lambda x, cos, sin: x * cos + torch.cat((-x[..., 3:], x[..., :3]), -1) * sin,
        "another axis": lambda x, cos, sin: x * cos + torch.cat((-x[:, 2:], x[:, :2]), 1) * sin,
        "other rows": lambda x, cos, sin: (x + 1) * cos + rotate_half(x) * sin,
        "half of it": lambda x, cos, sin: torch.add(x * cos, rotate_half(x) * sin, alpha=2),
        "steps": lambda x, cos, sin: x * cos
        + torch.cat((-x[..., 1::2], x[..., ::2]), -1) * sin,
        "one product": lambda x, cos, sin: x * cos + rotate_half(x) + 0 * sin,
    }  # fmt: skip
    for name, function in forms.items():
        with subtests.test(name):
            assert ROTARY not in op_types(fused(function, *tensors()).graph)


def test_what_the_op_does_not_compute_is_refused_with_a_reason(subtests: pytest.Subtests) -> None:
    x, cos, sin = tensors()
    rows = [
        ((x.bfloat16(), cos, sin), "the input and the angles differ in dtype: bf16[2, 3, 5, 8]"),
        ((x, cos, sin[:, :, :1]), "cos is f32[2, 1, 5, 8], sin f32[2, 1, 1, 8]"),
        ((x, cos[..., :1], sin[..., :1]), "are not those of the elements of rows"),
        ((x[:, :1], cos.expand(2, 3, 5, 8).clone(), sin.expand(2, 3, 5, 8).clone()), "are not those of"),
    ]
    for args, reason in rows:
        with subtests.test(reason):
            result = fused(turn, *args)

            assert ROTARY not in op_types(result.graph)
            assert any(reason in found for found in reasons(result))


def test_a_number_of_rows_may_be_open() -> None:
    count = torch.export.Dim("count", min=2)
    x, cos, sin = tensors()
    shapes = ({2: count}, {2: count}, {2: count})

    graph = extract_ir(as_model(turn), (x, cos, sin), dynamic_shapes=(shapes,))

    assert op_types(PassManager([FuseRotary]).run(graph).graph) == [ROTARY]
