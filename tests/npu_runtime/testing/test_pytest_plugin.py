"""The plugin of pytest: contract tests by name, and nothing heavy where they are not wanted."""

from pathlib import Path

from npu_runtime.testing import conformance
from tests.support.processes import run_python

SCRIPT = """
import logging, sys, pytest
from pathlib import Path
logging.raiseExceptions = False  # PyTorch's loggers may hold the output that an earlier run captured
Path("test_own.py").write_text("def test_own(): pass")
def run(*words):
    print("exit", int(pytest.main(["-q", "-p", "pytest_npu", "-p", "no:cacheprovider", *words])))
run("test_own.py")
print("torch" in sys.modules)
run("--npu-pass", "dead-code", "--npu-operators", "none")
run("test_own.py", "--npu-pass", "cse", "--npu-operators", "none")
run("--pyargs", "npu_runtime.testing", "--npu-backend", "atem")
run("--npu-backend", "aten", "--npu-operators", "ad")
"""


def test_options_name_what_is_tested_and_without_them_nothing_is_loaded(tmp_path: Path) -> None:
    finished = run_python(SCRIPT, cwd=tmp_path)

    assert finished.returncode == 0, finished.stderr
    plain, loaded, alone, beside, unknown, operators = _parts(finished.stdout)
    assert "1 passed" in plain
    assert loaded == "False"
    assert "4 passed, 1 skipped" in alone
    assert "5 passed, 1 skipped" in beside
    assert "there is no backend 'atem' (did you mean 'aten'?)" in unknown
    assert "PyTorch's samples have no operator 'ad'" in operators
    assert "Traceback" not in finished.stdout


def _parts(text: str) -> list[str]:
    """Return the output of each run, and the line in between."""
    parts, lines = [], []
    for line in text.splitlines():
        lines.append(line)
        if line.startswith("exit ") or line in ("True", "False"):
            parts.append("\n".join(lines))
            lines = []
    return parts


def test_the_operators_are_all_none_or_some() -> None:
    assert conformance._settings([]) == {}
    assert conformance._settings(["none"]) == {"operators": (), "random_graphs": 0}
    assert conformance._settings(["add, mul", "neg"]) == {"operators": ("add", "mul", "neg")}
    assert len(conformance._settings(["all"])["operators"]) > 400
