"""Ops on lists of FakeTensors: one element of each combination of types is run, the results are the same."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_runtime._torch.list_ops import is_list_op, run_on_distinct
from npu_runtime._torch.tracing_context import TracingContext

aten = torch.ops.aten


def fakes(*types: tuple[tuple[int, ...], torch.dtype]) -> list[Tensor]:
    world = TracingContext()
    return [world.fake_tensor(torch.zeros(shape, dtype=dtype)) for shape, dtype in types]


MANY = [((4, 3), torch.float32), ((3,), torch.float32), ((4, 3), torch.bfloat16)] * 3


@pytest.mark.parametrize(
    ("op", "lists", "rest"),
    [
        (aten._foreach_add.Scalar, 1, (1.5,)),
        (aten._foreach_addcmul.Scalar, 3, (0.5,)),
        (aten._foreach_sqrt.default, 1, ()),
        (aten._foreach_mul.List, 2, ()),
        (aten._foreach_mul.ScalarList, 1, ([1, 2.0, 3] * 3,)),
        (aten._foreach_norm.Scalar, 1, (2,)),
        (aten._foreach_mul_.List, 2, ()),
    ],
    ids=str,
)
def test_results_are_those_of_all_elements(op: Any, lists: int, rest: tuple[Any, ...]) -> None:
    tensors = fakes(*MANY)
    sizes = []

    def dispatch(op: Any, _types: Any, args: Sequence[Any], kwargs: Any) -> Any:
        sizes.append(len(args[0]))
        return op(*args, **kwargs)

    args = [tensors] * lists + list(rest)
    results = run_on_distinct(dispatch, op, (), args, {})

    assert sizes == [3]
    assert _types(results) == _types(op(*args))
    assert results is None or len({item.untyped_storage()._cdata for item in results}) == len(MANY)


def _types(results: Any) -> Any:
    return results and [(item.shape, item.stride(), item.dtype, item.device) for item in results]


def test_elements_whose_content_is_known_and_lists_of_other_lengths_are_left_alone() -> None:
    calls = []

    def dispatch(_op: Any, _types: Any, args: Sequence[Any], _kwargs: Any) -> None:
        calls.append([len(item) for item in args])

    known = [torch.zeros(2), torch.zeros(2)]
    run_on_distinct(dispatch, aten._foreach_mul_.List, (), [known, known], {})
    run_on_distinct(dispatch, aten._foreach_mul_.List, (), [fakes(*MANY), fakes(*MANY)[1:]], {})

    assert calls == [[2, 2], [9, 8]]
    assert is_list_op(aten._foreach_mul_.List)
    assert not is_list_op(aten.cat.default)
