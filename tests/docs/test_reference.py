"""The API reference names everything that npu_ir exports."""

from __future__ import annotations

import re
from pathlib import Path

import npu_ir
from npu_ir import errors

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
ENTRY = re.compile(r"^\.\. auto(?:function|class|data):: npu_ir\.(\w+)$", re.MULTILINE)


def test_every_exported_name_is_documented_once() -> None:
    documented = ENTRY.findall(PAGE.read_text(encoding="utf-8"))
    in_errors = {name for name in npu_ir.__all__ if getattr(npu_ir, name) is getattr(errors, name, None)}

    assert sorted(documented) == sorted(set(npu_ir.__all__) - in_errors - {"__version__"})
