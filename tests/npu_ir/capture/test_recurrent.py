"""The last states of LSTMs have the shapes that eager returns, where PyTorch traces others, too."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir, verify_ir
from npu_ir._torch.tracing import right_states_of_lstms


class Lstm(nn.Module):
    """A head on the last state of an LSTM, called as a function: PyTorch 2.9 does not export layers."""

    def __init__(self, layers: int = 1, directions: int = 1) -> None:
        super().__init__()
        self.layers, self.directions = layers, directions
        shapes = [
            shape
            for layer in range(layers)
            for _ in range(directions)
            for shape in ((28, 7 * directions if layer else 5), (28, 7), (28,), (28,))
        ]
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(shape) / 3) for shape in shapes)
        self.head = nn.Linear(7, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        zeros = x.new_zeros(self.layers * self.directions, x.shape[1], 7)
        both_ways = self.directions > 1
        weights: Sequence[Tensor] = list(self.weights)
        out, h, c = torch.lstm(x, (zeros, zeros), weights, True, self.layers, 0.0, False, both_ways, False)
        return out, c, self.head(h[-1])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 2)])
def test_the_last_states_of_a_batch_have_the_shapes_of_eager(rows: int, layers: int, directions: int) -> None:
    model, x = Lstm(layers, directions).eval(), torch.randn(4, rows, 5)

    graph = extract_ir(model, (x,))

    assert verify_ir(graph, model, (x,))
    assert [str(leaf.type).partition("@")[0] for leaf in graph.outputs] == [
        f"f32[4, {rows}, {7 * directions}]",
        f"f32[{layers * directions}, {rows}, 7]",
        f"f32[{rows}, 2]",
    ]


def test_the_function_of_pytorch_is_put_back() -> None:
    from torch._decomp import decompositions

    before = decompositions.one_layer_lstm

    with pytest.raises(ValueError, match="none"), right_states_of_lstms():
        int("none")

    assert decompositions.one_layer_lstm is before
