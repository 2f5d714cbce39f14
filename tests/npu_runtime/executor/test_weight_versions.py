"""Weights that are changed in place after an executor was made of them."""

import pytest
import torch
from torch import nn

from npu_ir import WeightError, extract_ir
from npu_runtime import IRExecutor

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Net(nn.Module):
    """A linear layer and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.table = nn.Parameter(torch.ones(4, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) @ self.table


def folded() -> tuple[nn.Module, IRExecutor, torch.Tensor]:
    """Return a model whose convolution has its norm folded into it, an executor and an input."""
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).eval()
    x = torch.ones(1, 2, 4, 4)
    return model, IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes="default"), x


def test_calls_are_refused_until_changed_weights_are_bound_again():
    model, executor, x = folded()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    model(x).sum().backward()
    optimizer.step()

    for call in (executor.run_flat, executor.run, lambda args: executor(*args)):
        with pytest.raises(WeightError, match=r"the weight '.*' was changed in place, and calls read what"):
            call((x,))
    executor.load_state_dict(model.state_dict())

    torch.testing.assert_close(executor(x), model(x))


def test_the_error_names_the_weight():
    model, executor, x = folded()
    model[1].running_var.mul_(2)

    with pytest.raises(WeightError, match=r"the weight '.*running_var.*' was changed") as caught:
        executor(x)

    assert "executor.load_state_dict(model.state_dict())" in str(caught.value)


def test_changes_are_followed_where_calls_read_the_weights_themselves():
    model = Net()
    executor = IRExecutor(extract_ir(model, (X,)), model.state_dict(), passes=None)
    with torch.no_grad():
        model.linear.weight.mul_(2)
        model.table.add_(1)

    assert torch.equal(executor(X), model(X))


def test_buffers_that_advance_are_not_watched():
    model = nn.BatchNorm1d(3)
    executor = IRExecutor(extract_ir(model, (X,)), model.state_dict(), passes="default")
    expected = IRExecutor(extract_ir(model, (X,)), model.state_dict(), passes=None)
    model(X)

    assert torch.equal(executor(X), expected(X))


def test_weights_of_which_calls_read_a_copy_are_watched_without_passes():
    model = nn.Linear(3, 4, bias=False, dtype=torch.complex64)
    weight = model.weight.detach().clone().conj()  # conjugated lazily: calls read one that is
    executor = IRExecutor(extract_ir(model, (X.cfloat(),)), {"weight": weight}, passes=None)
    weight.mul_(2)

    with pytest.raises(WeightError, match="'weight' was changed in place"):
        executor(X.cfloat())


def test_the_tensor_that_a_buffer_began_with_may_be_changed():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return self.count * x

    first = torch.zeros(2, dtype=torch.complex64).conj()
    x = torch.ones(2, dtype=torch.complex64)
    executor = IRExecutor(extract_ir(Counting(), (x,)), {"count": first}, passes=None)
    first.add_(5)

    assert torch.equal(executor(x), x)


def test_weights_changed_in_place_are_refused_at_open_sizes_too() -> None:
    pytest.importorskip("npu_cuda")
    model = torch.nn.Linear(16, 16).eval().requires_grad_(False)
    graph = extract_ir(
        model, (torch.randn(3, 16),), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=64)},)
    )
    executor = IRExecutor(graph, model.state_dict(), backend="host")
    executor(torch.randn(3, 16))

    model.weight.mul_(2)

    with pytest.raises(WeightError, match=r"the weight 'weight' was changed in place"):
        executor(torch.randn(3, 16))
