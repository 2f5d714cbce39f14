"""The demo: its small form runs, its claims hold, its report is there, and a false claim is not hidden."""

import html.parser
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from npu_ir import Interpreter, load_ir, load_weights
from tests.support.places import ROOT
from tests.support.scripts import forgotten, imported

DEMO = ROOT / "examples" / "demo"
MODELS = ("digits", "gpt2", "resnet50", "llama-70b")
Demo = Callable[[str], ModuleType]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Demo]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.syspath_prepend(DEMO)  # it imports on when it runs
    with forgotten(DEMO):
        yield lambda name: imported(name, DEMO)


# One test, so that the demo runs once, on however many processes the tests are spread.
@pytest.mark.exhaustive
def test_the_small_demo_keeps_its_claims_and_leaves_report_graph_and_weights(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = demo("run").main(["--output", str(tmp_path), "--small"])

    printed = capsys.readouterr().out
    assert status == 0, printed
    assert printed.splitlines()[-1] == str(tmp_path / "report.html")
    assert "\x1b" not in printed, "not a terminal: no colours"
    require_claims(json.loads((tmp_path / "results.json").read_text())["claims"])
    require_report(tmp_path, MODELS)
    require_saved_graph_that_runs(tmp_path)


def require_claims(claims: list[dict[str, Any]]) -> None:
    made = {(claim["model"], claim["claim"]) for claim in claims}

    assert [claim for claim in claims if not claim["holds"]] == []
    assert made >= {
        ("digits", "Both have the same training loss in the first epoch, within a hundredth"),
        ("digits", "The graph is as accurate as the model"),
        ("digits", "verify_ir names the node whose eps was changed in a copy"),
        ("gpt2", "The graph extracted without weights is the graph extracted with them"),
        ("resnet50", "The new process imports none of the model's code"),
        ("gpt2", "The executor computes what eager PyTorch computes"),
        ("digits", "The executor computes what eager PyTorch computes"),
        ("llama-70b", "Extraction needs less than 3.0 GB of memory"),
    }


def require_report(output: Path, models: tuple[str, ...]) -> None:
    page = (output / "report.html").read_text()
    reader = PageReader()

    reader.feed(page)

    assert set(models) <= set(reader.sections)
    assert reader.loaded == [], "the report stands alone"
    assert all((output / f"{model}.svg").read_text() in page for model in models)


def require_saved_graph_that_runs(output: Path) -> None:
    graph = load_ir(output / "digits.json")
    interpreter = Interpreter(graph, load_weights(output / "digits.weights.safetensors", graph))
    images = load_file(output / "digits.inputs.safetensors")["images"]
    expected = load_file(output / "digits.outputs.safetensors")["result"]

    logits = interpreter.run(images[:64])

    assert torch.allclose(logits, expected[:64], rtol=0.0, atol=1e-5)


def test_an_untrained_network_fails_the_demo(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = demo("run").main(["--output", str(tmp_path), "--only", "digits", "--epochs", "0"])

    assert status == 1
    wrong = "FAILED: The trained network is right on more than 97% of the test images"
    assert wrong in capsys.readouterr().out
    # Beside it, on a busy machine, that a step takes less time than in eager PyTorch.
    assert re.search(r"[12] of 11 claims do(es)? not hold", (tmp_path / "report.html").read_text())
    require_report(tmp_path, ("digits",))
    require_saved_graph_that_runs(tmp_path)


def test_a_process_that_fails_is_reported_with_its_error(demo: Demo, tmp_path: Path) -> None:
    missing = tmp_path / "none.json"

    with pytest.raises(
        demo("processes").ProcessError, match=r"run_graph.py ended with exit code 1:(.|\n)*none.json"
    ):
        demo("processes").run_graph(missing, missing, {"x": torch.ones(1)}, tmp_path)


def test_a_wrong_result_is_a_claim_that_fails(demo: Demo) -> None:
    process = demo("processes").NewProcess(torch.tensor([1.0, 2.0]), 0.0, {"model_code": ["transformers"]})
    run = demo("capturing").compared(torch.tensor([1.0, 2.1]), 0.0, process)

    claims = demo("capturing").run_claims("model", run)

    assert [claim.holds for claim in claims] == [False, False]
    assert claims[0].measured == "transformers"
    assert "1 of 2 elements differ" in claims[1].measured


def test_a_wrong_executor_is_a_claim_that_fails(demo: Demo) -> None:
    execution = demo("results").Execution(torch.tensor([1.0, torch.nan]), 0.1, 0.2, 0.1, 0.05)

    claim = demo("executing").execution_claim("model", execution, torch.tensor([1.0, 2.0]))

    assert not claim.holds
    assert "1 of 2 elements differ" in claim.measured
    assert demo("executing").execution_rows(execution)[:2] == [
        ("executor beside eager, one call", "200 ms and 100 ms: 2.00x"),
        ("likewise, with the pipeline cpu", "50 ms and 100 ms: 0.50x"),
    ]


def test_a_training_that_parts_from_eager_or_is_slow_is_claims_that_fail(demo: Demo) -> None:
    digits, results = demo("digits"), demo("results")
    eager = digits.Training((digits.Epoch(1.0, 0.98),), 1.0, 0.1, 20)
    graph = digits.Training((digits.Epoch(1.02, 0.96),), 1.0, 0.1, 20)

    runs = results.TrainingRuns(eager, graph, 0.001, 0.002)
    claims = [*demo("training").training_claims("digits", runs), demo("training").speed_claim("digits", runs)]

    assert [claim.holds for claim in claims] == [False, False, False]
    assert [claim.measured for claim in claims] == [
        "96.00% and 98.00% are read right",
        "1.020000 and 1.000000",
        "2.0 ms and 1.0 ms: 2.00x",
    ]


class PageReader(html.parser.HTMLParser):
    """What a page shows, and what it would have to load."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: list[str | None] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "section":
            self.sections.append(values["id"])
        source = values.get("src")
        if tag in {"script", "link", "iframe"} or (source is not None and not source.startswith("data:")):
            self.loaded.append(tag)
