"""Names of packages that are imported on first access."""

import importlib

import pytest

from tests.support.processes import run_python
from tests.support.rows import each_row

PACKAGES = ["npu_ir", "npu_runtime", "npu_runtime.training"]


@each_row("package", PACKAGES)
def test_every_exported_name_is_there_and_listed(package: str) -> None:
    module = importlib.import_module(package)

    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None, name


@each_row("package", PACKAGES)
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = importlib.import_module(package).nothing


def test_what_is_lazy_is_not_imported_with_the_package() -> None:
    done = run_python(
        "import sys, npu_ir, npu_runtime;"
        "lazy = ('npu_ir.viz', 'npu_runtime.diagnostics', 'npu_runtime.training');"
        "assert not [name for name in lazy if name in sys.modules];"
        "npu_ir.draw; assert 'npu_ir.viz' in sys.modules"
    )

    assert done.returncode == 0, done.stderr
