"""Numbers that pages for newcomers quote are those of the generated pages."""

import math
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.places import ROOT

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
NATIVE_STEP = "TrainStep, backend host"
OURS, FREEZING, ONNX, VINO = "IRExecutor", "torch.compile, freezing", "ONNX Runtime", "OpenVINO"
CALLS = OURS, FREEZING, ONNX, VINO  # in the tables of calls
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def text_of(page: Path) -> str:
    """Return the words of a page without marks and line ends."""
    return " ".join(re.sub(r"[*`]", "", page.read_text(encoding="utf-8")).split())


def table(page: str, head: str) -> dict[str, list[str]]:
    """Return the rows of the first table with this head, by their first cell."""
    _, _, text = (REFERENCE / page).read_text(encoding="utf-8").partition(f"\n| {head}")
    lines = text.split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in rows}


def column(page: str, contender: str, index: int) -> list[str]:
    """Return a cell of each row with this contender, in all tables of a page."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    rows = re.findall(rf"^\| {re.escape(contender)} \|(.*)\|$", text, re.MULTILINE)
    return [row.split("|")[index].strip() for row in rows]


def seconds(time: str) -> float:
    number, unit = time.split()
    return float(number) * UNITS[unit]


def span(values: Iterable[str], key: type[float] | None = None) -> str:
    """Return the smallest and the largest value, as the page has them."""
    ordered = sorted(values, key=key or seconds)
    return f"{ordered[0]} to {ordered[-1]}" if len(ordered) > 1 else ordered[0]


def steps() -> dict[str, list[str]]:
    return table("training-benchmarks.md", "time to eager | TrainStep")


def contenders(page: str) -> list[str]:
    """Return the columns of the first table of times of a page."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    head = text.partition("| time to eager")[2].splitlines()[0]
    return [cell.strip() for cell in head.strip(" |").split("|")]


def contenders_of_steps() -> list[str]:
    return contenders("training-benchmarks.md")


def calls() -> dict[str, dict[str, str]]:
    """Return the times of calls relative to eager, by case and contender."""
    heads = contenders("runtime-benchmarks.md")
    rows = table("runtime-benchmarks.md", "time to eager | IRExecutor |")
    return {name: dict(zip(heads, cells, strict=True)) for name, cells in rows.items()}


def span_of_steps() -> str:
    """Return the spans of our native steps, and of the quickest way to use torch.compile."""
    heads = contenders_of_steps()
    compiled = [index for index, name in enumerate(heads) if name.startswith("torch.compile")]
    ours = span((row[heads.index(NATIVE_STEP)] for row in steps().values()), key=float)
    others = span((min(row[index] for index in compiled) for row in steps().values()), key=float)
    return f"{ours}, {others}"


def test_the_landing_page_quotes_what_was_measured() -> None:
    page = text_of(DOCS / "index.md")
    operators = (REFERENCE / "op-coverage.md").read_text(encoding="utf-8")
    models = (REFERENCE / "model-coverage.md").read_text(encoding="utf-8")
    outcomes = dict(re.findall(r"^\| (pass|FAIL) \| (\d+) \|", operators, re.MULTILINE))
    passed = re.findall(r"; (\d+) of the (\d+) that .* pass with fixed sizes, (\d+) with", models)
    native = re.search(
        r"models: ([\d.]+)% of [\d,]+ nodes and ([\d.]+)% of", text_of(REFERENCE / "native-coverage.md")
    )
    mean = calls()["geometric mean"]
    ours, others = span_of_steps().split(", ")

    assert outcomes["FAIL"] == "0"
    assert f"{int(outcomes['pass']):,} calls of PyTorch's operator database" in page
    assert all(len(set(counts)) == 1 for counts in passed)
    assert f"{sum(int(counts[0]) for counts in passed)} models of transformers" in page
    assert native is not None
    assert "FAILS" not in text_of(REFERENCE / "native-coverage.md")
    assert f"{native[1]} % of their nodes and {native[2]} % of their operations" in page
    assert f"{mean[OURS]} of eager PyTorch's time for a call" in page
    assert f"ONNX Runtime takes {mean[ONNX]}, torch.compile {mean[FREEZING]}" in page
    assert f"{ours} of eager PyTorch's time for a whole training step" in page
    assert f"torch.compile at its best {others}" in page


def tokens() -> dict[str, list[str]]:
    return table("decode-benchmarks.md", "Decoder | a token | to eager")


def numbers(cells: Iterable[str]) -> list[str]:
    return [cell for cell in cells if cell != "-"]


def test_the_how_to_quotes_what_tokens_take() -> None:
    page = text_of(DOCS / "how-to" / "generate-text.md")
    to_eager, to_onnx = (span(numbers(row[i] for row in tokens().values()), key=float) for i in (1, 3))
    held = span((row[3] for row in table("decode-benchmarks.md", " | weights | cache").values()), key=float)
    text = (REFERENCE / "decode-benchmarks.md").read_text(encoding="utf-8")
    lengths = re.findall(
        r"\| (?P<positions>\d+) \| [^|]+ \| [^|]+ \| (?P<ratio>[\d.]+) \|$", text, re.MULTILINE
    )
    longest = span((ratio for positions, ratio in lengths if positions == "4096"), key=float)
    allocated = [(row[5], row[6]) for row in table("decode-benchmarks.md", " | weights | cache").values()]

    assert f"a token takes {to_eager} of eager PyTorch's time with a static cache" in page
    assert f"{to_onnx} of that of ONNX Runtime" in page
    assert f"{held} times the memory of weights and cache" in page
    assert f"With a cache for 4,096 positions, it takes {longest} times as long as with one for 128" in page
    assert all(token == logits for token, logits in allocated), (
        "nothing is allocated for a token but its logits"
    )


