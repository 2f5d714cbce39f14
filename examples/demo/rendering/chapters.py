"""The report's chapters: one on the trained network, one on each untrained architecture."""

from __future__ import annotations

import math
import re

import trained
import untrained
from rendering.charts import bars, confusion, line_chart
from rendering.markup import digit_image, graph_text, grid_table, table, text
from results import (
    TrainedResult,
    UntrainedResult,
    op_counts,
    parameter_count,
    shown_bytes,
    shown_count,
    shown_difference,
    shown_seconds,
    weight_bytes,
)
from training import comparison_text

from npu_ir import format_ir

_SHOWN_IMAGES = 35
_OVERVIEW = (
    "",
    "parameters",
    "weights",
    "nodes",
    "graph file",
    "extracted in",
    "peak memory",
    "with weights",
    "difference to eager",
)
# The folder of a source line: of interest to who runs the demo, but too long to be read.
_FOLDERS = re.compile(r"(?<= )(?:[A-Za-z]:)?[/\\][^\n]*[/\\](?=[^/\\\n]+:\d+$)", re.MULTILINE)


def trained_chapter(result: TrainedResult, drawing: str) -> str:
    """Return the chapter on the network that was trained in the demo."""
    source = _FOLDERS.sub("", format_ir(result.capture.graph, provenance=True))
    graph = result.capture.graph
    return f"""
<section id="{trained.NAME}">
<h2>A network trained here, run elsewhere</h2>
<p class="lead">A residual network of {shown_count(parameter_count(graph))} parameters learned scikit-learn's
handwritten digits in {shown_seconds(result.training.graph.seconds)} with TrainStep, which replays forward,
loss, backward and optimizer as one graph; in eager PyTorch it took
{shown_seconds(result.training.eager.seconds)}. {text(comparison_text(result.training))} Its graph and its
weights went to two files. A new process, which imports nothing of the model, loaded them and read all
{len(result.digits.test_images)} test images.</p>
<div class="columns">
<div>{_training(result)}</div>
<div>{table(trained.summary(result))}</div>
</div>
<h3>The graph</h3>
<p>{len(graph)} calls of ATen ops, in static single assignment: every value is named, typed and made once.
Nothing changes in place, and no weight is inside. The sizes are those of a batch of
{graph.inputs[0].type.shape[0]} images; the last batch of the test images is filled up with zeros. The text
reads back as the same graph.</p>
<div class="graph"><div class="drawing">{drawing}</div>{graph_text(source)}</div>
<h3>What the new process answered</h3>
{_answers(result)}
<h3>When a graph is wrong</h3>
<p>In a copy of the graph, the <code>eps</code> of one batch norm was changed. <code>verify_ir</code> compares
results with eager PyTorch, and where they differ, node by node:</p>
<pre class="said">{text(_FOLDERS.sub("", result.damage))}</pre>
</section>"""


def _training(result: TrainedResult) -> str:
    epochs = result.training.graph.epochs
    if not epochs:
        return "<p>The network was not trained: 0 epochs.</p>"
    accuracies = [epoch.test_accuracy for epoch in epochs]
    losses = [epoch.loss for epoch in epochs]
    low = max(low for low in (0.0, 0.6, 0.8) if low <= min(accuracies) or low == 0.0)
    return line_chart(
        "Accuracy on the test images, by epoch", accuracies, low, 1.0, ".0%", trained.REQUIRED_ACCURACY
    ) + line_chart("Training loss, by epoch", losses, 0.0, math.ceil(max(losses) * 2) / 2, ".2g")


