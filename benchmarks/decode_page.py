"""The page of `decode.py`."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bars import Bar, value_text
from decode_models import SIZES
from decode_report import (
    COLUMNS,
    LENGTHS,
    MEMORY,
    OVERHEAD,
    OVERVIEW,
    bars,
    length_rows,
    memory_rows,
    overhead_rows,
    overview,
    rows,
    title,
)
from train_page import table

HEAD = """\
# How fast tokens are

`nox -s bench -- decode --page docs/reference/decode-benchmarks.md` writes this page.
Measured on {cpu}, with PyTorch {torch}, transformers {transformers}, ONNX Runtime {onnxruntime} and
Python {python}, on {date}, at a load of {load:.1f}.

Llama models of random weights ({sizes})
generate one text, after a prompt of {prompt} tokens. All contenders write to a cache of fixed size in place;
each runs in a process of its own, and all take turns: the times are medians of one run. A `Decoder` generates
32 tokens a call; others are called for each token, and PyTorch finds the most likely one. `int8` and `int4`
are weights of a float32 model, which eager and torch.compile run as it is. A `Decoder` computes with floats
there, and for `int8-dynamic` and `int4-dynamic` with int8, as ONNX Runtime does, whose quickest way it is.
Its model is made of its fused operators (`GroupQueryAttention`, `MatMulNBits`), as its own tool for language
models builds them, with inputs and outputs bound to one cache. It has no kernels for bfloat16 on the CPU. The
difference is the largest one of the logits from eager's, relative to the largest of these; with weights of 8
and 4 bits it is what rounding does to random weights.

## A token, and a prompt of {prompt}

The bandwidth is that of what a token has to read (weights but for the embedding, the valid part of the cache)
over its time, as a share of that of a copy of 256 MiB in the same turns.
"""
MEMORY_TEXT = """\
## Memory

What a `Decoder` takes of a process that reads a checkpoint from disk: with a cache of 1,024 positions, graphs
for one token and for 64, after a prompt of {prompt} tokens and 64 more. Pages that are mapped from the
checkpoint count where calls read them; others were read once to pack matrices, and the system drops them when
it needs memory. The last two columns are what PyTorch's allocator hands out while a token is made, and the
logits alone, which are the caller's.
"""
LENGTHS_TEXT = """\
## Length of the cache

The same part of the cache is valid, about {valid} positions; a `Decoder` does not read what follows.
"""
OVERHEAD_TEXT = """\
## Beyond kernels

The time of a token beyond what its kernels take, as the trace of their launches has it. `generate` has no
Python between tokens: what remains are the steps from one kernel to the next. The last column is that of
`feed`, a call for each token: checks of the tokens, binding of arguments, memory for the logits. Code and
descriptions of all that come from memory again, once weights have passed through the caches.
"""


def write_page(results: dict[str, Any], path: Path) -> None:
    """Write the page."""
    path.write_text("\n".join(page(results)).rstrip() + "\n")


def page(results: dict[str, Any]) -> Iterator[str]:
    known = {key: value for key, value in results.items() if not isinstance(value, list)}
    shown = dict.fromkeys(case["size"] for case in results["cases"])
    sizes = ", ".join(f"{size}: {describe(size)}" for size in shown)
    versions = {name: version(name) for name in ("transformers", "onnxruntime")}
    yield HEAD.format(sizes=sizes, **{**versions, **known})
    yield from table(OVERVIEW, overview(results))
    yield MEMORY_TEXT.format(**known)
    yield from table(MEMORY, memory_rows(results["memory"]))
    yield LENGTHS_TEXT.format(**known)
    yield from table(LENGTHS, length_rows(results["lengths"]))
    yield OVERHEAD_TEXT
    yield from table(OVERHEAD, overhead_rows(results))
    yield "## Targets\n"
    yield from (f"- {sentence(bar)}" for bar in bars(results))
    yield ""
    for case in results["cases"]:
        yield f"## {title(case)}\n"
        yield from table(COLUMNS, rows(case))


def describe(size: str) -> str:
    shape = SIZES[size]
    return f"{shape['num_hidden_layers']} layers of width {shape['hidden_size']}"


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def sentence(bar: Bar) -> str:
    """Return whether a target is met, in words, with the cases that miss it."""
    text = f"{bar.text[0].upper()}{bar.text[1:]}: at most {bar.limit:g}, {bar.verdict}"
    if bar.values:
        spread = sorted(bar.values.values())
        texts = [value_text(value, bar.limit) for value in (spread[0], spread[-1])]
        text += f" ({texts[0]} to {texts[1]})" if len(spread) > 1 else f" ({texts[0]})"
    return f"{text}: {'; '.join(bar.missed)}." if bar.missed else f"{text}."
