"""Speed and memory of decoding: tokens of a language model, ours beside eager PyTorch and others.

Llama models of random weights, at batch 1, with a static cache. For each model and number of threads there is
a process that makes the model, and forks one process per contender (`turns.py`). They take turns, a burst of
tokens each, after a prompt; then a prompt each. Ours generates as its users do, without Python in between;
others are called for each token, and PyTorch finds the most likely one. What a token has to read (weights and
the valid part of the cache) over its time is compared with the bandwidth at which this machine copies, in the
same turns. What returns other logits than eager is not ranked. Memory is that of a process of its own. Linux
only, and torch.compile needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import decode_memory
import torch
from decode_contenders import CONTENDERS, FORMS, TOLERANCES, Case
from decode_models import SIZES, make_model
from decode_page import write_page
from decode_report import print_case, print_lengths, print_memory, print_summary
from decode_worker import COPY, ready
from machine import machine
from turns import Worker, measure, workers

CASES = [f"{size}/{form}" for size in SIZES for form in FORMS]
DEFAULT_CASES = ["15M/float32", "15M/bfloat16", "125M/float32", "125M/bfloat16", "500M/integers"]
DEFAULT_MEMORY = ["15M/float32", "125M/float32", "125M/int8", "125M/int4"]
LENGTH, WINDOW = 1024, 64
LENGTHS, VALID = (128, 1024, 4096), 64  # positions of the cache, and those of a prompt that fits into all
OF_LENGTHS = ("eager", "ours")
PROMPT_TURNS = 5


def run_case(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one model with one number of threads; meant for a process of its own."""
    size, form = options.case.split("/")
    threads = options.threads[0]
    names = [name for name in FORMS[form] if name in options.contenders]
    case, expected = make_case(size, form, options.prompt, options.prompt + 2 * WINDOW, threads)
    results = {name: {"error": CONTENDERS[name].missing()} for name in names if CONTENDERS[name].missing()}
    able = {name: partial(ready, name, case, expected) for name in (*names, COPY) if name not in results}
    with (
        tempfile.TemporaryDirectory(prefix="npu-bench-") as cache,
        workers(able, threads, Path(cache)) as made,
    ):
        measure([worker for worker in made if worker.is_ready], options.seconds)
        measure_prompts([worker for worker in made if worker.is_ready and worker.name in options.prompts])
        for worker in made:
            if worker.is_ready and "read_bytes" in worker.facts:
                worker.facts |= worker.asked("overhead")
        results |= {worker.name: judged(worker, form) for worker in made}
    copied = results.pop(COPY)
    bandwidth = copied["copied_bytes"] / copied["seconds"]
    return {"size": size, "form": form, "threads": threads, "bandwidth": bandwidth, "contenders": results}


def make_case(size: str, form: str, prompt: int, length: int, threads: int) -> tuple[Case, torch.Tensor]:
    """Return a case, and the logits after its prompt and one more token."""
    torch.set_num_threads(1)  # threads do not survive a fork, so there must be none before
    model = make_model(size, torch.bfloat16 if form == "bfloat16" else torch.float32)
    tokens = torch.randint(model.config.vocab_size, (1, prompt + 1))
    with torch.no_grad():
        expected = model(tokens, logits_to_keep=1).logits[:, -1]
    return Case(model, tokens[:, :-1], tokens[:, -1:], length, WINDOW, threads), expected


def measure_prompts(contenders: list[Worker]) -> None:
    """Have them read the prompt in turns; the median of each is its ``prompt_seconds``."""
    found: dict[str, list[float]] = {worker.name: [] for worker in contenders}
    for turn in range(PROMPT_TURNS + 1):
        for worker in contenders:
            seconds = worker.asked("prompt")["turn"]
            if turn:  # the first one may compile
                found[worker.name].append(seconds)
    for worker in contenders:
        worker.facts["prompt_seconds"] = statistics.median(found[worker.name])


def judged(worker: Worker, form: str) -> dict[str, Any]:
    """Return the result of a contender, or an error in its place where it is wrong; NaN is."""
    result = worker.result()
    if "error" in result or worker.name == COPY:
        return result
    tolerance = CONTENDERS[worker.name].tolerance or TOLERANCES[form]
    if result["difference"] <= tolerance:
        return result
    return {"error": f"other logits than eager's, by {result['difference']:.1e}"}


