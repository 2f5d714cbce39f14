"""Speed of graphs: our executor beside eager PyTorch, torch.compile and others, in one run.

For each model and number of threads there is a process that makes model and graph, and forks one process
per contender (`turns.py`), which is made ready there: compile time is what that takes until the first call
has returned, with an empty cache of Inductor's and everything imported. Then the contenders take turns, a
burst of calls each, and the medians over the turns are compared. What returns something else than eager is
not ranked. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import runtime_models
from machine import machine
from runtime_contenders import CONTENDERS, OURS, Case
from runtime_page import write_page
from runtime_report import print_case, print_summary
from runtime_worker import ready
from turns import measure, workers

from npu_ir import convert_exported_program

TOLERANCE = 1e-3  # of the largest expected value; where convolutions are folded, rounding differs


def run_case(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one model with one number of threads; meant for a process of its own."""
    import torch._dynamo  # compile times are without imports
    import torch._inductor.compile_fx

    import npu_runtime  # noqa: F401

    # Threads do not survive a fork, so there must be none before.
    torch.set_num_threads(1)
    model, args = runtime_models.make(options.case)
    program = torch.export.export(model, args)
    case = Case(model, args, program, convert_exported_program(program), options.threads[0])
    with torch.inference_mode():
        expected = model(*args)
    missing = {name: CONTENDERS[name].missing() for name in options.contenders}
    names = [name for name, reason in missing.items() if reason is None]
    results = {name: {"error": reason} for name, reason in missing.items() if reason is not None}
    with (
        tempfile.TemporaryDirectory(prefix="npu-bench-") as cache,
        workers(
            {name: partial(ready, name, case, expected) for name in names}, case.threads, Path(cache)
        ) as made,
    ):
        measure([worker for worker in made if worker.is_ready], options.seconds)
        results |= {worker.name: judged(worker.result()) for worker in made}
        measured = [worker for worker in made if worker.name in OURS and "seconds" in results[worker.name]]
        if options.case in runtime_models.OVERHEAD_BOUND and options.threads[0] == 1:
            for worker in measured:
                results[worker.name] |= worker.asked("overhead")
    return {
        "model": options.case,
        "threads": options.threads[0],
        "nodes": len(case.graph),
        "contenders": results,
    }


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result, or an error in its place where it is wrong; NaN is."""
    if "error" in result or result["difference"] <= TOLERANCE:
        return result
    return {"error": f"wrong result, by {result['difference']:.1e}"}


def case_in_process(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case.json")
        command = [sys.executable, __file__, "--case", name, "--threads", str(threads), "--json", str(path)]
        command += ["--seconds", str(options.seconds), "--contenders", ",".join(options.contenders)]
        environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        subprocess.run(command, check=True, env=environment)
        result: dict[str, Any] = json.loads(path.read_text())
        return result


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join(runtime_models.ALL_MODELS)
    parser.add_argument(
        "--models", type=_names(runtime_models.ALL_MODELS), default=list(runtime_models.MODELS), help=known
    )
    parser.add_argument(
        "--contenders", type=_names(CONTENDERS), default=list(CONTENDERS), help=", ".join(CONTENDERS)
    )
    parser.add_argument(
        "--threads", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2]
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="to measure each contender for (default: 1)"
    )
    parser.add_argument("--quick", action="store_true", help="measure for a tenth of that: to see it run")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write a page of them, and its plot beside it"
    )
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing, read an earlier run")
    parser.add_argument("--case", choices=list(runtime_models.ALL_MODELS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seconds /= 10 if options.quick else 1
    return options


def _names(known: Any) -> Any:
    def names(text: str) -> list[str]:
        wrong = sorted(set(text.split(",")) - set(known))
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: there are {', '.join(known)}")
        return text.split(",")

    return names


def main() -> None:
    options = parse()
    if options.case is not None:
        options.json.write_text(json.dumps(run_case(options)))
        return
    if options.from_json is not None:
        results = json.loads(options.from_json.read_text())
    else:
        results = {**machine(), "cases": []}
        for name in options.models:
            for threads in options.threads:
                results["cases"].append(case_in_process(name, threads, options))
                print_case(results["cases"][-1])
    print_summary(results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    if options.page is not None:
        write_page(results, options.page)


if __name__ == "__main__":
    main()
