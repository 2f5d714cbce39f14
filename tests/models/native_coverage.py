"""Run models of transformers, timm and torchvision on `host`, and write the page that says what is native.

Each is captured without weights, prepared by the pipeline ``host``, given the weights of the model, run, and
compared with eager PyTorch. Named models are run and told of alone, without writing the page.
"""

import argparse
import gc
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from npu_ir import Graph
from npu_ir.verify.comparison import Comparison
from npu_runtime import IRExecutor
from npu_runtime.diagnostics.explain import explain
from npu_runtime.diagnostics.explain.explanation import Explanation
from tests.models.case import Case
from tests.models.cases import all_cases
from tests.models.effects import compare_trees, real_model, run_eagerly, run_graph
from tests.models.extraction import ExportRefusesError, extract
from tests.support.coverage_runs.outcomes import first_line
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "native-coverage.md"
HOST, ATEN = "host", "aten"
TOLERANCE = 1e-3  # of the largest value of a result: rounding adds up over the layers of a model
INTRODUCTION = """<!-- written by nox -s native-coverage -->
# What runs native

Architectures of `transformers` with tiny random configurations, and families of `timm` and `torchvision` by
their smallest member, on the backend `host`: captured without weights, prepared by the pipeline `host`, given
weights, run on one thread, and compared with eager PyTorch. Nodes and floating-point operations are those of
the graph that a call runs; the rest runs on ATen, for the reasons below. An executor without `backend=` may
leave more to ATen: what takes less time there. The difference is the largest one from eager, relative to the
largest value of that result.
"""


@dataclass(slots=True)
class Share:
    """What of a model runs native.

    Attributes:
        case: The model.
        problem: Why it is not known; "" where it is.
        nodes: The number of nodes of each backend.
        flops: Likewise the floating-point operations.
        difference: The largest difference from eager, relative to the largest value of the result.
        reasons: The nodes that ATen runs, by op and reason.
    """

    case: Case
    problem: str = ""
    nodes: Counter[str] = field(default_factory=Counter)
    flops: Counter[str] = field(default_factory=Counter)
    difference: float = 0.0
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)


def share_of(case: Case) -> Share:
    share = Share(case)
    try:
        graph, model, kwargs = extract(case).graph, real_model(case), case.examples()
        found: list[Explanation] = []
        effect = run_graph(graph, model, kwargs, partial(_execute, found))
        expected = run_eagerly(model, kwargs).parts
        compared = compare_trees(effect.parts, expected)
    except ExportRefusesError as refusal:
        share.problem = f"torch.export refuses: {first_line(refusal)}"
    except Exception as error:  # noqa: BLE001 - a model that fails is told of on the page
        share.problem = f"FAILS: {first_line(error)}"
    else:
        _count(share, found[0])
        share.difference, share.problem = _judge(compared, tree_leaves(expected))
    return share


def _execute(found: list[Explanation], graph: Graph, **given: Any) -> Any:
    executor = IRExecutor(
        graph,
        given["weights"],
        constants=given["constants"],
        backend=HOST,
        passes=HOST,
        updates="ignore",
        threads=1,
    )
    found.append(explain(executor))
    leaves, mutations = executor.run_flat((), given["kwargs"])
    return executor._unflatten(leaves), mutations


def _count(share: Share, explanation: Explanation) -> None:
    for node in explanation.nodes:
        share.nodes[node.backend] += 1
        share.flops[node.backend] += node.flops or 0
        if node.backend == ATEN:
            share.reasons[node.op_type, node.reasons[HOST]] += 1


def _judge(compared: Sequence[Comparison], expected: Sequence[Any]) -> tuple[float, str]:
    """Return the largest difference, and what is wrong; "" where nothing is."""
    worst = 0.0
    for item, leaf in zip(compared, expected, strict=True):
        is_close = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and math.isfinite(item.max_abs)
        if is_close and leaf.numel():
            worst = max(worst, item.max_abs / (float(leaf[leaf.isfinite()].abs().max()) or 1.0))
        elif not item.ok:
            return worst, f"FAILS: {item}"
    return worst, "" if worst <= TOLERANCE else f"FAILS: it differs from eager by {worst:.2g}"


def page(shares: Sequence[Share]) -> Iterator[str]:
    known = [share for share in shares if not share.problem]
    yield INTRODUCTION
    yield f"- torch {torch.__version__.partition('+')[0]}"
    nodes, flops = (sum((getattr(share, name) for share in known), Counter()) for name in ("nodes", "flops"))
    whole = sum(ATEN not in share.nodes for share in known)
    yield (
        f"- {len(known)} models: {_percent(nodes)} of {nodes.total():,} nodes and {_percent(flops)} of the "
        f"floating-point operations are native; {whole} models run native as a whole"
    )
    yield from _reasons(known)
    for library in dict.fromkeys(share.case.library for share in known):
        yield from _table(library, [share for share in known if share.case.library == library])
    yield "\n## Not run\n"
    yield from (f"- `{share.case.name}`: {share.problem}" for share in shares if share.problem)


def _reasons(shares: Iterable[Share]) -> Iterator[str]:
    yield "\n## What ATen runs, and why\n\n| op | nodes | models | why not `host` |\n|---|---:|---:|---|"
    count: Counter[tuple[str, str]] = Counter()
    models: Counter[tuple[str, str]] = Counter()
    for share in shares:
        general = Counter({(op, _general(reason)): 0 for op, reason in share.reasons})
        for (op, reason), number in share.reasons.items():
            general[op, _general(reason)] += number
        count += general
        models += Counter(general.keys())
    for (op, reason), number in count.most_common():
        yield f"| `{op}` | {number} | {models[op, reason]} | {reason} |"


def _general(reason: str) -> str:
    """Return a reason without the types of one node, so that it is told of once."""
    return reason.partition(", not ")[0].replace("|", "\\|")


def _table(library: str, shares: Sequence[Share]) -> Iterator[str]:
    yield f"\n## {library}\n\n| model | nodes | native | of FLOPs | difference |\n|---|---:|---:|---:|---:|"
    for share in sorted(shares, key=lambda share: share.case.name):
        flops = _percent(share.flops) if share.flops.total() else ""
        yield (
            f"| `{share.case.name}` | {share.nodes.total():,} | {_percent(share.nodes)} | {flops} "
            f"| {share.difference:.1g} |"
        )


def _percent(amounts: Counter[str]) -> str:
    return f"{amounts[HOST] / amounts.total():.1%}" if amounts.total() else ""


def main(say: Callable[[str], Any] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of models; without: all, and the page is written")
    names = parser.parse_args().names
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    shares = []
    for case in all_cases():
        if names and case.name not in names:
            continue
        share = share_of(case)
        shares.append(share)
        say(f"{case.name}: {share.problem or _percent(share.nodes)}, {share.difference:.2g}")
        if names:
            say("\n".join(f"  {number} {op}: {reason}" for (op, reason), number in share.reasons.items()))
        gc.collect()
    if not names:
        PAGE.write_text("\n".join(page(shares)) + "\n")
    return int(any(share.problem.startswith("FAILS") for share in shares))


if __name__ == "__main__":
    sys.exit(main())
