"""Contenders of `decode.py`: every way to generate tokens, behind the three names that `Decoder` has.

Each has ``feed(tokens)``, which appends tokens to the cache and returns the logits after the last one,
``reset()``, and ``position``, the number of positions in use; to set it back forgets the tokens behind.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from decode_onnx import OnnxDecoder
from transformers import StaticCache

from npu_runtime import Decoder, extract_decoder


@dataclass(frozen=True, slots=True)
class Case:
    """A model that generates tokens.

    Attributes:
        model: Of transformers, in eval mode.
        prompt: Tokens ``[1, count]``.
        token: The token after it, ``[1, 1]``.
        length: The number of positions of the cache.
        window: The number of tokens that are generated before the cache is set back to the prompt.
        threads: How many threads may be used.
    """

    model: Any
    prompt: torch.Tensor
    token: torch.Tensor
    length: int
    window: int
    threads: int


class EagerDecoder:
    """The model itself with a static cache; compiled by a backend of torch.compile if one is named."""

    def __init__(self, case: Case, backend: str | None) -> None:
        self._cache = StaticCache(config=case.model.config, max_cache_len=case.length)
        self._position = 0
        # The memory of the cache is made outside of what is compiled.
        case.model(case.token, past_key_values=self._cache, use_cache=True)
        self._model = torch.compile(case.model, backend=backend, dynamic=False) if backend else case.model
        self.reset()

    @property
    def position(self) -> int:
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        self._position = position
        for layer in self._cache.layers:
            layer.cumulative_length.fill_(position)

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        result = self._model(tokens, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        self._position += tokens.shape[1]
        logits: torch.Tensor = result.logits[:, -1]
        return logits

    def reset(self) -> None:
        self._cache.reset()
        self._position = 0


def _ours(case: Case, quantize: str | None) -> Decoder:
    counts = (64, 512)
    graphs = extract_decoder(case.model, max_length=case.length, counts=counts, quantize=quantize)
    return Decoder(graphs, case.model.state_dict(), threads=case.threads)


def _onnx(case: Case, form: str) -> OnnxDecoder:
    if case.model.dtype != torch.float32:
        raise NotImplementedError(f"no kernels for {case.model.dtype} on the CPU")
    return OnnxDecoder(case.model, form, case.length, case.threads)


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to generate tokens.

    Attributes:
        title: Its name in the tables.
        make: Makes it, with an empty cache.
        tolerance: How far its logits may be from those of eager, relative to the largest; None for that of
            the dtype of the model (`TOLERANCES`).
        needs: The package without which it cannot be.
    """

    title: str
    make: Callable[[Case], Any]
    tolerance: float | None = None
    needs: str = "torch"

    def missing(self) -> str | None:
        return None if importlib.util.find_spec(self.needs) else f"{self.needs} is not installed"


TOLERANCES = {"float32": 1e-3, "bfloat16": 0.1}
CONTENDERS = {
    "eager": Contender("eager", partial(EagerDecoder, backend=None)),
    "compile": Contender("torch.compile", partial(EagerDecoder, backend="inductor")),
    "compile-npu": Contender("torch.compile, backend npu", partial(EagerDecoder, backend="npu")),
    "onnxruntime": Contender("ONNX Runtime", partial(_onnx, form="float32"), needs="onnxruntime"),
    "onnxruntime-int8": Contender("ONNX Runtime, int8", partial(_onnx, form="int8"), 0.2, "onnxruntime"),
    "onnxruntime-int4": Contender("ONNX Runtime, int4", partial(_onnx, form="int4"), 1.0, "onnxruntime"),
    "ours": Contender("Decoder", partial(_ours, quantize=None)),
    "ours-int8": Contender("Decoder, int8", partial(_ours, quantize="int8"), 0.2),
    "ours-int4": Contender("Decoder, int4", partial(_ours, quantize="int4"), 1.0),
    "ours-int8-dynamic": Contender("Decoder, int8-dynamic", partial(_ours, quantize="int8-dynamic"), 0.2),
    "ours-int4-dynamic": Contender("Decoder, int4-dynamic", partial(_ours, quantize="int4-dynamic"), 1.0),
}
# What takes turns, by what the cases of a size are called.
FORMS = {
    "float32": tuple(CONTENDERS),
    "bfloat16": ("eager", "compile", "onnxruntime", "ours"),
    "integers": (
        *("eager", "onnxruntime-int8", "onnxruntime-int4"),
        *("ours-int8", "ours-int4", "ours-int8-dynamic", "ours-int4-dynamic"),
    ),
}
