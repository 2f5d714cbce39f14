"""Language models with quantized weights generate what models of these very weights generate."""

import functools
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir.errors import UsageError
from npu_passes.library.quantization.quantize_weights import QuantizeWeights
from npu_passes.ops.dynamic_quantized import dequantize_activations, round_activations
from npu_passes.ops.quantized import dequantize
from npu_runtime import Decoder, DecoderGraphs, compare, extract_decoder
from npu_runtime.decoders.extract import QUANTIZATIONS
from tests.support.language_models import VOCABULARY, configuration, generate, language_model
from tests.support.rows import each_row

PROMPTS = torch.randint(3, VOCABULARY, (2, 11), generator=torch.Generator().manual_seed(0))
SMALL = {"int8": QuantizeWeights(min_elements=0), "int4": QuantizeWeights(bits=4, group=16, min_elements=0)}


DYNAMIC = {
    "int8-dynamic": replace(SMALL["int8"], activations="int8"),
    "int4-dynamic": replace(SMALL["int4"], activations="int8"),
}


@functools.cache
def extracted(form: str) -> DecoderGraphs:
    """Return the graphs of a model with its weights quantized, which no test changes."""
    passes = {**SMALL, **DYNAMIC}[form]
    return extract_decoder(language_model("llama"), max_batch=2, max_length=64, counts=(4,), quantize=passes)


@functools.cache
def extracted_by_name(form: str | None) -> DecoderGraphs:
    """Return the graphs of a model of one layer, quantized as a name says, which no test changes."""
    return extract_decoder(one_layer(), max_length=32, counts=(), quantize=form)


def one_layer() -> Any:
    return language_model("llama", num_hidden_layers=1)


def round_weights(model: Any, item: QuantizeWeights) -> Any:
    """Return a copy of a model whose linear layers have the floats that quantized weights stand for."""
    rounded = deepcopy(model)
    for module in rounded.modules():
        if isinstance(module, nn.Linear):
            weight = module.weight.detach()
            group = item.group or weight.shape[1]
            integers, scales = torch.ops.npu.quantize_weight(weight, item.bits, group)
            module.weight = nn.Parameter(dequantize(integers, scales, torch.float32))
    return rounded


@pytest.mark.smoke
@each_row("form", list(SMALL))
def test_tokens_are_those_of_a_model_with_rounded_weights(form: str) -> None:
    model = language_model("llama")
    graphs, weights = extracted(form), model.state_dict()

    made = {backend: Decoder(graphs, weights, backend=backend) for backend in (None, "aten")}

    expected = generate(round_weights(model, SMALL[form]), PROMPTS, 40)
    for backend, item in made.items():
        assert torch.equal(item.generate(PROMPTS, max_new_tokens=40), expected), backend


def round_inputs(model: Any, item: QuantizeWeights) -> Any:
    """Return a copy of a model whose linear layers have rounded weights, and round their inputs as well."""
    rounded = round_weights(model, item)
    for module in rounded.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(
                lambda layer, inputs: rounded_input(inputs[0], item.group or layer.in_features, item.block)
            )
    return rounded


def rounded_input(x: Tensor, group: int, block: int) -> Tensor:
    return dequantize_activations(*round_activations(x, group, block), block)


@each_row("form", list(DYNAMIC))
def test_tokens_are_those_of_a_model_with_rounded_weights_and_inputs(form: str) -> None:
    model = language_model("llama")
    graphs, weights = extracted(form), model.state_dict()

    made = {backend: Decoder(graphs, weights, backend=backend) for backend in (None, "aten")}

    expected = generate(round_inputs(model, DYNAMIC[form]), PROMPTS, 40)
    for backend, item in made.items():
        assert torch.equal(item.generate(PROMPTS, max_new_tokens=40), expected), backend


@each_row("form", list(DYNAMIC))
def test_a_scheme_by_name_is_that_pass(form: str) -> None:
    graphs = extracted_by_name(form)

    assert QUANTIZATIONS[form] == replace(DYNAMIC[form], group=0, min_elements=1024)
    kinds = [node.op_type for node in graphs.by_count[1].body]
    assert "npu.dynamic_quantized_linear.default" in kinds
    assert "npu.quantized_linear.default" not in kinds


def test_weights_that_are_matrices_of_columns_are_quantized_too() -> None:
    model = language_model("gpt2")
    graphs = extract_decoder(model, max_batch=2, max_length=64, counts=(4,), quantize="int8")

    made, aten = (Decoder(graphs, model.state_dict(), backend=item) for item in (None, "aten"))

    tokens = made.generate(PROMPTS, max_new_tokens=30)
    assert torch.equal(tokens, aten.generate(PROMPTS, max_new_tokens=30))
    kinds = [node.op_type for node in graphs.by_count[1].body]
    assert kinds.count("npu.quantized_linear.default") == 9
    assert "aten.addmm.default" not in kinds


def test_graphs_share_the_integers() -> None:
    model = one_layer()
    made = Decoder(extract_decoder(model, max_length=32, counts=(4,), quantize="int8"), model.state_dict())

    def integers(count: int) -> set[int]:
        values = made.executor(count)._engine.bound.values.values()
        return {item.data_ptr() for item in values if item.dtype == torch.int8}

    assert len(integers(1)) == 6
    assert integers(1) == integers(4)


@each_row("form", ["int8", "int8-dynamic"])
def test_a_decoder_is_compared_with_that_of_floats(form: str) -> None:
    model = one_layer()
    call = PROMPTS[:1, :1], torch.tensor(0), torch.tensor([0]), torch.tensor(0)
    exact, rounded = extracted_by_name(None), extracted_by_name(form)
    weights = {**exact.constants, **model.state_dict()}

    found = compare(exact.by_count[1], rounded.by_count[1], call, weights=weights, atol=0.5, rtol=0)

    assert found.ok, found
    assert not compare(exact.by_count[1], rounded.by_count[1], call, weights=weights, atol=1e-4, rtol=0).ok


def test_a_quantization_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no quantization 'int3', but int8, int4, int8-dynamic, "):
        extract_decoder(configuration("llama"), quantize="int3")
