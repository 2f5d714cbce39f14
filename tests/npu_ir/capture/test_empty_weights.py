"""Building a model whose parameters are on meta while its buffers are computed."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from npu_ir import empty_weights, execute_ir, extract_ir


class Rotary(nn.Module):
    """What a checkpoint holds, and what is computed from the configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.index = nn.Parameter(torch.arange(4), requires_grad=False)
        self.register_buffer("inv_freq", 1.0 / 100 ** (torch.arange(4) / 4), persistent=False)
        self.original_inv_freq = self.inv_freq
        self.register_buffer("steps", torch.tensor([7.0]))
        self.shifts = [torch.arange(4.0)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = self.linear(x) * self.inv_freq * self.original_inv_freq
        result: torch.Tensor = turned + self.shifts[0] + self.index * self.steps
        return result


def test_a_model_without_weights_gives_the_graph_of_the_real_one_and_runs_from_its_checkpoint_alone() -> None:
    with empty_weights():
        empty = Rotary()
    model, x = Rotary(), torch.randn(2, 4)

    graph = extract_ir(empty, (x,))

    assert all(parameter.is_meta for parameter in empty.parameters())
    assert graph == extract_ir(model, (x,))
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


def test_parameters_keep_what_they_are_but_for_their_data() -> None:
    special = nn.Parameter(torch.ones(2, 2, dtype=torch.half), requires_grad=False)
    special.is_special = True  # type: ignore[attr-defined]

    with empty_weights():
        module = nn.Module()
        module.first, module.second = special, special
        module.bias = nn.Parameter(torch.ones(2))

    assert module.first is module.second
    assert (module.first.dtype, module.first.requires_grad, module.first.is_special) == (
        torch.half,
        False,
        True,
    )
    assert module.bias.requires_grad
    assert module.bias.is_meta


def test_lazy_and_empty_parameters_stay_as_they_are() -> None:
    with empty_weights():
        lazy, plain = nn.LazyLinear(3), nn.Linear(2, 2, bias=False)

    assert type(lazy.weight) is nn.UninitializedParameter
    assert plain.bias is None


def test_what_is_built_outside_or_by_another_thread_has_weights() -> None:
    made: list[nn.Module] = []

    with empty_weights():
        thread = threading.Thread(target=lambda: made.append(nn.Linear(2, 2)))
        thread.start()
        thread.join()
    with pytest.raises(RuntimeError, match="stop"), empty_weights():
        raise RuntimeError("stop")

    assert not made[0].weight.is_meta
    assert not nn.Linear(2, 2).weight.is_meta


def test_a_llama_without_weights_runs_from_its_checkpoint_alone() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_cache=False,
    )
    with empty_weights():
        empty = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.tensor([[1, 2, 3]])

    graph = extract_ir(empty, (), {"input_ids": tokens, "return_dict": False})

    model = transformers.LlamaForCausalLM(config).eval()
    call = {"input_ids": tokens, "return_dict": False}
    with torch.no_grad():
        expected = model(**call)
    assert torch.equal(execute_ir(graph, (), call, weights=model.state_dict())[0], expected[0])
