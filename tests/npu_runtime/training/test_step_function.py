"""A batch in parts: gradients and results are those of the whole batch, whatever its size."""

import copy

import pytest
import torch
from torch import Tensor, optim
from torch.nn import functional as F

from npu_runtime import TracingError, TrainStep
from npu_runtime.training.step_function import split_batch
from tests.support.training.eager import step_by_hand
from tests.support.training.models import MLP


def loss_and_more(prediction: Tensor, target: Tensor) -> dict[str, Tensor]:
    return {
        "loss": F.mse_loss(prediction, target),
        "hits": (prediction.argmax(-1) == target.argmax(-1)).sum(),
        "prediction": prediction,
    }


def test_a_last_batch_of_another_size_trains_as_the_whole_batch_in_eager() -> None:
    model = MLP()
    twin = copy.deepcopy(model)
    optimizer = optim.SGD(model.parameters(), 0.1)
    step = TrainStep(model, optimizer, loss_and_more, accumulate=4, capture="require")
    eager = step_by_hand(twin, optim.SGD(twin.parameters(), 0.1), loss_and_more)

    for rows in (8, 6, 3, 8):
        x, y = torch.randn(rows, 7), torch.randn(rows, 3)
        results, expected = step(x, y), eager(x, y)

        torch.testing.assert_close(results["loss"], expected["loss"])
        torch.testing.assert_close(results["prediction"], expected["prediction"])
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-5, atol=1e-5)


def test_numbers_of_the_parts_are_averaged_and_rows_joined() -> None:
    model = MLP()
    twin = copy.deepcopy(model)
    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.1), loss_and_more, accumulate=2)
    x, y = torch.randn(5, 7), torch.randn(5, 3)

    results = step(x, y)

    prediction = twin(x).detach()
    hits = prediction.argmax(-1) == y.argmax(-1)
    torch.testing.assert_close(results["prediction"], prediction)
    torch.testing.assert_close(results["hits"], (hits[:3].sum() * 3 + hits[3:].sum() * 2) / 5)


@pytest.mark.parametrize(("rows", "count", "sizes"), [
    pytest.param(8, 4, [2, 2, 2, 2], id="equal"),
    pytest.param(10, 4, [3, 3, 2, 2], id="as even as they can be"),
    pytest.param(3, 4, [1, 1, 1], id="fewer rows than parts"),
    pytest.param(0, 4, [0], id="no rows"),
    pytest.param(5, 1, [5], id="one part"),
])  # fmt: skip
def test_the_parts_make_up_the_batch(rows: int, count: int, sizes: list[int]) -> None:
    x, scale = torch.randn(rows, 2), torch.tensor(3.0)

    parts = split_batch(((x,), {"scale": scale}), count)

    cut = [part.arguments[0][0] for part in parts]
    assert [len(item) for item in cut] == sizes
    assert torch.equal(torch.cat(cut), x)
    assert sum(1 / part.share for part in parts) == pytest.approx(1)
    assert all(part.arguments[1]["scale"] is scale for part in parts)


def test_tensors_of_several_lengths_are_cut_if_each_can_be_cut_evenly() -> None:
    parts = split_batch(((torch.arange(4), torch.arange(12)), {}), 2)

    assert [[len(item) for item in part.arguments[0]] for part in parts] == [[2, 6], [2, 6]]


def test_tensors_that_cannot_be_cut_alike_are_refused_before_anything_runs() -> None:
    model = MLP()
    optimizer = optim.Adam(model.parameters())
    before = copy.deepcopy(model.state_dict())
    step = TrainStep(model, optimizer, F.mse_loss, accumulate=4)

    with pytest.raises(
        TracingError,
        match=r"(?s)tensors of 6 and 3 rows cannot be cut alike into 4 parts.*multiples of accumulate=4",
    ):
        step(torch.randn(6, 7), torch.randn(3))

    assert not optimizer.state
    assert all(torch.equal(item, before[name]) for name, item in model.state_dict().items())
