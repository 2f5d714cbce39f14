"""Calls over fixed memory, which a backend repeats without Python."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from npu_ir import BackendError, ExecutionError, WeightError, extract_ir
from npu_runtime import IRExecutor
from npu_runtime.executor.bound_call import BoundCall

TABLE = torch.arange(12.0).reshape(4, 3)


class Reader(nn.Module):
    """A row of a table, of which a linear layer is kept in a cache, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, row: Tensor, place: Tensor, index: Tensor) -> Tensor:
        self.cache.index_copy_(0, place, self.linear(row))
        return (self.cache.sum(0) + torch.nn.functional.embedding(index, torch.tanh(self.cache)))[:, 0]


def made(backend: str = "host") -> tuple[Reader, IRExecutor]:
    torch.manual_seed(0)
    model = Reader()
    graph = extract_ir(model, (torch.ones(1, 3), torch.tensor([1]), torch.tensor([1])))
    return model, IRExecutor(graph, model.state_dict(), backend=backend, passes="auto")


def bound(executor: IRExecutor) -> tuple[BoundCall, list[Tensor]]:
    """Return a call over fixed memory, and the memory of its inputs."""
    fixed = [torch.ones(1, 3), torch.tensor([1]), torch.tensor([1])]
    call = executor.bind_call(fixed)
    assert call is not None
    return call, fixed


def test_a_bound_call_computes_what_a_call_does_and_advances_the_same_state() -> None:
    _, executor = made()
    _, other = made()
    call, fixed = bound(executor)

    for place in (2, 0, 2):
        fixed[0].fill_(place + 0.5)
        fixed[1].fill_(place)
        call.in_turn(call.run)

        expected = other(fixed[0].clone(), fixed[1].clone(), fixed[2].clone())
        torch.testing.assert_close(call.results[0], expected, rtol=0, atol=0)
        assert torch.equal(executor.state_dict()["cache"], other.state_dict()["cache"])


def test_the_state_of_a_bound_call_keeps_its_memory_when_it_is_reset() -> None:
    _, executor = made()
    call, _ = bound(executor)
    call.in_turn(call.run)
    first = call.results[0].clone()

    executor.reset()
    assert not executor.state_dict()["cache"].any()
    call.in_turn(call.run)

    assert executor.state_dict()["cache"].any()
    assert torch.equal(call.results[0], first)


def test_a_step_that_fails_leaves_the_state_of_the_steps_before() -> None:
    _, executor = made()
    call, fixed = bound(executor)
    indices = torch.tensor([[1], [2], [9], [0]])
    places = torch.tensor([[1], [2], [1], [1]])
    rows = torch.zeros(4, 1, 1)
    result = call.results[0]
    loop = call.backend.make_row_loop(
        [call.run], [(fixed[1], places), (fixed[2], indices)], [(torch.zeros(1, 1), rows)]
    )
    assert loop is not None
    assert result.shape == (1,)
    call.in_turn(loop.run, 2, 60.0)
    before = executor.state_dict()["cache"]
    fixed[0].fill_(7)

    with pytest.raises(BackendError, match=r"the backend 'host' failed: .*9"):
        call.in_turn(loop.run, 9, 60.0)

    assert loop.steps_taken == 2
    assert torch.equal(executor.state_dict()["cache"], before)
    assert before.any(1).tolist() == [False, True, True, False]


def test_a_bound_call_is_refused_when_a_packed_weight_has_changed() -> None:
    model, executor = made()
    call, _ = bound(executor)
    with torch.no_grad():
        model.linear.weight.mul_(2)

    with pytest.raises(WeightError, match=r"the weight 'linear.weight' was changed in place"):
        call.in_turn(call.run)
    executor.load_state_dict(model.state_dict())

    assert not call.is_current


def test_a_bound_call_is_refused_where_pytorch_transforms_the_thread() -> None:
    _, executor = made()
    call, _ = bound(executor)

    def function(x: Tensor) -> Tensor:
        call.in_turn(call.run)
        return x

    with pytest.raises(ExecutionError, match=r"a transform of torch.func does not see what the backend"):
        torch.func.vmap(function)(torch.ones(2))


def test_what_needs_python_is_not_bound() -> None:
    _, executor = made("aten")
    fixed = torch.ones(1, 3), torch.tensor([1]), torch.tensor([1])

    assert executor.bind_call(fixed) is None
    _, native = made()
    assert native.bind_call((*fixed[:2], torch.tensor([1.0])), {}) is None
    assert native.bind_call(fixed, {0: torch.zeros(1)}) is None
