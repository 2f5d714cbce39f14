from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from npu_ir.ops.schema import find_op
from npu_ir.ops.trusted_layouts import accept_any_layout


def _rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _group_norm() -> tuple[Any, ...]:
    return _rows(2, 4, 3, 5), None, None, 2, 4, 15, 2, 1e-5


def _group_norm_backward() -> tuple[Any, ...]:
    input = _rows(2, 4, 3, 5)
    _, mean, rstd = torch.ops.aten.native_group_norm(input, None, None, 2, 4, 15, 2, 1e-5)
    return _rows(2, 4, 5, 3).view(2, 4, 3, 5), input, mean, rstd, _rows(4), 2, 4, 15, 2, [True, True, True]


def _layer_norm_backward() -> tuple[Any, ...]:
    input = _rows(2, 3, 4)
    _, mean, rstd = torch.ops.aten.native_layer_norm(input, [4], None, None, 1e-5)
    return _rows(2, 4, 3).view(2, 3, 4), input, [4], mean, rstd, _rows(4), _rows(4), [True, True, True]


def _loss_backward() -> tuple[Any, ...]:
    kinds = torch.randint(4, (2, 3, 5), generator=torch.Generator().manual_seed(0))
    return _rows(), _rows(2, 4, 3, 5), kinds, None, 1, -100, torch.tensor(30.0)


def _attention() -> tuple[Any, ...]:
    return _rows(2, 2, 3, 4), _rows(2, 2, 4, 3).view(2, 2, 3, 4), _rows(2, 3, 2, 4).view(2, 2, 3, 4)


def _attention_backward() -> tuple[Any, ...]:
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    result, sums = op(*_attention())
    return _rows(2, 2, 3, 4), *_attention(), result, sums, 0.0, False


CASES: dict[str, tuple[Callable[[], tuple[Any, ...]], Sequence[int]]] = {
    "aten.native_group_norm.default": (_group_norm, [0]),
    "aten.native_group_norm_backward.default": (_group_norm_backward, [0, 1, 2, 3]),
    "aten.native_layer_norm_backward.default": (_layer_norm_backward, [0, 1, 3, 4]),
    "aten.nll_loss2d_backward.default": (_loss_backward, [1]),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (_attention, [0, 1, 2]),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (
        _attention_backward,
        [0, 1, 2, 3, 4],
    ),
}
ROWS = [(name, place) for name, (_, places) in CASES.items() for place in places]


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor whose first axis is the innermost one in memory."""
    axes = tuple(reversed(range(tensor.dim())))
    return tensor.permute(axes).contiguous().permute(axes)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    format = torch.channels_last if tensor.dim() == 4 else torch.contiguous_format
    return tensor.contiguous(memory_format=format)


@pytest.mark.parametrize("restride", [_reversed, _channels_last])
@pytest.mark.parametrize(("name", "place"), ROWS)
def test_an_op_whose_kernel_trusts_a_layout_computes_the_same_in_any(
    name: str, place: int, restride: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    op = find_op(name)
    args = list(CASES[name][0]())
    wanted = accept_any_layout(op)(*args)
    given = restride(args[place])

    found = accept_any_layout(op)(*args[:place], given, *args[place + 1 :])

    assert torch.equal(given, args[place])
    torch.testing.assert_close(found, wanted)


def test_the_gradient_of_a_group_norm_reads_memory_without_a_look_at_strides() -> None:
    gradient, *rest = _group_norm_backward()
    op = torch.ops.aten.native_group_norm_backward.default

    wrong = op(_reversed(gradient), *rest)[0]

    # Once PyTorch's kernel looks at strides, its row of the table can go.
    assert not torch.allclose(wrong, op(gradient, *rest)[0])


def test_an_op_that_takes_any_layout_is_called_itself() -> None:
    op = find_op("aten.add.Tensor")

    assert accept_any_layout(op) is op
