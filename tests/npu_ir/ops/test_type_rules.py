"""Types by rule: those of real results, for every rule, layout and shape that it answers for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from npu_ir import TensorType
from npu_ir.ops.schema import resolve
from npu_ir.ops.type_rules import _RULES, types_by_rule
from tests.support.rows import each_row

SHAPES = [shape for rank in range(4) for shape in itertools.product((1, 2, 3), repeat=rank)]
IMAGES = list(itertools.product((1, 2, 3), repeat=4))


def images() -> Iterator[torch.Tensor]:
    """Yield images in every layout that a type can state."""
    for shape in IMAGES:
        image = torch.rand(shape)
        yield image
        yield image.to(memory_format=torch.channels_last)
        yield image.permute(2, 3, 1, 0)
        yield image.half()
    yield torch.rand(4, 3, 4, 10)[::2, :, :, ::2]
    yield torch.rand(2, 0, 4, 5)
    yield torch.arange(24).reshape(1, 2, 3, 4)


def as_stated(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the strides that its type states: axes of size 1 may have had others."""
    return torch.empty_strided(tensor.shape, TensorType.of(tensor).static_strides, dtype=tensor.dtype).copy_(
        tensor
    )


def wrong(op_type: str, tensors: list[torch.Tensor], attrs: dict[str, Any]) -> str | None:
    """Return the difference between the type by rule and that of the real result; None if there is none."""
    names = ("self", "other")[: len(tensors)]
    found = types_by_rule(op_type, [TensorType.of(item) for item in tensors], names, attrs)
    if found is None:
        return None
    op = resolve(op_type)
    assert op is not None
    real = TensorType.of(op(*map(as_stated, tensors), **attrs))
    return (
        None
        if found == (real,)
        else f"{op_type}{[str(TensorType.of(t)) for t in tensors]}: {found[0]}, {real}"
    )


def is_answered(op_type: str, tensor: torch.Tensor, attrs: dict[str, Any]) -> bool:
    return types_by_rule(op_type, [TensorType.of(tensor)], ("self",), attrs) is not None


@pytest.mark.parametrize("op_type", [name for name in _RULES if _RULES[name].__name__ == "_pointwise"])
def test_types_of_pointwise_functions_are_those_of_real_results(op_type: str) -> None:
    problems = [wrong(op_type, [image], {}) for image in images()]

    assert [item for item in problems if item] == []
    assert is_answered(op_type, torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), {})


@pytest.mark.parametrize("op_type", [f"aten.{name}.Tensor" for name in ("add", "div", "mul", "sub")])
def test_types_of_arithmetic_are_those_of_real_results_for_all_shapes_that_broadcast(op_type: str) -> None:
    pairs = [
        [torch.rand(left), torch.rand(right, dtype=dtype)]
        for left, right in itertools.product(SHAPES, SHAPES)
        for dtype in (torch.float32, torch.float64)
        if all(1 in pair or pair[0] == pair[1] for pair in zip(left[::-1], right[::-1], strict=False))
    ]
    same = [[image, image.clone()] for image in images()]
    scaled = [
        [image, torch.rand(batch, image.shape[1], 1, 1)]
        for image in images()
        for batch in {1, image.shape[0]}
    ]
    mixed = [[one, other] for one, other in itertools.product(images(), repeat=2) if one.shape == other.shape]

    problems = [wrong(op_type, pair, {}) for pair in (*pairs, *same, *scaled, *mixed)]
    swapped = [wrong(op_type, pair[::-1], {}) for pair in scaled]
    numbers = [wrong(op_type, [image], {"other": number}) for image in images() for number in (2, 0.5)]

    assert [item for item in (*problems, *swapped, *numbers) if item] == []
    assert types_by_rule(op_type, [TensorType.of(item) for item in pairs[-1]], ("self", "other"), {})


def test_types_of_permutations_are_those_of_real_results() -> None:
    problems = [
        wrong("aten.permute.default", [image], {"dims": list(order)})
        for image in images()
        for order in (*itertools.permutations(range(4)), (-1, 0, -3, 2))
    ]

    assert [item for item in problems if item] == []
    assert is_answered("aten.permute.default", torch.rand(1, 2, 3, 4), {"dims": [0, -1, 1, 2]})


