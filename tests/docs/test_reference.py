"""The pages that list things list all of them."""

from __future__ import annotations

import re
from pathlib import Path

import npu_ir
from npu_ir import errors
from npu_ir.capture.special_calls import _REFUSED

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "api.md"
ENTRY = re.compile(r"^\.\. auto(?:function|class|data):: npu_ir\.(\w+)$", re.MULTILINE)


def test_every_exported_name_is_documented_once() -> None:
    documented = ENTRY.findall(PAGE.read_text(encoding="utf-8"))
    in_errors = {name for name in npu_ir.__all__ if getattr(npu_ir, name) is getattr(errors, name, None)}

    assert sorted(documented) == sorted(set(npu_ir.__all__) - in_errors - {"__version__"})


def test_every_call_that_conversion_refuses_is_listed() -> None:
    page = (DOCS / "concepts" / "ops.md").read_text(encoding="utf-8")

    assert {name.rpartition(".")[2] for name in _REFUSED} - set(re.findall(r"`(\w+)`", page)) == set()
