"""Parts of npu-cuda without the packages that they need: refused, with the command that installs them."""

import pytest

from tests.support.processes import run_python

SCRIPT = """
import sys
sys.modules[{missing!r}] = None  # importing it now fails
import npu_cuda
from npu_cuda.errors import UnavailableError
try:
    {use}
except UnavailableError as error:
    print(error)
"""


@pytest.mark.parametrize(("missing", "use", "text", "fix"), [
    ("numpy", "import npu_cuda.testing", "references with NumPy, which is not installed",
        'python -m pip install "npu-cuda[testing]"'),
    ("npu_ir", "npu_cuda.lowering_rule", "graphs of npu-ir, which is not installed",
        'python -m pip install "npu-ir[cuda]"'),
])  # fmt: skip
def test_what_is_missing_is_named_with_the_command_that_brings_it(
    missing: str, use: str, text: str, fix: str
) -> None:
    finished = run_python(SCRIPT.format(missing=missing, use=use))

    assert text in finished.stdout, finished.stderr
    assert fix in finished.stdout
