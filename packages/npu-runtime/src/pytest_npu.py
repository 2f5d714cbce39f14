"""Plugin of pytest: contract tests of installed plugins by name, without a line of code.

```console
python -m pytest --npu-backend my-backend --npu-pass "my-pass{limit=3}"
```

It is a module beside the packages, because pytest imports it at each start: `npu_runtime` would load PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_PACKAGE = "npu_runtime.testing"  # with --pyargs
_MODULE = "conformance.py"
_NAMES = ("backend", "pass", "operators")


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup("npu", "contract tests of plugins of npu-ir")
    for kind, metavar, what in (
        ("backend", "NAME", "a backend"),
        ("pass", "NAME[{OPTION=VALUE}]", "a pass"),
    ):
        group.addoption(
            f"--npu-{kind}",
            action="append",
            default=[],
            metavar=metavar,
            help=f"run the contract tests of {what} of an installed plugin; may be given several times",
        )
    group.addoption(
        "--npu-operators",
        action="append",
        default=[],
        metavar="NAME,NAME",
        help="the operators of PyTorch's samples to test it on: names, 'all' or 'none' "
        "(default: those that most models are made of)",
    )


def pytest_configure(config: Any) -> None:
    """Collect the contract tests: beside the paths of the command line, or alone where there are none."""
    if not _is_used(config):
        return
    named = config.args_source is config.ArgsSource.ARGS
    # As a part of another argument, pytest would leave out the module (pytest 9).
    paths = [path for path in config.args if path != _PACKAGE and Path(path) != _folder()] if named else []
    config.args = [*paths, str(_folder() / _MODULE)]


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    """Return the module of contract tests with a class for each name on the command line."""
    if module_path != _folder() / _MODULE or not _is_used(parent.config):
        return None
    import pytest

    class Conformance(pytest.Module):
        def collect(self) -> Iterator[Any]:
            named = {name: self.config.getoption(f"npu_{name}") for name in _NAMES}
            problem = self.obj.add_contracts(**named)
            if problem is not None:
                raise self.CollectError(problem)
            yield from super().collect()

    return Conformance.from_parent(parent, path=module_path)


def _is_used(config: Any) -> bool:
    return bool(config.getoption("npu_backend") or config.getoption("npu_pass"))


def _folder() -> Path:
    """Return the folder of the contract tests, without importing it."""
    spec = find_spec("npu_runtime")
    assert spec is not None, "this module is part of npu-runtime"
    assert spec.origin is not None, "npu_runtime is a package with an __init__.py"
    return Path(spec.origin).parent / "testing"
