"""``npu generate``: text that a language model of transformers continues, from a checkpoint on disk."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from npu_ir.cli.console import escape_controls
from npu_ir.cli.options import add_backends, add_threads, integer_from
from npu_ir.errors import UsageError
from npu_runtime.cli.saved_graph import BACKENDS_HELP, select_backends
from npu_runtime.decoders.decoder import Decoder
from npu_runtime.decoders.extract import QUANTIZATIONS, extract_decoder, require_transformers
from npu_runtime.decoders.sampler import Sampling
from npu_runtime.decoders.saved_model import read_configuration, read_tokenizer

_EPILOG = """\
The model is captured without weights; these are mapped from the checkpoint. The text goes to stdout as it is
made, what it took to stderr. With a temperature of 0 it is the most likely one, and always the same.

example:
  npu generate my-model "Once upon a time" --max-new-tokens 100
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "generate",
        help="continue a text with a language model of transformers",
        description="Capture a language model with its cache, and generate tokens. One with an encoder (T5)"
        " reads the text, and writes another one.",
        epilog=_EPILOG,
    )
    parser.add_argument("folder", type=Path, help="a folder with a configuration, weights and a tokenizer")
    parser.add_argument("text", help="the beginning of the text, or what an encoder reads")
    parser.add_argument(
        "--max-new-tokens",
        type=integer_from(1),
        default=64,
        metavar="N",
        help="at most (default: 64)",
    )
    parser.add_argument(
        "--max-length", type=integer_from(1), metavar="N", help="positions of the cache (default: as needed)"
    )
    parser.add_argument(
        "--quantize", choices=sorted(QUANTIZATIONS), help="weights of linear layers (default: as they are)"
    )
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: the likeliest token")
    parser.add_argument("--top-k", type=integer_from(1), metavar="K", help="draw from the K most likely ones")
    parser.add_argument("--top-p", type=float, metavar="P", help="draw from the most likely ones up to P")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, metavar="R")
    parser.add_argument("--seed", type=int, default=0, help="of random numbers (default: 0)")
    add_threads(parser, help="threads (default: PyTorch's)")
    add_backends(parser, BACKENDS_HELP)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Generate, and print the text token by token."""
    require_transformers()
    config = read_configuration(options.folder)
    from transformers import MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING

    sampling = Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        repetition_penalty=options.repetition_penalty,
        seed=options.seed,
    )
    tokenizer = read_tokenizer(options.folder)
    prompt = torch.tensor([tokenizer(options.text)["input_ids"]], dtype=torch.int64)
    if not prompt.numel():
        raise UsageError("the tokenizer makes no tokens of the text", fix="give some text")
    if type(config) in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING:
        raise UsageError(
            f"{config.model_type} reads sound, not text",
            fix="in Python, pass the features of its processor to Decoder.encode",
        )
    has_encoder = config.is_encoder_decoder
    known = 1 if has_encoder else prompt.shape[1]
    length = _length_of_cache(options, known)
    options.progress.stage("capturing the model")
    source_length = prompt.shape[1] if has_encoder else None
    try:
        graphs = extract_decoder(
            options.folder, max_length=length, max_source_length=source_length, quantize=options.quantize
        )
    except UsageError as error:
        if options.max_length or "max_length" not in error.message:
            raise
        raise UsageError(
            f"the text has {known} tokens, and --max-new-tokens is {options.max_new_tokens}: {error.message}",
            where=error.where,
            fix="give a smaller --max-new-tokens",
        ) from error
    options.progress.stage("preparing weights")
    backend = select_backends(options.backend) if options.backend else None
    decoder = Decoder(graphs, options.folder, backend=backend, threads=options.threads)
    options.progress.stage("reading the prompt")
    if has_encoder:
        decoder.encode(prompt)
        prompt = decoder.first_tokens()
    text = _text_streamer(tokenizer)
    if not has_encoder:
        text.put(prompt)
    _print_text(decoder, text, prompt, sampling, options.max_new_tokens)


def _length_of_cache(options: argparse.Namespace, known: int) -> int:
    """Return the number of positions that the cache gets, after a prompt of so many tokens."""
    needed: int = known + options.max_new_tokens - 1
    length: int = options.max_length or needed
    if length < needed:
        raise UsageError(
            f"the text has {known} tokens, and --max-new-tokens is {options.max_new_tokens}: that takes"
            f" {needed} positions, and --max-length is {length}",
            fix=f"give --max-length {needed}, or a smaller --max-new-tokens",
        )
    return length


def _print_text(decoder: Decoder, text: Any, prompt: Any, sampling: Sampling, count: int) -> None:
    made, first, start = 0, 0.0, time.perf_counter()
    for chosen in decoder.stream(prompt, max_new_tokens=count, sampling=sampling):
        first = first or time.perf_counter() - start
        if int(chosen[0]) in decoder.graphs.stop:
            break
        made += 1
        text.put(chosen)
    text.end()
    seconds = time.perf_counter() - start - first
    speed = f", {(made - 1) / seconds:.1f} tokens per second" if made > 1 and seconds else ""
    sys.stderr.write(f"{made} tokens, the first after {first:.2f} s{speed}\n")


def _text_streamer(tokenizer: Any) -> Any:
    """Return the streamer of transformers, which prints whole words; here without control characters."""
    from transformers import TextStreamer

    class Printed(TextStreamer):  # type: ignore[misc,unused-ignore]
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            sys.stdout.write(escape_controls(text) + "\n" * stream_end)
            sys.stdout.flush()

    return Printed(tokenizer, skip_special_tokens=True)
