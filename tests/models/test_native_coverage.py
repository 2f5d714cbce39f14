"""The run that says what of whole models is native: shares, reasons, differences, and models that fail."""

import pytest
import torch

from tests.models import native_coverage
from tests.models.case import Case, Input
from tests.models.native_coverage import ATEN, HOST, TOLERANCE, Share, page, share_of


class Mixed(torch.nn.Module):
    """A product, which `host` runs, and a determinant, which it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(self.layer(x))


CASE = Case("mixed", "ours", "small", Mixed, (Input("x", (4, 4)),))


def test_nodes_and_operations_are_counted_by_backend_with_the_reasons() -> None:
    share = share_of(CASE)

    assert share.problem == ""
    assert share.nodes[HOST] == 1
    assert share.flops == {HOST: 2 * 4 * 4 * 4, ATEN: 0}
    assert 0 <= share.difference < TOLERANCE
    assert [reason for _, reason in share.reasons] == [f"no native op for {op}" for op, _ in share.reasons]


def test_results_that_are_not_those_of_eager_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    run = native_coverage.run_graph
    for scale, told in ((1.01, "FAILS: it differs from eager by 0.01"), (float("nan"), "FAILS: result 0")):
        monkeypatch.setattr(
            native_coverage,
            "run_graph",
            lambda *given, by=scale: (effect := run(*given)).__class__(
                effect.results * by, effect.kwargs, effect.buffers
            ),
        )

        assert share_of(CASE).problem.startswith(told)


def test_the_page_has_a_row_for_each_model_and_each_reason_once() -> None:
    share = share_of(CASE)
    failed = Share(CASE, problem="FAILS: oh")

    text = "\n".join(page([share, share, failed]))

    assert "- 2 models: " in text
    assert text.count("| `mixed` | ") == 2
    (op, reason), *_ = share.reasons
    assert text.count(f"| `{op}` | 2 | 2 | {reason} |") == 1
    assert "- `mixed`: FAILS: oh" in text