def test_the_readme_counts_what_was_compared() -> None:
    page = text_of(ROOT / "README.md")
    operators, models, training = (
        text_of(REFERENCE / f"{name}-coverage.md") for name in ("op", "model", "training")
    )
    equal = re.search(r"\| pass \| (\d+) \|", operators)
    passed = re.findall(r"; (\d+) of the \d+ that torch.export exports pass", models)
    combinations = re.search(r"(\d+) of \1 combinations pass everywhere", training)

    assert equal is not None
    assert combinations is not None
    assert f"[{int(equal[1]):,} calls of PyTorch's operator database]" in page
    assert f"[{sum(map(int, passed))} models]" in page
    assert f"[{combinations[1]} combinations of models and optimizers]" in page


# Rows of the table of the README, and the rows of the pages that they are from.
TIMES = {
    "a call, geometric mean of 11 models on 1 and 2 threads": "geometric mean",
    "GPT, 6 layers, width 256, 1 thread": "GPT d256 L6 T128, 1 thread",
    "ResNet-50, 1 thread": "ResNet-50, 224x224, 1 thread",
    "MobileNetV3, 1 thread": "MobileNetV3, 224x224, 1 thread",
    "a training step of a small CNN, Adam": "CNN with batch norm, 32x3x32x32, Adam",
    "a training step of a small transformer, Adam": "Transformer d64 L2, 16x64, Adam",
}


def test_the_times_in_the_readme_are_those_of_the_pages() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n| | npu-runtime | torch.compile")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n\n")[0].splitlines()
    ]
    readme = {name: cells for name, *cells in rows[2:]}
    heads = contenders_of_steps()
    compiled = [heads.index(name) for name in compiled_steps()]

    expected = {name: [times[key] for key in CALLS] for name, times in calls().items()}
    expected |= {
        name: [cells[heads.index(NATIVE_STEP)], min(cells[index] for index in compiled), "", ""]
        for name, cells in steps().items()
    }

    assert readme == {name: expected[row] for name, row in TIMES.items()}


def test_the_comparison_quotes_what_was_measured() -> None:
    page = (DOCS / "comparison.md").read_text(encoding="utf-8")
    mean = calls()["geometric mean"]
    cases = [row for name, row in calls().items() if name != "geometric mean"]
    times = [
        [
            float(row[OURS]),
            float(min(row[FREEZING], row["torch.compile"])),
            float(row[ONNX]),
            float(row[VINO]),
        ]
        for row in cases
    ]
    won = [sum(row[i] < min(row[:i] + row[i + 1 :]) for row in times) for i in range(len(CALLS))]
    ties = len(cases) - sum(won)
    first = [column("runtime-benchmarks.md", name, 2) for name in CALLS]
    trained = [column("training-benchmarks.md", name, 2) for name in (NATIVE_STEP, *compiled_steps())]

    assert f"2 threads | {' | '.join(mean[name] for name in CALLS)} |" in page
    assert f"of {len(cases)} cases; ties: {ties} | {' | '.join(map(str, won))} |" in page
    assert f"call has returned | {' | '.join(span(times) for times in first)} |" in page
    assert f"optimizers | {' | '.join(span_of_steps().split(', '))} | | |" in page
    of_compiled = span(time for times in trained[1:] for time in times)
    assert f"step has returned | {span(trained[0])} | {of_compiled} | | |" in page
    mobile = calls()["MobileNetV3, 224x224, 2 threads"]
    said = f"takes {mobile[ONNX]} of eager's time in ONNX Runtime and {mobile[OURS]} here"
    assert said in " ".join(page.split())


def compiled_steps() -> list[str]:
    return [name for name in contenders_of_steps() if name.startswith("torch.compile")]


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "comparison.md"], ids=lambda page: page.stem)
def test_times_of_training_steps_on_a_gpu_are_those_of_its_page(page: Path) -> None:
    rows = table("gpu-benchmarks.md", "| eager | eager, as a graph")
    shares = [
        min(float(cell) for cell in row[2:] if cell != "-") / float(row[0])
        for name, row in rows.items()
        if name.endswith("training")
    ]

    assert len(shares) == 4
    assert f"takes {min(shares):.2f} to {max(shares):.2f} of eager" in text_of(page)


def test_the_comparison_says_how_far_single_kernels_are_behind() -> None:
    rows = table("gpu-benchmarks.md", "| ops | us | floor, us")
    shares = [float(row[-1]) for row in rows.values() if re.fullmatch(r"[\d.]+", row[-1])]
    mean = math.exp(sum(map(math.log, shares)) / len(shares))
    slower = sum(share > 1.1 for share in shares)

    page = text_of(DOCS / "comparison.md")

    assert f"of {len(shares)} that were measured, {slower} take more than 1.1 times as long" in page
    assert f"and {mean:.2f} times as long in the geometric mean" in page
