"""Chains of views, run as one view: each sees what eager sees."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, randn

from npu_ir import extract_ir, parse_ir
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function, Holding
from tests.support.corpus.comparison import assert_same

VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda x: x.view(4, 1, 6, 2),
    "view_by_inference": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(12, 4),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 3)),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, -1),
    "mT": lambda x: x.mT,
    "slice": lambda x: x[:, 1:, ::2],
    "slice_from_the_end": lambda x: x[1:, -1:],
    "narrow": lambda x: x.narrow(2, 3, 2),
    "select": lambda x: x[1],
    "select_the_last": lambda x: x.select(-1, -1),
    "unsqueeze": lambda x: x.unsqueeze(0).unsqueeze(-1),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze_dims": lambda x: x[:1, :, :1].squeeze((0, 2)),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1),
    "expand_new": lambda x: x.expand(2, -1, -1, -1),
    "broadcast_to": lambda x: x[:, :, :1].broadcast_to(2, 4, 6),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "diagonal_with_offset": lambda x: x.diagonal(-1, 1, 2),
    "unfold": lambda x: x.unfold(2, 3, 2),
    "as_strided": lambda x: x.as_strided((2, 3), (5, 2), 4),
    "split": lambda x: x.split(2, 1),
    "split_with_sizes": lambda x: x.split([1, 3], 1),
    "chunk": lambda x: x.chunk(3, -1),
    "tensor_split": lambda x: x.tensor_split(4, 2),
    "unbind": lambda x: x.unbind(1),
    "hsplit": lambda x: x.hsplit(2),
    "detach": lambda x: x.detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "view_as": lambda x: x.view_as(x[None][0]),
    "contiguous": lambda x: x.contiguous(),
    "contiguous_of_a_transposed": lambda x: x.transpose(0, 1).contiguous(),
    "empty": lambda x: x[:, 2:2],
    "empty_in_front": lambda x: x[2:],
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x[0].t(),
    "real": lambda x: x.real,
    "integers": lambda x: x.view(torch.int32),
    "bytes": lambda x: x.view(torch.uint8),
    "there_and_back": lambda x: x.view(torch.int32).view(torch.float32),
    "half_as_wide": lambda x: x.view(torch.int16).view(torch.float16),
}


def first(item: Any) -> Tensor:
    return item if isinstance(item, Tensor) else item[-1]


def check(function: Callable[[Tensor], Any], *args: Tensor) -> IRExecutor:
    executor = IRExecutor(extract_ir(Function(function), args), passes=None)

    assert_same(executor(*args), function(*args), "the result")
    return executor


def test_a_view_behind_views_sees_what_eager_sees() -> None:
    def function(x: Tensor) -> Any:
        made = x * 2
        results: dict[str, Any] = {}
        for name, view in VIEWS.items():
            before = first(view(made)).unsqueeze(0)[0]
            results[name] = view(made.view(2, 24).view(2, 4, 6)), before, before[..., :1]
        turned = made.neg().view(-1)[:24].view(2, 2, 6).transpose(0, 1)[:, :1].expand(2, 4, 6)
        return results, [VIEWS[name](turned) for name in MOVABLE]

    check(function, randn(2, 4, 6))


def test_complex_views_see_what_eager_sees() -> None:
    def function(x: Tensor) -> Any:
        made = x * x
        turned = made.conj()
        back = turned.conj().view(-1)[1:]
        real = torch.view_as_real(made)[..., 1].t()
        again = torch.view_as_complex(torch.view_as_real(made).view(6, 2)).view(3, 2)[1]
        resolved = turned.resolve_conj().view(-1)[:2]
        return (
            back,
            real,
            again,
            resolved,
            made.real.t()[0],
            made.imag.view(-1) if made.dim() == 1 else made.imag,
            turned.t()[1],
            turned.imag[0],
        )

    check(function, randn(2, 3, dtype=torch.complex64))


# What does not need its input to be dense.
MOVABLE = (
    *("transpose", "permute", "movedim", "mT", "slice", "narrow", "select", "unsqueeze", "squeeze", "expand"),
    *("diagonal", "unfold", "split", "chunk", "unbind", "reshape", "contiguous", "empty", "detach", "t"),
    "there_and_back",
)


def test_heads_are_split_by_one_view() -> None:
    def function(x: Tensor, weight: Tensor) -> Any:
        queries, keys = (
            torch.nn.functional.linear(x, weight).view(2, 5, 2, 3, 4).permute(2, 0, 3, 1, 4).unbind(0)
        )
        return queries @ keys.transpose(-1, -2)

    executor = check(function, randn(2, 5, 8), randn(24, 8))

    kernels = [instruction.kernel for instruction in executor.instructions]
    assert sum("as_strided" in kernel for kernel in kernels) == 2, kernels
    assert len(kernels) == 5, kernels
    merged = next(instruction for instruction in executor.instructions if "as_strided" in instruction.kernel)
    assert len(merged.nodes) > 1


@pytest.mark.parametrize("op_type", ["to.device", "to.prim_Device", "_to_copy.default"])
def test_what_stays_on_its_device_may_be_viewed(op_type: str) -> None:
    graph = parse_ir(f"""
    graph g {{
      input %x: f32[2, 3]
      %sin: f32[2, 3] = aten.sin.default(self=%x)
      %here: f32[2, 3] = aten.{op_type}(self=%sin) {{device=device("cpu"), dtype=f32}}
      %flat: f32[6] = aten.view.default(self=%here) {{size=[6]}}
      return %flat
    }}
    """)
    x = randn(2, 3)

    assert torch.equal(IRExecutor(graph, passes=None)(x), x.sin().view(6))


KEEPING_OFFSETS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "select_scatter": lambda x, y: torch.select_scatter(x, y, 0, 1),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[None], 0, 1, 2),
    "diagonal_scatter": torch.diagonal_scatter,
    "as_strided_scatter": lambda x, y: torch.as_strided_scatter(x, y, (4,), (4,)),
}


def with_offset(x: Tensor) -> Tensor:
    """Return an equal tensor that starts 5 elements behind the start of its storage."""
    moved = x.new_zeros(x.numel() + 5)
    moved[5:] = x.flatten()
    return moved[5:].view(x.shape)


@pytest.mark.parametrize("name", KEEPING_OFFSETS)
def test_views_are_right_behind_an_op_that_keeps_the_offset_of_its_input(name: str) -> None:
    function = Function(lambda x, y: KEEPING_OFFSETS[name](x, y).flatten()[2:6].view(2, 2) * 1)
    x, y = torch.arange(16.0).view(4, 4), -torch.ones(4)
    executor = IRExecutor(extract_ir(function, (x, y)), passes=None)

    assert_same(executor(x, y), function(x, y), "the result")
    assert_same(executor(with_offset(x), y), function(x, y), "the result for an input with an offset")


def test_views_are_right_behind_an_op_that_keeps_the_offset_of_a_weight_that_is_loaded_later() -> None:
    model = Holding(
        lambda self, y: torch.select_scatter(self.w, y, 0, 1).flatten()[2:6].view(2, 2) * 1,
        w=torch.nn.Parameter(torch.arange(16.0).view(4, 4)),
    )
    y = -torch.ones(4)
    executor = IRExecutor(extract_ir(model, (y,)), model.state_dict(), passes=None)

    executor.load_state_dict({"w": with_offset(model.w.detach())})

    assert_same(executor(y), model(y).detach(), "the result")
