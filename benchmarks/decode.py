"""Speed of decoding: tokens of a language model, ours beside eager PyTorch and torch.compile, in one run.

Llama models of random weights, at batch 1, with a static cache; all contenders take turns in one process, a
token each, then a prompt each. The memory that a token has to read (weights and the valid part of the cache)
over its time is compared with the bandwidth at which this machine copies, measured in the same turns.
Quantized weights are those of our side alone.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from machine import machine
from transformers import AutoConfig, AutoModelForCausalLM, StaticCache

from npu_ir import InputKind
from npu_runtime import Decoder, extract_decoder
from npu_runtime.decoders.extract import QUANTIZATIONS

SIZES = {
    "15M": {"hidden_size": 288, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 768},
    "125M": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
    },
    "500M": {
        "hidden_size": 1280,
        "num_hidden_layers": 20,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "intermediate_size": 3456,
    },
}
VOCABULARY, PROMPT = 32_000, 64
_COPIED_BYTES = 256 << 20


def make_model(size: str, length: int, dtype: torch.dtype) -> Any:
    config = AutoConfig.for_model(
        "llama",
        **{"num_key_value_heads": SIZES[size]["num_attention_heads"], **SIZES[size]},
        vocab_size=VOCABULARY,
        max_position_embeddings=length,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval().to(dtype)


def make_eager(model: Any, prompt: torch.Tensor, length: int, backend: str | None) -> Callable[[], None]:
    """Return a function that makes the next token by the model itself, compiled by a backend if given."""
    cache = StaticCache(config=model.config, max_cache_len=length)
    forward = torch.compile(model, backend=backend) if backend else model
    token = model(prompt, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)[:, None]

    def step() -> None:
        nonlocal token
        token = forward(token, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)[:, None]

    return step


def make_ours(
    model: Any, prompt: torch.Tensor, length: int, quantize: str | None
) -> tuple[Decoder, Callable[[], None]]:
    graphs = extract_decoder(model, max_length=length, counts=(64, 512), quantize=quantize)
    decoder = Decoder(graphs, model.state_dict())
    token = decoder.feed(prompt).argmax(-1)[:, None]

    def step() -> None:
        nonlocal token
        token = decoder.feed(token).argmax(-1)[:, None]

    return decoder, step


def make_prompts(model: Any, decoder: Decoder, length: int, count: int) -> dict[str, Callable[[], object]]:
    """Return functions that read a prompt, of eager mode and ours, into an empty cache."""
    prompt = torch.randint(VOCABULARY, (1, count))
    cache = StaticCache(config=model.config, max_cache_len=length)

    def read_eagerly() -> None:
        cache.reset()
        model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def read() -> None:
        decoder.reset()
        decoder.feed(prompt)

    return {"eager": read_eagerly, "ours": read}


def take_turns(steps: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Return the median time of each step in seconds, but for two turns to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}


def read_bytes(decoder: Decoder) -> int:
    """Return the bytes that a token reads: weights but for the embedding, and the valid cache."""
    read = {
        value
        for node in decoder.graphs.by_count[1].body
        for value in node.inputs
        if node.op_type != "aten.embedding.default"
        and (value.kind is InputKind.PARAMETER or (value.producer is not None and value.producer.in_prologue))
    }
    types = [value.tensor_type for value in read]
    weights = sum(math.prod(type.static_shape) * type.dtype.itemsize for type in types)
    caches = [item for name, item in decoder.graphs.constants.items() if name.startswith("decoder_cache")]
    row = sum(item.numel() * item.itemsize // decoder.graphs.length for item in caches)
    return weights + row * decoder.position


def measure(size: str, form: str, options: argparse.Namespace) -> None:
    quantize = form if form in QUANTIZATIONS else None
    model = make_model(size, options.length, torch.float32 if quantize else getattr(torch, form))
    prompt = torch.randint(VOCABULARY, (1, PROMPT))
    start = time.perf_counter()
    decoder, ours = make_ours(model, prompt, options.length, quantize)
    ready = time.perf_counter() - start
    steps: dict[str, Callable[[], object]] = {
        "eager": make_eager(model, prompt, options.length, None),
        "ours": ours,
        "torch.compile by npu": make_eager(model, prompt, options.length, "npu"),
    }
    if options.compile:
        steps["torch.compile"] = make_eager(model, prompt, options.length, "inductor")
    source = torch.ones(_COPIED_BYTES // 4)
    target = torch.empty_like(source)
    steps["copy"] = partial(target.copy_, source)
    times = take_turns(steps, options.tokens)
    bandwidth = 2 * _COPIED_BYTES / times.pop("copy")
    achieved = read_bytes(decoder) / times["ours"]
    ratios = ", ".join(
        f"{times['ours'] / found:.2f} of {name}" for name, found in times.items() if name != "ours"
    )
    print(
        f"{size} {form}: {times['ours'] * 1e3:.2f} ms per token, {ratios};"
        f" {achieved / 1e9:.1f} GB/s, {achieved / bandwidth:.2f} of the {bandwidth / 1e9:.1f} GB/s of a copy;"
        f" ready in {ready:.0f} s"
    )
    prompts = take_turns(make_prompts(model, decoder, options.length, options.prompt), 3)
    print(
        f"{size} {form}: a prompt of {options.prompt} tokens in {prompts['ours'] * 1e3:.0f} ms,"
        f" {prompts['ours'] / prompts['eager']:.2f} of eager"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="15M,125M", help=f"some of {', '.join(SIZES)}")
    parser.add_argument(
        "--dtypes", default="float32,bfloat16,int8,int4", help="int8, int4: weights of a float32 model"
    )
    parser.add_argument("--length", type=int, default=1024, help="positions of the cache")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt that is read at once")
    parser.add_argument("--tokens", type=int, default=40, help="of each contender")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="torch.compile, too, which takes minutes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{machine()['cpu']}; threads: {options.threads}; cache of {options.length} positions")
    with torch.no_grad():
        for size in options.sizes.split(","):
            for dtype in options.dtypes.split(","):
                measure(size, dtype, options)


if __name__ == "__main__":
    main()
