"""Writes of a step besides parameters and state: into its batch, as in eager; elsewhere, refused."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn, optim

from npu_runtime import TrainStep
from npu_runtime.errors import TracingError

mse = nn.functional.mse_loss


@pytest.mark.parametrize("write", [lambda x: x.mul_(0.5), lambda x: x[:, 0].zero_()], ids=["all", "a part"])
def test_a_step_that_writes_into_its_batch_does_so(write: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)

    def loss(prediction: Tensor, target: Tensor) -> Tensor:
        write(target)
        return mse(prediction, target)

    x, y = torch.randn(6, 4), torch.randn(6, 3)
    expected = y.clone()
    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.0), loss)
    for _ in range(3):
        write(expected)
        torch.testing.assert_close(step(x, y), mse(model(x), expected).detach())
        assert torch.equal(y, expected)


COUNT = torch.zeros(2)


@pytest.mark.parametrize(
    "write",
    [
        lambda: COUNT.add_(1),
        lambda: COUNT[0].add_(1),
        lambda: COUNT.view(2).fill_(2),
        lambda: COUNT.view(2, 1).unbind(1)[0].add_(1),
        lambda: torch.add(COUNT, 1, out=COUNT),
        lambda: torch._foreach_add_([COUNT], 1),
    ],
    ids=["whole", "element", "view", "one-of-views", "out", "foreach"],
)
def test_a_step_that_writes_into_a_tensor_of_nobody_is_refused(write: Callable[[], Tensor]) -> None:
    model = nn.Linear(4, 3)

    def loss(prediction: Tensor, target: Tensor) -> Tensor:
        write()
        return mse(prediction, target) * COUNT.sum()

    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.1), loss)
    message = r"(?s)writes into a tensor of shape \(2,\) .*test_writes.py:\d+.*make it a buffer"
    with pytest.raises(TracingError, match=message):
        step(torch.randn(6, 4), torch.randn(6, 3))

    assert torch.equal(COUNT, torch.zeros(2))  # also the trace has not written


@pytest.mark.parametrize(
    "make", [lambda: COUNT.clone(), lambda: COUNT + 0, lambda: torch.zeros(2)], ids=["clone", "sum", "new"]
)
def test_a_step_may_write_into_what_it_makes(make: Callable[[], Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)

    def loss(prediction: Tensor, target: Tensor) -> Tensor:
        total, scale = torch.tensor(0.0), make()
        scale[0] = 3.0
        total += mse(prediction * scale.add_(1), target)
        return total

    x, y = torch.randn(6, 4), torch.randn(6, 2)
    expected = loss(model(x), y).detach()

    torch.testing.assert_close(TrainStep(model, optim.SGD(model.parameters(), lr=0.1), loss)(x, y), expected)
    assert torch.equal(COUNT, torch.zeros(2))


def test_a_step_may_branch_by_cond_and_eager_code_may_behind_it() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)

    def loss(prediction: Tensor, target: Tensor) -> Tensor:
        error = mse(prediction, target)
        return torch.cond(error > 1, lambda x: x.sqrt(), lambda x: x * 2, (error,))  # type: ignore[no-any-return]

    x, y = torch.randn(6, 4), torch.randn(6, 3)
    for scale in (0.1, 10.0):
        expected = loss(model(x), scale * y).detach()
        step = TrainStep(model, optim.SGD(model.parameters(), lr=0.0), loss)
        torch.testing.assert_close(step(x, scale * y), expected)
        torch.testing.assert_close(loss(model(x), scale * y).detach(), expected)
