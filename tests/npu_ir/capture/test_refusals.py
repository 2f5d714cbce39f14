"""Models that cannot be captured are refused with the reason, the location, and a fix."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import randn

from npu_ir import ConversionError, ExportError, NpuError, extract_ir
from tests.support.corpus import refused, refused_state
from tests.support.corpus.case import Function, Refusal
from tests.support.corpus.dtypes import float64_default
from tests.support.corpus.observation import process_state
from tests.support.rows import each_row

REFUSED = [*refused.REFUSED, *refused_state.REFUSED]


@each_row("refusal", [pytest.param(refusal, id=refusal.id) for refusal in REFUSED])
def test_a_model_without_a_graph_is_refused_with_the_reason(refusal: Refusal) -> None:
    model, given = refusal.make_model(), refusal.inputs()
    process = process_state()

    with pytest.raises(refusal.error, match=refusal.match) as caught:
        extract_ir(model, given.args, given.kwargs)

    assert isinstance(caught.value, NpuError)
    assert caught.value.fix
    assert process_state() == process


def test_a_tensor_that_the_model_does_not_hold_keeps_its_content() -> None:
    with pytest.raises(
        ConversionError, match="changes 'lifted_tensor_0', which is not a parameter or buffer"
    ):
        extract_ir(refused_state.WritesIntoAGlobal(), (randn(4, 3),))

    assert torch.equal(refused_state.COUNT, torch.zeros(2))


def test_a_model_that_returns_an_object_is_as_before_when_it_is_refused() -> None:
    model = refused_state.CountsAndReturnsAnObject()
    before = copy.deepcopy(model.state_dict())

    with pytest.raises(ExportError, match="not a known type"):
        extract_ir(model, (randn(4, 3),))

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.held[0] is model.count
    assert model.log == {"calls": []}


def test_an_op_that_follows_the_default_dtype_and_cannot_be_cast_is_refused() -> None:
    with (
        float64_default(),
        pytest.raises(ConversionError, match=r"aten.where.Scalar gives torch.float64 here because"),
    ):
        extract_ir(Function(lambda x: torch.where(x > 0, 1.5, 2.5)), (torch.arange(3),))


def test_a_function_is_refused() -> None:
    with pytest.raises(
        NpuError, match=r"expected a torch.nn.Module, got function[\s\S]*wrap the function in a module"
    ):
        extract_ir(lambda x: x, (randn(2),))  # type: ignore[arg-type]
