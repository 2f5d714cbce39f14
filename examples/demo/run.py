"""Take real models through the whole pipe and write a report: python examples/demo/run.py.

A network is trained with TrainStep, and beside it in eager PyTorch; its graph is extracted, printed, saved,
and run on the whole test set by a new process that knows only the graph and the weights, and by the
executor beside eager PyTorch. Then the same for GPT-2 and ResNet-50, whose graphs are extracted without
weights, and the extraction alone for a Llama of 70 billion parameters. The exit code is 1 if anything the
demo claims turns out not to be so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

MODELS = ("digits", "gpt2", "resnet50", "llama-70b")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options given on the command line."""
    summary, _, description = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=f"{summary}\n\n{description}", formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/demo"), help="where files and report go (build/demo)"
    )
    parser.add_argument(
        "--only", action="append", choices=MODELS, help="leave the other models out; may be repeated"
    )
    parser.add_argument("--small", action="store_true", help="shrink the untrained models, for a quick look")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the training images (12)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell the story; return the exit code."""
    options = parse(arguments)
    start = time.perf_counter()
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded, here and in the other processes
    from terminal import terminal

    screen = terminal()
    with screen.work("load PyTorch, transformers and npu-ir"):
        import trained
        import untrained
        from capturing import warm_up
        from rendering.page import write_report

        warm_up()
    options.output.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in MODELS if name in (options.only or MODELS)]
    digits = None
    if "digits" in chosen:
        digits = trained.run_chapter(screen, options.output, options.epochs, small=options.small)
    others = [
        untrained.run_chapter(screen, options.output, name, small=options.small)
        for name in chosen
        if name != "digits"
    ]
    seconds = time.perf_counter() - start
    screen.title("Report")
    claims = [claim for chapter in filter(None, (digits, *others)) for claim in chapter.claims]
    failed = [claim for claim in claims if not claim.holds]
    path = write_report(options.output, digits, others, seconds)
    screen.say(f"{len(claims) - len(failed)} of {len(claims)} claims hold, after {seconds:.0f} s")
    for claim in failed:
        screen.say(f"FAILED: {claim.subject}: {claim.text}: {claim.measured}")
    screen.say(str(path))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
