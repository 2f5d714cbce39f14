"""Recurrent networks become products of all steps, and loops over them."""

import re

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_passes import PassManager
from tests.support.corpus.case import Function
from tests.support.passes.cpu_cases import assert_computes, ops, optimized, refusals
from tests.support.recurrent_models import NETWORKS, Recurrent

PASSES = "constant-folding,pack-recurrent"
LAYERS = ("npu.lstm_layer", "npu.rnn_layer")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("has_states", [False, True], ids=["zeros", "states"])
def test_a_network_is_a_product_and_a_loop_for_each_layer_and_direction(name: str, has_states: bool) -> None:
    model, x = Recurrent(name), torch.randn(3, 4, 5)
    rows = x.shape[0] if model.network.batch_first else x.shape[1]
    given = (x, *(model.first_states(rows) if has_states else ()))

    graph = optimized(model, *given, passes=PASSES)

    count = model.network.num_layers * (1 + model.network.bidirectional)
    found = ops(graph)
    assert found["linear"] == count
    assert sum(found[layer] for layer in LAYERS) == count
    assert_computes(graph, model, *given)


def test_weights_are_packed_when_they_are_bound() -> None:
    graph = optimized(Recurrent("gru"), torch.randn(3, 4, 5), passes=f"{PASSES},pack-matrix")

    made = [node.op_type for node in graph.prologue]

    assert made.count("npu.pack_gates.default") == 2  # of the weight and the bias of the states
    assert made.count("npu.pack_filters.default") == 1
    assert ops(graph)["npu.packed_linear"] == 1


def test_other_weights_are_bound_to_the_same_graph() -> None:
    model, x = Recurrent("lstm of two layers, both directions"), torch.randn(3, 4, 5)
    graph = optimized(model, x, passes=PASSES)

    other = Recurrent("lstm of two layers, both directions")
    for parameter in other.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)

    assert_computes(graph, other, x)


def test_a_network_in_training_mode_without_dropout_is_split() -> None:
    model = Recurrent("lstm, batches first").train()
    graph = extract_ir(model, (torch.randn(3, 4, 5),))

    assert ops(PassManager(PASSES).run(graph).graph)["npu.lstm_layer"] == 2


@pytest.mark.parametrize(("network", "dtype", "reason"), [
    pytest.param(nn.LSTM(5, 7, proj_size=3), torch.float32, "its states are projected", id="projected"),
    pytest.param(nn.GRU(5, 7), torch.float64, "f64.*, not a tensor of floats of 32 or 16 bits", id="doubles"),
])  # fmt: skip
def test_what_is_not_split_has_the_reason(network: nn.Module, dtype: torch.dtype, reason: str) -> None:
    found = refusals(network.to(dtype), torch.randn(3, 4, 5, dtype=dtype), passes="pack-recurrent")

    assert len(found) == 1
    assert re.search(reason, found[0].reason), found[0].reason


def test_dropout_between_layers_stays_in_training() -> None:
    network = nn.LSTM(5, 7, num_layers=2, dropout=0.5).train()
    result = PassManager("pack-recurrent").run(extract_ir(network, (torch.randn(3, 4, 5),)))

    assert "it drops elements between its layers, at random" in str(result.journal.refusals)


def test_open_sizes_stay() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    graph = extract_ir(nn.GRU(5, 7).eval(), (torch.randn(3, 4, 5),), dynamic_shapes=({1: rows},))

    result = PassManager("pack-recurrent").run(graph)

    assert "the backend host takes fixed sizes" in str(result.journal.refusals)


def test_weights_that_a_call_computes_stay() -> None:
    def run(x: Tensor, h: Tensor, weight: Tensor) -> Tensor:
        return torch.rnn_tanh(x, h, [weight, weight], False, 1, 0.0, False, False, False)[0]

    inputs = torch.randn(3, 4, 5), torch.randn(1, 4, 5), torch.randn(5, 5)
    (found,) = refusals(Function(run), *inputs, passes="pack-recurrent")

    assert "is an input, or is updated" in found.reason
