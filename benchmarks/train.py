"""Speed of a training step: ours beside eager PyTorch and torch.compile, in one run, on one thread or more.

For each network and optimizer there is a process that makes them and forks one process per contender
(`turns.py`), which makes its steps there: the first one is timed, with an empty cache of Inductor's and
everything imported, and what five steps lead to is compared with eager training. Then the contenders take
turns, a burst of steps each, and the medians over the turns are compared. What leads elsewhere is not
ranked. Linux only, and torch.compile needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import train_depth
import train_overhead
from machine import machine
from train_contenders import CONTENDERS
from train_models import MODELS, OPTIMIZERS
from train_page import write_page
from train_report import print_case, print_depths, print_overhead, print_summary
from train_worker import expected_of, make_case, ready
from turns import measure, workers

TOLERANCE = 1e-2  # of the norm of a change; rounding is no larger than 1e-3


def run_case(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one network with one optimizer; meant for a process of its own."""
    import torch
    import torch._dynamo  # compile times are without imports
    import torch._inductor.compile_fx

    import npu_runtime  # noqa: F401

    # Threads do not survive a fork, so there must be none before.
    torch.set_num_threads(1)
    model, optimizer = options.case.split("/")
    case = make_case(model, optimizer)
    expected = expected_of(case)
    missing = {name: CONTENDERS[name].missing() for name in options.contenders}
    able = {name: partial(ready, name, case, expected) for name, reason in missing.items() if reason is None}
    results = {name: {"error": reason} for name, reason in missing.items() if reason is not None}
    with (
        tempfile.TemporaryDirectory(prefix="npu-bench-") as cache,
        workers(able, options.threads[0], Path(cache)) as made,
    ):
        measure([worker for worker in made if worker.is_ready], options.seconds)
        results |= {worker.name: judged(worker.result()) for worker in made}
    return {"model": model, "optimizer": optimizer, "threads": options.threads[0], "contenders": results}


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result, or an error in its place where it is wrong; NaN is."""
    if "error" in result or result["difference"] <= TOLERANCE:
        return result
    return {"error": f"another result than eager's, by {result['difference']:.1e}"}


def in_process(options: argparse.Namespace, *arguments: str) -> Any:
    """Return the results of this script, run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        command = [sys.executable, __file__, *arguments, "--json", str(path)]
        command += ["--seconds", str(options.seconds), "--contenders", ",".join(options.contenders)]
        environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        subprocess.run(command, check=True, env=environment)
        return json.loads(path.read_text())


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything, and print it on the way."""
    results: dict[str, Any] = {**machine(), "load": os.getloadavg()[0], "cases": [], "depths": []}
    for model, optimizer, threads in itertools.product(options.models, options.optimizers, options.threads):
        arguments = ("--case", f"{model}/{optimizer}", "--threads", str(threads))
        results["cases"].append(in_process(options, *arguments))
        print_case(results["cases"][-1])
    if options.depths:
        results["depths"] = in_process(
            options, "--depths", ",".join(map(str, options.depths)), "--only-depths"
        )
        print_depths(results["depths"])
    results["overhead"] = in_process(options, "--only-overhead")
    print_overhead(results["overhead"])
    return results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_choice(parser, "--models", MODELS)
    add_choice(parser, "--optimizers", OPTIMIZERS)
    add_choice(parser, "--contenders", CONTENDERS)
    parser.add_argument(
        "--depths",
        type=lambda text: [int(word) for word in text.split(",") if word],
        default=train_depth.DEPTHS,
        help="layers of the transformers whose tracing is timed (default: 6,12,24,48); '' for none",
    )
    parser.add_argument(
        "--threads", type=lambda text: [int(word) for word in text.split(",")], default=[1], help="1, or 1,2"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="to measure each contender for (default: 1)"
    )
    parser.add_argument("--quick", action="store_true", help="measure for a tenth of that: to see it run")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page of them")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing, read an earlier run")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--only-depths", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only-overhead", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seconds /= 10 if options.quick else 1
    return options


def add_choice(parser: argparse.ArgumentParser, option: str, known: dict[str, Any]) -> None:
    """Add an option that takes some of the known names; all of them without it."""

    def names(text: str) -> list[str]:
        wrong = sorted(set(text.split(",")) - set(known))
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: there are {', '.join(known)}")
        return text.split(",")

    parser.add_argument(option, type=names, default=list(known), help=", ".join(known))


def main() -> None:
    options = parse()
    if options.case is not None:
        options.json.write_text(json.dumps(run_case(options)))
        return
    if options.only_depths:
        options.json.write_text(json.dumps(train_depth.run(options.depths)))
        return
    if options.only_overhead:
        options.json.write_text(json.dumps(train_overhead.run(options.seconds)))
        return
    results = json.loads(options.from_json.read_text()) if options.from_json else measured(options)
    print_summary(results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    if options.page is not None:
        write_page(results, options.page)


if __name__ == "__main__":
    main()
