"""Modules of graphs whose strides PyTorch states wrongly, and whose kernels trust them (torch 2.13)."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import mse_loss

from npu_ir.capture import convert_graph_module
from npu_runtime import to_torch


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8), nn.ELU())
        self.tokens = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> Any:
        return self.tokens(self.layers(images).flatten(2).transpose(1, 2)).mean(1)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_gradients_of_a_group_norm_are_right_in_a_module(format: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = Patches()
    images, target = torch.randn(2, 3, 4, 5).contiguous(memory_format=format), torch.randn(2, 5)

    def gradients(parameters: dict[str, torch.Tensor], images: torch.Tensor, target: torch.Tensor) -> Any:
        loss = mse_loss(functional_call(model, parameters, (images,)), target)
        return torch.autograd.grad(loss, list(parameters.values()))

    arguments = dict(model.named_parameters()), images, target
    traced = make_fx(gradients, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)
    graph = convert_graph_module(traced)

    found = to_torch(graph)(*arguments[0].values(), images, target)

    assert list(graph.nodes_of("aten.native_group_norm_backward.default"))
    torch.testing.assert_close(tuple(found), gradients(*arguments))
