"""``npu compare``: comparison of two ways to run a model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import Graph, load_ir
from npu_ir.cli import factory, input_text
from npu_ir.cli.console import print_facts, print_report
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import add_file, add_output_folder, add_tolerances, set_completions
from npu_ir.cli.weight_selection import load_constants, select_weights
from npu_runtime.cli.saved_graph import add_data, add_graph, load_call

if TYPE_CHECKING:
    from npu_runtime.cli.side_text import SideText

_SIDES = """\
sides:
  interpreter                 the graph, node by node
  executor                    the graph, by the executor; executor:passes=NAME with this pipeline or these
                              passes (default: default), executor:passes=none without passes,
                              executor:after=PASS,PASS@K after the first K runs of passes
  backend:NAME                the graph, by the executor on this backend
  after:PASS,PASS@K           the graph after the first K runs of passes (all without @K), by the interpreter
  float64                     the graph in float64: weights, inputs and constants
  eager:MODULE:FACTORY        the model itself, in PyTorch
"""
_WHOLE_SIDES = ("interpreter", "executor", "float64")  # those without a colon, which separates words in bash
_EPILOG = f"""\
Both sides run on the same weights and inputs. Their inner values are aligned, also if passes have changed
the graph, and compared; so are results and in-place changes. A difference beyond the tolerance does not
count if rounding explains it, judged by a run in float64. The exit code is 1 if the sides differ, and the
first value that differs is named. Weights are those of --weights, those of the model, those that were saved
with FILE, or random ones. An input that is not given gets random data.

{_SIDES}
{factory.HELP}
{input_text.HELP}
example:
  npu compare net.json --weights net.safetensors --a interpreter --b executor:passes=cpu
  npu compare net.json --weights net.safetensors --b after:default@3 --repro-dir differs
  npu compare net.json fast.json --weights net.safetensors --b interpreter
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare",
        help="compare two ways to run a saved graph, value by value",
        description="Run two sides on the same inputs, and say in which value they begin to differ.",
        epilog=_EPILOG,
    )
    add_graph(parser)
    add_file(parser, "file_b", nargs="?", help="the graph of side b, where it is another one")
    sides = (
        parser.add_argument(
            "--a", default="interpreter", metavar="SIDE", help="the trusted side (default: interpreter)"
        ),
        parser.add_argument(
            "--b", default="executor", metavar="SIDE", help="the side to examine (default: executor)"
        ),
    )
    for side in sides:
        set_completions(side, lambda: _WHOLE_SIDES)
    parser.add_argument("--train", action="store_true", help="take models in train mode (default: eval mode)")
    add_data(parser, "for both: ")
    add_tolerances(parser)
    add_json(parser, "all that was compared")
    add_output_folder(
        parser,
        "--repro",  # its first name
        "--repro-dir",
        dest="repro_dir",
        help="write the first divergence as a script that runs the one node, over what is there",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare the sides, print the report, and return the exit code: whether they differ."""
    from npu_runtime.cli.side_text import parse_side
    from npu_runtime.diagnostics.compare import compare

    texts = parse_side(options.a), parse_side(options.b)
    saved = load_call(options)
    other = saved.graph if options.file_b is None else load_ir(options.file_b)
    torch.manual_seed(options.seed)
    options.progress.stage("preparing both sides")
    (a, b), weights, origin = _make_sides(texts, (saved.graph, other), options)
    torch.manual_seed(options.seed)
    options.progress.stage("running and comparing both sides")
    comparison = compare(
        a,
        b,
        saved.call.args,
        saved.call.kwargs,
        weights=weights,
        rtol=options.rtol,
        atol=options.atol,
        repro_dir=options.repro_dir,
    )
    print_or_write_json(comparison.to_dict, options, "the comparison")
    if is_text_wanted(options):
        print_report([*comparison.parts(), ""])
        print_facts({"weights": origin, **saved.facts})
    return OK if comparison.ok else FAILED


def _make_sides(
    texts: tuple[SideText, SideText], graphs: tuple[Graph, Graph], options: argparse.Namespace
) -> tuple[list[Any], dict[str, torch.Tensor] | None, str]:
    """Return the sides, the weights for those without own ones, and the origin of these as text."""
    from npu_ir.verify.reference import model_tensors

    models = {text: text.make_model(train=options.train) for text in texts if text.is_eager}
    is_given = options.weights is not None or options.random_weights is not None
    weights, origin = load_constants(options) or None, "those of the model"
    if is_given or not models:
        weights, origin = select_weights(graphs[0], options, options.seed)
    own = (model_tensors(next(iter(models.values()))) if models and not is_given else {}) | (weights or {})
    sides = [
        models[text] if text in models else text.make(graph, own)
        for text, graph in zip(texts, graphs, strict=True)
    ]
    return sides, weights, origin
