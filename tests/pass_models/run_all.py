"""Run the pipelines over whole models in checked mode, and write docs/reference/pass-results.md."""

import argparse
import platform
from collections.abc import Iterator

import torch
import transformers

from tests.pass_models.cases import CASES, Case
from tests.pass_models.measuring import PIPELINES, Outcome, measure
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "pass-results.md"

HEAD = """<!-- written by nox -s passes -->
# Results of the pipelines on whole models

Weights and the statistics of norms are random, inputs are 1 × 3 × 224 × 224 images or 2 × 64 tokens. Every
pass ran in checked mode: after each, the graph ran on the same data as before, and results were equal, or
within what the pass states. *Error* is the largest difference of the results to eager PyTorch in float64, in
relation to their largest magnitude; beside it that of eager in float32. *Run* is the time of a call of the
reference interpreter in relation to the graph as extracted, the median of {repeat} pairs; *passes* is the
time of all passes without checks. Attention is written out (`attn_implementation="eager"`). Run it yourself:
`nox -s passes`.

torch {torch}, transformers {transformers}, Python {python}, one thread.
"""


def rows(outcomes: dict[tuple[Case, str], Outcome]) -> Iterator[str]:
    yield "| model | pipeline | nodes | prologue | norms left | GFLOP | error | eager's | run | passes |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for (case, pipeline), outcome in outcomes.items():
        before, after = outcome.result.before, outcome.result.after
        norms = f"{outcome.norms[1]} of {outcome.norms[0]}" if outcome.norms[0] else ""
        yield (
            f"| {case.name} | {pipeline} | {before.nodes} → {after.nodes} | {after.prologue_nodes} | {norms} "
            f"| {after.flops / 1e9:.2f} | {outcome.error:.1e} | {outcome.eager_error:.1e} "
            f"| {outcome.speed:.2f}x | {outcome.seconds * 1e3:.0f} ms |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models with this in their name; the page is not written")
    parser.add_argument("--repeat", type=int, default=5, help="runs of the interpreter (default: 5)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    outcomes = {}
    for case in (item for item in CASES if options.only in item.name):
        for pipeline in PIPELINES:
            outcomes[case, pipeline] = measure(case, pipeline, whole=True, repeat=options.repeat)
            print(list(rows({(case, pipeline): outcomes[case, pipeline]}))[-1], flush=True)
    if options.only:
        return
    head = HEAD.format(
        repeat=options.repeat,
        torch=torch.__version__.partition("+")[0],
        transformers=transformers.__version__,
        python=platform.python_version(),
    )
    PAGE.write_text("\n".join([head, *rows(outcomes), ""]), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