def _answers(result: TrainedResult) -> str:
    """Return the images that were misread, some that were not, and the confusion matrix."""
    labels, images = result.digits.test_labels, result.digits.test_images
    certainty, answers = result.run.process.result.softmax(1).max(1)
    wrong = (answers != labels).nonzero().flatten().tolist()
    right = (answers == labels).nonzero().flatten().tolist()
    tiles = []
    for index in [*wrong[:_SHOWN_IMAGES], *right[: max(0, _SHOWN_IMAGES - len(wrong))]]:
        answer, label = int(answers[index]), int(labels[index])
        caption = f"<b>{answer}</b>" if answer == label else f"<b>{answer}</b>, not {label}"
        css = "digit" if answer == label else "digit missed"
        title = f"test image {index}: {label}; the graph says {answer}, {float(certainty[index]):.0%} sure"
        tiles.append(
            f"<figure class='{css}' "
            f"title='{title}'>{digit_image(images[index])}<figcaption>{caption}</figcaption></figure>"
        )
    note = (
        f"{len(right)} of {len(labels)} test images are read right; the {len(wrong)} that are not come first."
    )
    return (
        f"<div class='columns answers'><div><p>{note}</p><div class='digits'>{''.join(tiles)}</div></div>"
        f"<div>{confusion(answers, labels)}</div></div>"
    )


def untrained_overview(results: list[UntrainedResult]) -> str:
    """Return the section that sets the untrained architectures side by side."""
    imports = results[0].weight_free["imports_memory_bytes"]
    note = "" if imports is None else f" PyTorch and transformers alone take {shown_bytes(imports)} of it."
    return f"""
<section id="weight-free">
<h2>Graphs without weights</h2>
<p class="lead">A graph knows names, shapes and types of the weights, never their content. So these models
were built under <code>torch.device("meta")</code>, where a weight takes no memory, each in a process of its
own.{note}</p>
{grid_table(_OVERVIEW, map(_overview_row, results), "grid overview")}
</section>"""


def _overview_row(result: UntrainedResult) -> list[str]:
    seconds = result.weight_free["build_seconds"] + result.weight_free["extract_seconds"]
    peak = result.weight_free["peak_memory_bytes"]
    cells = [
        shown_count(parameter_count(result.graph)),
        shown_bytes(weight_bytes(result.graph)),
        f"{len(result.graph):,}",
        shown_bytes(result.graph_file.stat().st_size),
        shown_seconds(seconds),
        "not told" if peak is None else shown_bytes(peak),
        "too large to try" if result.capture is None else _sameness(result.capture.graph == result.graph),
        "too large to try" if result.run is None else f"{result.run.max_difference:.2g}",
    ]
    return [f"<a href='#{result.name}'>{text(result.name)}</a>", *map(text, cells)]


def _sameness(same: bool) -> str:
    return "same graph" if same else "another graph"


def untrained_chapter(result: UntrainedResult, drawing: str) -> str:
    """Return the chapter on one architecture."""
    return f"""
<section id="{result.name}">
<h2>{text(result.title)}</h2>
<p class="lead">{_untrained_lead(result)}</p>
<div class="columns untrained">
<div>{table(untrained.summary(result))}<h3>What it is made of</h3>{bars(op_counts(result.graph))}</div>
<div class="drawing tall">{drawing}</div>
</div>
<h3>One block, as text</h3>
<p>The nodes of <code>{text(untrained.BLOCKS[result.name])}</code> as a graph of their own, cut out by
<code>Graph.subgraph</code>.</p>
<div class="excerpt">{graph_text(_block(result))}</div>
</section>"""


def _block(result: UntrainedResult) -> str:
    """Return the text of one block of the model."""
    prefix = untrained.BLOCKS[result.name]
    nodes = [node for node in result.graph.nodes if f"{node.provenance.module}.".startswith(f"{prefix}.")]
    return _FOLDERS.sub("", format_ir(result.graph.subgraph(nodes, prefix), provenance=True))


def _untrained_lead(result: UntrainedResult) -> str:
    size = text(shown_bytes(weight_bytes(result.graph)))
    if result.run is None:
        return (
            f"The weights of this model would fill {size}. Its graph needs none of them: it was extracted "
            "on this machine, checked, and written to a file of "
            f"{text(shown_bytes(result.graph_file.stat().st_size))}."
        )
    return (
        "One process extracted the graph without any weight. Another one loaded that graph and "
        f"{size} of weights, as <code>save_pretrained</code> wrote them, and computed what eager PyTorch "
        f"computes: largest difference {text(shown_difference(result.run.max_difference))}. On the "
        "executor, the default pipeline calls the kernels that eager PyTorch calls and saves only the time "
        "between them, which is little where kernels take long; the pipeline <code>cpu</code> also lays "
        "out and packs weights, and fuses."
    )
