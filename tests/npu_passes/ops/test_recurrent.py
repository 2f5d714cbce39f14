"""Layers of recurrent networks, with packed weights, against PyTorch's cells."""

import pytest
import torch
from torch import Tensor, nn

from npu_passes.ops.recurrent import GATES, units_of_panel, weight_of

ops = torch.ops.npu
HIDDEN = (1, 16, 20, 70)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("gates", sorted(set(GATES.values())))
def test_panels_have_all_gates_of_some_outputs(gates: int, hidden: int) -> None:
    weight = torch.randn(gates * hidden, 9)

    panels = ops.pack_gates(weight, gates)

    units = units_of_panel(gates, hidden)
    assert panels.shape == (-(-hidden // units), 9, gates * units)
    assert gates * units <= 64
    assert units % 16 == 0
    assert torch.equal(weight_of(panels, gates, hidden), weight)
    first = min(units, hidden)
    assert torch.equal(panels[0, :, (gates - 1) * units :][:, :first], weight[-hidden:][:first].t())
    assert panels.count_nonzero() == weight.count_nonzero()


def layer_inputs(cell: str, hidden: int) -> tuple[nn.RNNBase, Tensor, Tensor, Tensor | None]:
    torch.manual_seed(0)
    kinds = {"lstm": nn.LSTM, "gru": nn.GRU}
    network = kinds[cell](5, hidden) if cell in kinds else nn.RNN(5, hidden, nonlinearity=cell)
    x, gates = torch.randn(3, 2, 5), GATES[cell]
    projected = nn.functional.linear(x, network.weight_ih_l0, network.bias_ih_l0)
    bias = ops.pack_gates(network.bias_hh_l0[:, None], gates)
    return network, x, projected, bias


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_layer_gives_what_pytorch_gives(cell: str, hidden: int, reverse: bool) -> None:
    network, x, projected, bias = layer_inputs(cell, hidden)
    panels = ops.pack_gates(network.weight_hh_l0, GATES[cell])
    h, c = torch.randn(2, hidden), torch.randn(2, hidden)

    first = (h[None], c[None]) if cell == "lstm" else h[None]
    y, last = network(x.flip(0) if reverse else x, first)
    found = (
        ops.lstm_layer(projected, panels, h, c, bias, reverse)
        if cell == "lstm"
        else ops.rnn_layer(projected, panels, h, bias, cell, reverse)
    )

    wanted = (y.flip(0) if reverse else y, *(item[0] for item in (last if cell == "lstm" else (last,))))
    torch.testing.assert_close(tuple(found), wanted)


def test_no_steps_give_the_first_states() -> None:
    h, c = torch.randn(2, 7), torch.randn(2, 7)
    panels = ops.pack_gates(torch.randn(28, 7), 4)

    y, last_h, last_c = ops.lstm_layer(torch.empty(0, 2, 28), panels, h, c, None, False)

    assert y.shape == (0, 2, 7)
    assert torch.equal(last_h, h)
    assert torch.equal(last_c, c)
    assert last_h.data_ptr() != h.data_ptr()


def test_shapes_are_known_without_data() -> None:
    with torch.device("meta"):
        projected, panels, h = torch.empty(3, 2, 60), torch.empty(2, 20, 48), torch.empty(2, 20)

    y, last = ops.rnn_layer(projected, panels, h, None, "gru", True)

    assert (y.shape, last.shape, y.device.type) == ((3, 2, 20), (2, 20), "meta")


def test_gradients_pass_through_a_layer() -> None:
    network, x, _, _ = layer_inputs("gru", 7)
    h = torch.randn(2, 7)
    network(x, h[None])[0].sum().backward()
    wanted = network.weight_hh_l0.grad
    network.zero_grad()

    projected = nn.functional.linear(x, network.weight_ih_l0, network.bias_ih_l0)
    panels, bias = ops.pack_gates(network.weight_hh_l0, 3), ops.pack_gates(network.bias_hh_l0[:, None], 3)
    ops.rnn_layer(projected, panels, h, bias, "gru", False)[0].sum().backward()

    torch.testing.assert_close(network.weight_hh_l0.grad, wanted)