@pytest.mark.parametrize(
    ("op_type", "name"), [("aten.reshape.default", "shape"), ("aten.view.default", "size")]
)
def test_types_of_reshaped_tensors_are_those_of_real_results(op_type: str, name: str) -> None:
    problems = []
    for image in images():
        permuted = [image.permute(order) for order in itertools.permutations(range(4))]
        a, b, c, d = image.shape
        shapes = [[-1], [a * b, c * d], [a, -1], [a, b * c, d, 1], [1, a * b * c, d], [b, a, c, d], [-1, d]]
        problems += [wrong(op_type, [item], {name: shape}) for item in permuted for shape in shapes]

    assert [item for item in problems if item] == []
    assert is_answered(op_type, torch.rand(2, 3, 4, 5).permute(0, 3, 1, 2), {name: [2, 5, -1]})


@pytest.mark.parametrize(
    "format", [torch.preserve_format, torch.contiguous_format, torch.channels_last], ids=str
)
def test_types_of_copies_are_those_of_real_results(format: torch.memory_format) -> None:
    problems = [wrong("aten.clone.default", [image], {"memory_format": format}) for image in images()]

    assert [item for item in problems if item] == []
    assert is_answered("aten.clone.default", torch.rand(1, 2, 3, 4), {"memory_format": format})


def test_types_of_casts_are_those_of_real_results() -> None:
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.int64)

    problems = [wrong("aten.to.dtype", [image], {"dtype": dtype}) for image in images() for dtype in dtypes]

    assert [item for item in problems if item] == []
    assert is_answered("aten.to.dtype", torch.rand(2, 3), {"dtype": torch.float64})


@each_row(
    "op_type, tensors, attrs",
    {
        "an unknown op": ("aten.sort.default", [torch.rand(3)], {}),
        "integers": ("aten.sigmoid.default", [torch.arange(3)], {}),
        "rank 0 and another dtype": (
            "aten.mul.Tensor",
            [torch.rand(3), torch.rand((), dtype=torch.float64)],
            {},
        ),
        "shapes that do not broadcast": ("aten.add.Tensor", [torch.rand(2), torch.rand(3)], {}),
        "a complex number": ("aten.add.Tensor", [torch.rand(3)], {"other": 1j}),
        "a tensor in overlapping memory": ("aten.relu.default", [torch.rand(1).expand(3)], {}),
        "gaps": ("aten.relu.default", [torch.rand(4, 6)[:, ::2]], {}),
        "too many axes": ("aten.permute.default", [torch.rand(2, 3)], {"dims": [0, 1, 2]}),
        "an axis twice": ("aten.permute.default", [torch.rand(2, 3)], {"dims": [0, -2]}),
        "another number of elements": ("aten.view.default", [torch.rand(2, 3)], {"size": [5]}),
        "two open sizes": ("aten.view.default", [torch.rand(2, 3)], {"size": [-1, -1]}),
        "a dtype that is not promoted": (
            "aten.add.Tensor",
            [torch.rand(3).to(torch.float8_e4m3fn), torch.rand(3)],
            {},
        ),
        "a cast to a quantized dtype": ("aten.to.dtype", [torch.rand(3)], {"dtype": torch.quint8}),
        "an operand too many": ("aten.permute.default", [torch.rand(3), torch.rand(3)], {"dims": [0]}),
        "an operand too few": ("aten.relu.default", [], {}),
        "an unknown argument": ("aten.relu.default", [torch.rand(3)], {"slope": 1}),
        "an argument of another op": ("aten.mul.Tensor", [torch.rand(3)], {"other": 2, "alpha": 3}),
        "an unknown option": ("aten.gelu.default", [torch.rand(3)], {"approximate": "cubic"}),
        "a missing argument": ("aten.to.dtype", [torch.rand(3)], {}),
        "a number beyond 64 bits": ("aten.add.Tensor", [torch.rand(3)], {"other": 2**63}),
        "a view that is none": ("aten.view.default", [torch.rand(2, 3).t()], {"size": [6]}),
    },
)
def test_no_rule_answers(op_type: str, tensors: list[torch.Tensor], attrs: dict[str, Any]) -> None:
    types = [TensorType.of(item) for item in tensors]

    assert types_by_rule(op_type, types, ("self", "other")[: len(types)], attrs) is None