def run_lengths(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one model with caches of several lengths, of which the same part is valid."""
    (size, form), threads = options.lengths_of.split("/"), options.threads[0]
    able = {}
    for length in LENGTHS:
        case, expected = make_case(size, form, VALID - WINDOW // 2, length, threads)
        able |= {f"{name}/{length}": partial(ready, name, case, expected) for name in OF_LENGTHS}
    with (
        tempfile.TemporaryDirectory(prefix="npu-bench-") as cache,
        workers(able, threads, Path(cache)) as made,
    ):
        measure([worker for worker in made if worker.is_ready], options.seconds)
        results = {worker.name: judged_by_name(worker, form) for worker in made}
    return {"size": size, "form": form, "threads": threads, "contenders": results}


def judged_by_name(worker: Worker, form: str) -> dict[str, Any]:
    worker.name, _, length = worker.name.partition("/")
    return {**judged(worker, form), "length": int(length)}


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything, and print it on the way."""
    results: dict[str, Any] = {**machine(), "load": os.getloadavg()[0], "prompt": options.prompt}
    results |= {"valid": VALID, "cases": [], "lengths": [], "memory": []}
    for case in options.cases:
        for threads in options.threads:
            results["cases"].append(in_process(options, threads, "--case", case))
            print_case(results["cases"][-1])
    for case in options.lengths:
        results["lengths"].append(in_process(options, 1, "--lengths-of", case))
        print_lengths(results["lengths"][-1:])
    for case in options.memory:
        with tempfile.TemporaryDirectory(prefix="npu-bench-") as folder:
            decode_memory.save(case.partition("/")[0], Path(folder))
            found = in_process(options, 1, "--memory-of", case, "--checkpoint", folder)
        results["memory"].append(found)
        print_memory([found])
    return results


def joined(paths: list[Path]) -> dict[str, Any]:
    """Return the results of several runs on one machine as those of one: each ratio is within a case."""
    first, *others = (json.loads(path.read_text()) for path in paths)
    for other in others:
        for name in ("cases", "lengths", "memory"):
            first[name] += other[name]
        first["load"] = max(first["load"], other["load"])
    return dict(first)


def in_process(options: argparse.Namespace, threads: int, *arguments: str) -> Any:
    """Return the results of this script, run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        command = [sys.executable, __file__, *arguments, "--json", str(path), "--threads", str(threads)]
        command += ["--seconds", str(options.seconds), "--prompt", str(options.prompt)]
        command += ["--contenders", ",".join(options.contenders), "--prompts", ",".join(options.prompts)]
        subprocess.run(command, check=True)
        return json.loads(path.read_text())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    of_memory = [f"{size}/{form}" for size in SIZES for form in ("float32", "int8", "int4")]
    add_choice(parser, "--cases", CASES, DEFAULT_CASES, "integers: only weights of 8 and 4 bits")
    add_choice(parser, "--contenders", [*CONTENDERS], [*CONTENDERS])
    usual = [name for name in CONTENDERS if not name.startswith("compile")]
    add_choice(parser, "--prompts", [*CONTENDERS], usual, "who reads prompts; torch.compile compiles again")
    add_choice(parser, "--lengths", CASES, ["15M/float32", "125M/float32"], "models for caches of any length")
    add_choice(parser, "--memory", of_memory, DEFAULT_MEMORY, "models whose memory is measured")
    parser.add_argument(
        "--threads", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2]
    )
    parser.add_argument("--prompt", type=int, default=512, help="tokens before those that are timed")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="to measure each contender for (default: 1)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small model, for a tenth of that: to see it run"
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page of them")
    parser.add_argument(
        "--from-json", type=Path, metavar="FILE", nargs="+", help="measure nothing, read earlier runs"
    )
    for name in ("--case", "--lengths-of", "--memory-of", "--checkpoint"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.seconds /= 10
        options.cases, options.lengths, options.memory = ["1M/float32"], ["1M/float32"], ["1M/float32"]
    return options


def add_choice(
    parser: argparse.ArgumentParser, option: str, known: list[str], default: list[str], text: str = ""
) -> None:
    """Add an option that takes some of the known names, or none."""

    def names(given: str) -> list[str]:
        words = [word for word in given.split(",") if word]
        wrong = sorted(set(words) - set(known))
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: there are {', '.join(known)}")
        return words

    shown = f"{text} (default: {','.join(default)})".strip()
    parser.add_argument(option, type=names, default=default, help=shown)


def main() -> None:
    options = parse()
    if options.case:
        options.json.write_text(json.dumps(run_case(options)))
        return
    if options.lengths_of:
        options.json.write_text(json.dumps(run_lengths(options)))
        return
    if options.memory_of:
        size, form = options.memory_of.split("/")
        with torch.no_grad():
            found = decode_memory.run(size, form, Path(options.checkpoint), LENGTH, options.prompt)
        options.json.write_text(json.dumps(found))
        return
    results = joined(options.from_json) if options.from_json else measured(options)
    print_summary(results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    if options.page is not None:
        write_page(results, options.page)


if __name__ == "__main__":
    main()
