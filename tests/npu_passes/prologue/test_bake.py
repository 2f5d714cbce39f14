"""A graph with its prologue evaluated computes the same, with other weights and to the bit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import WeightError, execute_ir, extract_ir
from npu_ir.core.tensor_bytes import same_data
from npu_passes import PassManager, bake
from tests.support.corpus.case import Holding
from tests.support.passes.folding_cases import FOLDING, folded, op_types, trained
from tests.support.small_programs import program

X = torch.randn(2, 3, 9, 9)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 3, groups=2),
        nn.BatchNorm2d(6, affine=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.BatchNorm1d(5),
    )


def test_a_baked_graph_has_no_prologue_and_computes_the_same_to_the_bit() -> None:
    model = trained(network())
    graph = folded(model, X)
    text = str(graph)

    baked, weights = bake(graph, model.state_dict())

    assert baked.prologue == ()
    assert [node.op_type for node in baked.nodes] == op_types(graph)
    assert str(graph) == text
    assert same_data(
        execute_ir(baked, [X], weights=weights), execute_ir(graph, [X], weights=model.state_dict())
    )


def test_weights_that_nothing_reads_any_more_are_left_out() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.PReLU()))

    baked, weights = bake(folded(model, X), model.state_dict())

    assert list(baked.parameters) == ["2.weight", "folded.0.weight", "folded.0.bias"]
    assert list(baked.buffers) == []
    assert weights.keys() == baked.parameters.keys()
    assert weights["2.weight"].data_ptr() == model[2].weight.data_ptr()


def test_a_graph_without_prologue_keeps_what_it_reads() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    graph, x = extract_ir(model, (X[0, 0, :, :3],)), X[0, 0, :, :3]

    baked, weights = bake(graph, model.state_dict())

    assert "1.num_batches_tracked" not in weights
    assert same_data(
        execute_ir(baked, [x], weights=weights), execute_ir(graph, [x], weights=model.state_dict())
    )


def test_a_view_of_a_weight_shares_its_memory() -> None:
    model = Holding(lambda self, x: x @ self.w.t(), w=nn.Parameter(torch.randn(4, 3)))
    x = torch.randn(2, 3)

    baked, weights = bake(folded(model, x), model.state_dict())

    (tensor,) = weights.values()
    assert tensor.data_ptr() == model.w.data_ptr()
    assert same_data(execute_ir(baked, [x], weights=weights), model(x).detach())


def test_buffers_that_the_graph_updates_stay() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * self.w.exp() * self.count

    model = Holding(function, w=nn.Parameter(torch.randn(3)), count=torch.zeros(1))
    x = torch.randn(2, 3)
    graph, before = folded(model, x), {name: item.clone() for name, item in model.state_dict().items()}

    baked, weights = bake(graph, before)

    result, mutations = execute_ir(baked, [x], weights=weights, return_mutations=True)
    assert same_data(mutations["count"], torch.ones(1))
    assert same_data(result, model(x).detach())


def test_tied_weights_are_needed_once() -> None:
    layer = nn.Linear(3, 3, bias=False)
    model = Holding(
        lambda self, x: self.two(self.one(x)).relu() * self.one.weight.sum(), one=layer, two=layer
    )
    x = torch.randn(2, 3)

    baked, weights = bake(folded(model, x), model.state_dict())

    assert set(weights) == {"one.weight", "folded.sum_1"}
    assert same_data(execute_ir(baked, [x], weights=weights), model(x).detach())


@pytest.mark.smoke
def test_numbers_become_plain_data() -> None:
    graph = program("""
        input %x: f32[4]
        param %w: f32[]
        %item: float = aten._local_scalar_dense.default(self=%w)
        %y: f32[4] = aten.mul.Tensor(self=%x, other=%item)
        return (%y, %item)
    """)

    baked, weights = bake(PassManager(FOLDING).run(graph).graph, {"w": torch.tensor(2.5)})

    assert weights == {}
    assert baked.nodes[0].attrs == {"other": 2.5}
    result, number = execute_ir(baked, [torch.ones(4)])
    assert (result.tolist(), number) == ([2.5] * 4, 2.5)


def test_buffers_outside_of_the_state_dict_are_weights() -> None:
    model, x = Holding(lambda self, x: x * self.table.exp() + self.table), torch.randn(2, 3)
    model.register_buffer("table", torch.randn(3), persistent=False)
    graph, other = folded(model, x), torch.randn(3)

    baked, weights = bake(graph, {"table": other})

    assert weights["table"] is other
    expected = execute_ir(graph, [x], constants={"table": other})
    assert same_data(execute_ir(baked, [x], weights=weights), expected)


def test_weights_that_do_not_fit_are_refused() -> None:
    model = trained(network())

    with pytest.raises(WeightError, match="missing: 0.weight"):
        bake(folded(model, X), {})
