"""The page that `run_all` writes says what passes, what does not, and why."""

from tests.npu_runtime.training.outcomes import Outcome
from tests.npu_runtime.training.run_all import page

RIGHT = Outcome("mlp", "Adam", {}, {"interpreter": 0.25, "replay": 0.5}, "fc1.bias on the replay", 10)
WRONG = Outcome(
    "mlp", "SGD", {"replay": "fc1.bias after step 1: error 1"}, {"interpreter": 0.1}, "result", 10
)


def test_the_page_says_what_passes_what_is_refused_and_what_is_not_judged() -> None:
    text = page([RIGHT, WRONG])

    assert "**1 of 2 combinations pass everywhere**, 30 tensors compared." in text
    assert "| mlp | 1 of 2 | 0.25 | 0.00 | 0.00 | 0.50 | 0.00 | 0.00 | fc1.bias on the replay |" in text
    assert "- mlp / SGD: replay: fc1.bias after step 1: error 1" in text
    assert "- `LBFGS`: LBFGS cannot be traced: it evaluates the loss a number of times" in text
    assert "`conv1.bias`" in text
    assert "the batch norm behind it subtracts a bias again" in text
    assert "- Muon on the backend `host`: it makes" in text
    assert "## What does not pass\n\nNothing." in page([RIGHT])
