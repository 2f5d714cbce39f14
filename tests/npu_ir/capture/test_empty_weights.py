"""Models without weights, and weights that wrap other tensors."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, ones, randn

from npu_ir import (
    ConversionError,
    Graph,
    TensorType,
    WeightError,
    empty_weights,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
)
from npu_ir.capture.program_signature import add_parts
from npu_ir.graph.binding import flatten_wrappers
from tests.support.corpus.case import Holding
from tests.support.rows import each_row
from tests.support.wrapped_models import Negated, Quantized, Scaled, Tied, Using, parameter, scaled

# Building a model whose parameters are on meta while its buffers are computed.


def rotary() -> nn.Module:
    """Return a model of what a checkpoint holds, and of what is computed from the configuration."""
    frequencies = 1.0 / 100 ** (torch.arange(4) / 4)
    model = Holding(
        lambda self, x: (
            self.linear(x) * self.inv_freq * self.held[0] + self.held[1] + self.index * self.steps
        ),
        linear=nn.Linear(4, 4),
        index=nn.Parameter(torch.arange(4), requires_grad=False),
        steps=torch.tensor([7.0]),
        held=[frequencies, torch.arange(4.0)],
    )
    model.register_buffer("inv_freq", frequencies, persistent=False)
    return model


def test_a_model_without_weights_gives_the_graph_of_the_real_one_and_runs_from_its_checkpoint_alone() -> None:
    with empty_weights():
        empty = rotary()
    model, x = rotary(), torch.randn(2, 4)

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


# Parameters of tensor subclasses that wrap plain tensors: a graph has the plain ones.


def test_a_wrapped_parameter_becomes_its_plain_tensors_by_which_it_may_be_given(tmp_path: Path) -> None:
    model, x, path = Quantized(), randn(3, 4), tmp_path / "g.json"
    weights = {**flatten_wrappers(model.state_dict())}

    graph = extract_ir(model, (x,))

    assert {key: str(value.type) for key, value in graph.parameters.items()} == {
        "layer.weight.q": "i8[4, 4]",
        "layer.weight.scale": "f32[4, 1]",
        "layer.weight.note": "f32[2]",
        "layer.bias": "f32[4]",
    }
    on_meta = Quantized("meta")
    assert graph == extract_ir(on_meta, (randn(3, 4, device="meta"),))
    assert on_meta.layer.weight.is_meta
    save_ir(graph, path, weights=model.state_dict())
    assert load_ir(path) == graph == parse_ir(str(graph))
    for given in (model.state_dict(), weights, path):
        assert torch.equal(execute_ir(graph, (x,), weights=given), model(x))
    missing = {key: weight for key, weight in weights.items() if key != "layer.weight.scale"}
    with pytest.raises(WeightError, match=r"missing: layer.weight.scale, f32\[4, 1\]"):
        execute_ir(graph, (x,), weights=missing)
    twice = {**model.state_dict(), "layer.weight.scale": ones(4, 1)}
    for order in (twice, dict(reversed(twice.items()))):
        with pytest.raises(
            WeightError, match="'layer.weight.scale' is given twice: on its own, and as a part"
        ):
            execute_ir(graph, (x,), weights=order)


def test_a_wrapped_buffer_is_taken_apart_if_it_is_persistent() -> None:
    model = Holding(lambda self, x: x @ self.more, more=scaled())
    hidden = Holding(lambda self, x: x @ self.more)
    hidden.register_buffer("more", scaled(), persistent=False)

    graph = extract_ir(model, (ones(3, 4),))

    assert [*graph.buffers] == ["more.q", "more.scale", "more.note"]
    assert torch.equal(execute_ir(graph, (ones(3, 4),), weights=model.state_dict()), model(ones(3, 4)))
    with pytest.raises(ConversionError, match="'more' is a tensor subclass, and is not a parameter"):
        extract_ir(hidden, (ones(3, 4),))


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


def test_a_wrapped_input_is_refused() -> None:
    with pytest.raises(
        ConversionError,
        match=r"'x' is a tensor subclass, and is not a parameter or buffer of the state_dict"
        r"[\s\S]*fix: make it a parameter or a persistent buffer, or pass the plain tensors in it",
    ):
        extract_ir(Using(ones(4, 4), lambda w, x: x @ w), (scaled(),))


@each_row("function, message", {
    "a result": (lambda w, x: (w, x), "output works on 'w' as a whole, which is a tensor subclass"),
    "a branch": (lambda w, x: torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: x - w, (x,)),
        "cond works on 'w' as a whole, which is a tensor subclass"),
    "an op it does not take apart itself": (lambda w, x: w + x, r"aten.add.Tensor works on 'w' as a whole"),
})  # fmt: skip
def test_a_wrapped_parameter_as_a_whole_is_refused(function: Any, message: str) -> None:
    with pytest.raises(
        ConversionError, match=message + r"[\s\S]*fix: .*: not inside of control flow, nor as a result"
    ):
        extract_ir(Using(scaled(), function), (ones(4, 4),))
