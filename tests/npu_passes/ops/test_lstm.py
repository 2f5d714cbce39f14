"""``npu::lstm`` gives the bits of PyTorch's LSTM, and its gradients."""

import pytest
import torch
from torch import Tensor, nn

import npu_passes.ops.training  # noqa: F401 - it registers the ops

LSTM = torch.ops.npu.lstm


def network_and_inputs() -> tuple[nn.LSTM, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, *states = (torch.randn(*shape, requires_grad=True) for shape in ((5, 3, 7), (1, 3, 8), (1, 3, 8)))
    return nn.LSTM(7, 8), x, *states


@pytest.mark.parametrize("read", [(0,), (2,), (0, 1, 2)])
def test_results_and_gradients_are_those_of_pytorch(read: tuple[int, ...]) -> None:
    network, x, h, c = network_and_inputs()
    weights = list(network.parameters())
    y, states = network(x, (h, c))
    ours = LSTM(x, *weights, h[0], c[0], False)
    pairs = [(y, ours[0]), (states[0][0], ours[1]), (states[1][0], ours[2])]

    expected, actual = (
        torch.autograd.grad(sum(pairs[place][side].square().sum() for place in read), [x, h, c, *weights])
        for side in (0, 1)
    )

    torch.testing.assert_close([b for _, b in pairs], [a for a, _ in pairs], rtol=0, atol=0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_memory_in_another_order_gives_the_same() -> None:
    network, x, h, c = network_and_inputs()
    weights = list(network.parameters())
    turned = x.transpose(0, 1).contiguous().transpose(0, 1)

    with torch.no_grad():
        results = [LSTM(item, *weights, h[0], c[0], True) for item in (x, turned)]

    torch.testing.assert_close(results[1][:3], results[0][:3], rtol=0, atol=0)


def test_the_ops_say_what_they_return() -> None:
    network, x, h, c = network_and_inputs()
    weights = list(network.parameters())
    tensors = [item.detach() for item in (x, *weights, h[0], c[0])]

    torch.library.opcheck(LSTM.default, (x, *weights, h[0], c[0], False), test_utils="test_schema")
    torch.library.opcheck(LSTM.default, (*tensors, False), test_utils="test_faketensor")
    y, *rest = LSTM(*tensors, False)
    args = (*tensors, y, *rest, torch.ones_like(y), None, None, False)
    torch.library.opcheck(torch.ops.npu.lstm_backward.default, args, test_utils="test_faketensor")
