"""Train every model with every optimizer and write docs/reference/training-coverage.md."""

import argparse
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import torch
import torch.nn.functional as F
from torch import optim

from npu_ir import NpuError
from npu_runtime.training import compile_ir
from tests.npu_runtime.training.ours import NOT_NATIVE, WAYS
from tests.npu_runtime.training.outcomes import Outcome, Pair, everything, outcome, title
from tests.support.places import ROOT
from tests.support.training.cases import CASES
from tests.support.training.judging import TINY_ULP
from tests.support.training.models import MLP
from tests.support.training.optimizers import RECIPES

PAGE = ROOT / "docs" / "reference" / "training-coverage.md"

HEAD = """<!-- written by nox -s training -->
# What trains as in eager mode

Each model of a zoo is trained with each optimizer for five steps (RAdam: nine), each with a batch, a seed and
a learning rate of its own, and compared with PyTorch's eager mode after each step: losses, parameters,
buffers, and every entry of the state of the optimizer, by name and dtype. This is done on the *interpreter*,
the *executor*, and as a *replay* of `TrainStep`; on the latter two also behind the passes `train`, and as a
replay on the native ops of the backend `host`. A tensor passes where it is as near to the same training in
float64 as eager is:

    |ours - float64| <= k × max |eager - float64| + tiny

with k = 8 for the largest element and k = 4 for the root of the mean square, as `npu compare` has it; the
maximum is over two forms of eager (`foreach=False` and `True`), and `tiny` is {tiny} units in the last place
of the largest element. Without passes, executor and replay must have the bits of the interpreter. *Share* is
the largest error in relation to what is allowed. Run it yourself: `nox -s training`.

torch {torch}, Python {python}, one thread.
**{right} of {all} combinations pass everywhere**, {tensors:,} tensors compared.
"""


def page(outcomes: Sequence[Outcome]) -> str:
    head = HEAD.format(
        tiny=TINY_ULP,
        torch=torch.__version__.partition("+")[0],
        python=platform.python_version(),
        right=sum(not item.problems for item in outcomes),
        all=len(outcomes),
        tensors=sum(item.tensors * len(item.shares) for item in outcomes),
    )
    models = [case.name for case in CASES]
    optimizers = [recipe.name for recipe in RECIPES]
    return "\n".join(
        [
            head,
            *_table("model", models, outcomes, lambda item: item.case),
            *_table("optimizer", optimizers, outcomes, lambda item: item.recipe),
            *_listed("What does not pass", [f"- {item}" for item in outcomes if item.problems]),
            *_listed("What is not judged", list(_not_judged())),
            *_listed("What is refused", list(_refusals())),
        ]
    )


def _table(
    word: str, names: Sequence[str], outcomes: Sequence[Outcome], key: Callable[[Outcome], str]
) -> Iterator[str]:
    yield f"| {word} | passes | {' | '.join(WAYS)} | largest share at |"
    yield f"|---|--:|{'--:|' * len(WAYS)}---|"
    for name in names:
        of_name = [item for item in outcomes if key(item) == name]
        right = sum(not item.problems for item in of_name)
        shares = [max((item.shares.get(way, 0.0) for item in of_name), default=0.0) for way in WAYS]
        worst = max(of_name, key=lambda item: max(item.shares.values(), default=0.0)).worst if of_name else ""
        cells = " | ".join(f"{share:.2f}" for share in shares)
        yield f"| {name} | {right} of {len(of_name)} | {cells} | {worst} |"
    yield ""


def _listed(heading: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"## {heading}"
    yield ""
    yield from lines or ["Nothing."]
    yield ""


def _not_judged() -> Iterator[str]:
    """Yield what has no true gradient, whose noise optimizers amplify, and products of other bits."""
    for case in CASES:
        if case.without_gradient:
            names = ", ".join(f"`{name}`" for name in case.without_gradient)
            yield f"- {case.name}: {names}, where the true gradient is zero: {case.why}"
    yield (
        f"- {NOT_NATIVE} on the backend `host`: it makes parameters orthogonal by products of bfloat16, and"
        " other sums of these round to other last bits, which both forms of eager have in common"
    )


def _refusals() -> Iterator[str]:
    for kind in (optim.LBFGS, optim.Adafactor, optim.SparseAdam):
        model = MLP()
        try:
            compile_ir(model, kind(model.parameters()), F.mse_loss, (torch.ones(5, 7), torch.ones(5, 3)))
        except NpuError as error:
            yield f"- `{kind.__name__}`: {error.message}; {error.fix}"


def _outcome(index: int) -> Outcome:
    torch.set_num_threads(1)
    return outcome(everything()[index])


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s training --", description=__doc__)
    parser.add_argument("--only", default="", help="pairs with this in their name; the page is not written")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args()
    pairs: list[Pair] = everything()
    chosen = [index for index, pair in enumerate(pairs) if options.only in title(pair)]
    outcomes = []
    with ProcessPoolExecutor(options.workers) as pool:
        for item in pool.map(_outcome, chosen):
            outcomes.append(item)
            if item.problems:
                print(item, flush=True)
            if len(outcomes) % 25 == 0:
                print(f"{len(outcomes)} of {len(chosen)}", flush=True)
    wrong = sum(bool(item.problems) for item in outcomes)
    print(f"{len(outcomes) - wrong} of {len(outcomes)} combinations train as in eager mode")
    if not options.only:
        PAGE.write_text(page(outcomes), encoding="utf-8")
        print(f"wrote {PAGE}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
