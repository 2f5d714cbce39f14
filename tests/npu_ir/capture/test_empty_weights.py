"""Models without weights, and weights that wrap other tensors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn

from npu_ir import (
    ConversionError,
    ExportError,
    Graph,
    TensorType,
    WeightError,
    empty_weights,
    execute_ir,
    extract_ir,
    load_ir,
    load_weights,
    parse_ir,
    save_ir,
)
from npu_ir.capture.program_signature import add_parts
from npu_ir.graph.binding import flatten_wrappers
from tests.support.rows import each_row
from tests.support.wrapped_models import Negated, Quantized, Scaled, Tied, Using, parameter, scaled

# Building a model whose parameters are on meta while its buffers are computed.


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


# Parameters of tensor subclasses that wrap plain tensors: a graph has the plain ones.


PARTS = ["layer.weight.q", "layer.weight.scale", "layer.weight.note"]


def test_a_wrapped_parameter_becomes_its_plain_tensors() -> None:
    model, x = Quantized(), randn(3, 4)

    graph = extract_ir(model, (x,))

    assert {key: str(value.type) for key, value in graph.parameters.items()} == {
        "layer.weight.q": "i8[4, 4]",
        "layer.weight.scale": "f32[4, 1]",
        "layer.weight.note": "f32[2]",
        "layer.bias": "f32[4]",
    }
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


def test_weights_are_taken_apart_or_come_apart() -> None:
    model, x = Quantized(), randn(3, 4)
    graph = extract_ir(model, (x,))
    weight = scaled()
    apart = dict(zip(PARTS, (weight.q, weight.scale, weight.note), strict=True))

    result = execute_ir(graph, (x,), weights={**apart, "layer.bias": model.layer.bias.detach()})

    assert torch.equal(result, model(x))


def test_a_real_model_and_one_on_meta_give_the_same_graph() -> None:
    model = Quantized("meta")

    graph = extract_ir(model, (randn(3, 4, device="meta"),))

    assert graph == extract_ir(Quantized(), (randn(3, 4),))
    assert model.layer.weight.is_meta


def test_the_plain_tensors_are_saved_and_loaded_with_the_graph(tmp_path: Path) -> None:
    model, x = Quantized(), randn(3, 4)
    graph = extract_ir(model, (x,))

    save_ir(graph, tmp_path / "g.json", weights=model.state_dict())

    loaded = load_ir(tmp_path / "g.json")
    assert loaded == graph == parse_ir(str(graph))
    assert {*load_weights(tmp_path / "g.json")} == {*PARTS, "layer.bias"}
    assert torch.equal(execute_ir(loaded, (x,), weights=tmp_path / "g.json"), model(x))


def test_a_wrapper_in_a_wrapper_is_taken_apart_to_the_end() -> None:
    graph, whole = Graph("g"), Negated(scaled())

    stands = add_parts(
        whole,
        ["a.w", "b.w"],
        lambda keys, part: graph.add_parameter(keys[0], TensorType.of(part), aliases=keys[1:]),
    )

    assert [*graph.parameters] == ["a.w.inner.q", "a.w.inner.scale", "a.w.inner.note"]
    assert graph.parameters["a.w.inner.q"].argument.aliases == ("b.w.inner.q",)
    assert stands.target == "a.w"
    assert stands.parts["inner"].parts["scale"] is graph.parameters["a.w.inner.scale"]
    assert {*flatten_wrappers({"a.w": whole, "v": ones(1)})} == {*graph.parameters, "v"}


def test_torch_export_does_not_capture_a_wrapper_in_a_wrapper() -> None:
    with pytest.raises(ExportError, match="torch.export cannot capture Using: RuntimeError: Scaled"):
        extract_ir(Using(Negated(scaled()), lambda w, x: x @ w), (randn(3, 4),))


def test_tied_wrapped_parameters_stay_tied() -> None:
    model, x = Tied(), randn(3, 4)

    graph = extract_ir(model, (x,))

    assert [*graph.parameters] == [
        "a.layer.weight.q",
        "a.layer.weight.scale",
        "a.layer.weight.note",
        "a.layer.bias",
        "b.layer.bias",
    ]
    assert graph.parameters["a.layer.weight.q"].argument.aliases == ("b.layer.weight.q",)
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))
    other = {**model.state_dict(), "b.layer.weight": scaled().each(lambda part: part + 1)}
    with pytest.raises(
        WeightError, match="b.layer.weight.q and a.layer.weight.q are tied in the model but differ"
    ):
        execute_ir(graph, (x,), weights=other)


def test_wrapped_parameters_that_share_a_part_are_not_tied() -> None:
    model, x = Tied(), randn(3, 4)
    weight = model.a.layer.weight
    model.b.layer.weight = parameter(Scaled(weight.q, weight.scale * 2, weight.note))

    graph = extract_ir(model, (x,))

    assert len(graph.parameters) == 8
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


def test_a_wrapped_buffer_is_taken_apart_too() -> None:
    class Buffered(Quantized):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("more", scaled())

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.more

    graph = extract_ir(Buffered(), (ones(3, 4),))

    assert [*graph.buffers] == ["more.q", "more.scale", "more.note"]
    assert torch.equal(
        execute_ir(graph, (ones(3, 4),), weights=Buffered().state_dict()), Buffered()(ones(3, 4))
    )


# What is refused


def test_a_wrapped_input_is_refused() -> None:
    with pytest.raises(
        ConversionError,
        match=r"'x' is a tensor subclass, and is not a parameter or buffer of the state_dict"
        r"[\s\S]*fix: make it a parameter or a persistent buffer, or pass the plain tensors in it",
    ):
        extract_ir(Using(ones(4, 4), lambda w, x: x @ w), (scaled(),))


def test_a_wrapped_buffer_that_is_not_persistent_is_refused() -> None:
    class Hidden(Quantized):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("more", scaled(), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.more

    with pytest.raises(ConversionError, match="'more' is a tensor subclass, and is not a parameter"):
        extract_ir(Hidden(), (ones(3, 4),))


@each_row(
    "function, message",
    {
        "a result": (lambda w, x: (w, x), "output works on 'w' as a whole, which is a tensor subclass"),
        "a branch": (
            lambda w, x: torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: x - w, (x,)),
            "cond works on 'w' as a whole, which is a tensor subclass",
        ),
        "an op it does not take apart itself": (
            lambda w, x: w + x,
            r"aten.add.Tensor works on 'w' as a whole",
        ),
    },
)
def test_a_wrapped_parameter_as_a_whole_is_refused(function: Any, message: str) -> None:
    with pytest.raises(
        ConversionError, match=message + r"[\s\S]*fix: .*: not inside of control flow, nor as a result"
    ):
        extract_ir(Using(scaled(), function), (ones(4, 4),))


def test_a_weight_that_is_given_twice_is_refused() -> None:
    model = Quantized()
    graph = extract_ir(model, (ones(3, 4),))
    weights = {**model.state_dict(), "layer.weight.scale": ones(4, 1)}

    for order in (weights, dict(reversed(weights.items()))):
        with pytest.raises(
            WeightError,
            match="the weight 'layer.weight.scale' is given twice: on its own, and as a part of another",
        ):
            execute_ir(graph, (ones(3, 4),), weights=order)


def test_a_part_that_is_missing_is_named() -> None:
    graph = extract_ir(Quantized(), (ones(3, 4),))

    with pytest.raises(WeightError, match=r"missing: layer.weight.scale, f32\[4, 1\]"):
        execute_ir(
            graph, (ones(3, 4),), weights={"layer.weight.q": scaled().q, "layer.weight.note": scaled().note}
        )
