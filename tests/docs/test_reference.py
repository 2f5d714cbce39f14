"""The pages that list things list all of them."""

import re

import pytest

import npu_cuda
import npu_ir
import npu_passes
import npu_runtime
from npu_cuda.backend.native_ops_page import native_ops_page
from npu_ir import errors
from npu_ir.capture.special_calls import _REFUSED
from npu_passes.cli.passes import passes_page
from npu_passes.core.registry import origin_of
from tests.support.places import ROOT
from tests.support.scripts import imported

DOCS = ROOT / "docs"
PAGE = DOCS / "reference" / "api.md"


def test_every_exported_name_is_documented_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    in_errors = {name for name in npu_ir.__all__ if getattr(npu_ir, name) is getattr(errors, name, None)}
    exported = {
        "npu_ir": set(npu_ir.__all__) - in_errors,
        "npu_passes": set(npu_passes.__all__),
        "npu_runtime": set(npu_runtime.__all__),
        "npu_cuda": set(npu_cuda.__all__),
    }
    for package, names in exported.items():
        documented = re.findall(rf"^\.\. auto(?!module)\w+:: {package}\.(\w+)$", page, re.MULTILINE)

        assert sorted(documented) == sorted(names - {"__version__"}), package


def test_every_call_that_conversion_refuses_is_listed() -> None:
    page = (DOCS / "concepts" / "ops.md").read_text(encoding="utf-8")

    assert {name.rpartition(".")[2] for name in _REFUSED} - set(re.findall(r"`(\w+)`", page)) == set()


def test_the_page_of_the_passes_is_what_they_say_of_themselves() -> None:
    passes, pipelines = (
        [
            item
            for name, item in found.items()
            if origin_of(name, kind).startswith(("npu-passes (", "npu-runtime-cpu ("))
        ]
        for kind, found in (("passes", npu_passes.all_passes()), ("pipelines", npu_passes.all_pipelines()))
    )

    page = (DOCS / "reference" / "passes.md").read_text(encoding="utf-8")

    assert page == passes_page(passes, pipelines), "npu passes --markdown > docs/reference/passes.md"


def test_the_page_of_the_native_ops_is_what_their_tables_say() -> None:
    page = (DOCS / "reference" / "native-ops.md").read_text(encoding="utf-8")

    assert page == native_ops_page(), (
        "python -m npu_cuda.backend.native_ops_page > docs/reference/native-ops.md"
    )


@pytest.mark.parametrize("name", imported("page_plot").PLOTS)
def test_the_plot_of_a_page_shows_its_tables(name: str) -> None:
    page_plot = imported("page_plot")
    page = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    plot = (DOCS / "reference" / f"{name}.svg").read_text(encoding="utf-8")

    drawn = "\n".join(page_plot.drawing(page, page_plot.PLOTS[name])) + "\n"

    assert f"]({name}.svg)" in page
    assert plot == drawn, "python benchmarks/page_plot.py"
