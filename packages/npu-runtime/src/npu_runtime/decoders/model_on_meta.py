"""Models of transformers on ``meta``, and the content of what no checkpoint has."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from npu_ir import ConversionError
from npu_runtime._torch.tensors import find_data_problem


def sinusoidal_positions(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters that transformers leaves out of checkpoints: it computes them (Marian)."""
    names = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    found = {}
    for path, module in model.named_modules():
        if f"{path}.weight" in names and "Sinusoidal" in type(module).__name__:
            copied = copy.deepcopy(module).to_empty(device="cpu")
            model._init_weights(copied)  # type: ignore[operator]
            found[f"{path}.weight"] = copied.weight.detach()
    return found


def model_on_meta(config: Any, model: Any) -> Any:
    """Return a model of random weights that have no data, in the dtypes of a model that is given.

    Otherwise in those in which transformers loads it: buffers that no checkpoint has, such as the frequencies
    of rotary embeddings, are as the model makes them, which may be more precise than its weights.
    """
    with torch.device("meta"):
        made: nn.Module = automatic_class(config).from_config(config)
    made.to("meta")  # a class may make buffers elsewhere
    given = dict(_tensors(model)) if isinstance(model, nn.Module) else {}
    wanted = getattr(config, "dtype", None) or torch.float32
    dtype = getattr(torch, wanted) if isinstance(wanted, str) else wanted  # a name in what a file says
    stored = made.state_dict()
    for name, item in _tensors(made):
        if name in given:
            item.data = item.data.to(given[name].dtype)
        elif name in stored and item.is_floating_point():
            item.data = item.data.to(dtype)
    _multiply_experts_one_by_one(made)
    return made.eval()


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers of a model, with their names."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def _multiply_experts_one_by_one(model: Any) -> None:
    """Have a mixture of experts multiply by the weights of each token's experts.

    The grouped product that transformers prefers is refused without data, unless weights are bfloat16.
    """
    is_grouped = getattr(model.config, "_experts_implementation", None) == "grouped_mm"
    if is_grouped and model.dtype is not torch.bfloat16:
        model.set_experts_implementation("batched_mm")


def automatic_class(config: Any) -> Any:
    """Return the class of transformers that makes a model that generates text of a configuration."""
    import transformers

    if not getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModelForCausalLM
    if type(config) in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        return transformers.AutoModelForSeq2SeqLM
    if type(config) in transformers.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING and hasattr(config, "num_mel_bins"):
        return transformers.AutoModelForSpeechSeq2Seq
    raise ConversionError(
        f"{config.model_type} has an encoder of something else than text, or sound as mel spectrograms",
        where="extract_decoder",
        fix="capture the encoder and one step of the decoder by extract_ir",
    )


def constant_buffers(made: nn.Module, model: Any) -> dict[str, Tensor]:
    """Return the content of buffers that no checkpoint has.

    They are as a model that is given has them, or else as the model on ``meta`` initializes them by itself:
    those that it does not fill are left out.
    """
    given = dict(model.named_buffers()) if isinstance(model, nn.Module) else {}
    found: dict[str, Tensor] = {}
    for path, module in made.named_modules():
        names = {
            name: f"{path}.{name}" if path else name
            for name in module._non_persistent_buffers_set
            if module._buffers[name] is not None
        }
        known = {
            full: given[full].detach().to("cpu", copy=True)
            for full in names.values()
            if full in given and find_data_problem(given[full]) is None
        }
        if len(known) < len(names):
            zeros, ones = (_initialized(made, module, names, fill) for fill in (0, 1))
            found |= {names[name]: item for name, item in zeros.items() if torch.equal(item, ones[name])}
        found |= known
    return found


def _initialized(model: Any, module: nn.Module, names: Iterable[str], fill: int) -> dict[str, Tensor]:
    """Return buffers of a module after its initialization, before which they are full of a number."""
    before = dict(module._buffers)
    filled = {name: torch.full_like(module.get_buffer(name), fill, device="cpu") for name in names}
    try:
        module._buffers.update(filled)
        with torch.no_grad():
            model._init_weights(module)
        return {name: module.get_buffer(name) for name in filled}
    finally:
        module._buffers.update(before)
