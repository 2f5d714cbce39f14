"""The public names and signatures are those that are recorded, so that no change of them goes unnoticed."""

import sys
from pathlib import Path

import pytest

from tests.support.scripts import TOOLS, imported

api = imported("public_api", TOOLS)

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="annotations are shown in another way")


def test_the_public_api_is_as_recorded() -> None:
    differences = api.compare("".join(f"{line}\n" for line in api.describe()))

    assert not differences, (
        "the public API differs from tests/repo/public_api.txt (- recorded, + now):\n"
        + "\n".join(differences)
        + "\nIf that is intended, see docs/reference/public-api.md, say it in CHANGELOG.md, and record it:"
        "\n    python tools/public_api.py --write"
    )


def test_a_change_is_shown_as_the_lines_that_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = tmp_path / "api.txt"
    record.write_text("acme.add(x, y)\nacme.mul(x, y)\n")
    monkeypatch.setattr(api, "RECORD", record)

    differences = api.compare("acme.add(x, y)\nacme.mul(x, y, *, out=None)\n")

    assert differences == ["-acme.mul(x, y)", "+acme.mul(x, y, *, out=None)"]


def test_signatures_are_shown_as_they_are_written() -> None:
    class Thing:
        """A class of this project, as its module says."""

        __module__ = "npu_acme"

        def __init__(self, size: "int | None" = None, _own: int = 0, name: str = "") -> None: ...

    lines = list(api.describe_name("acme.Thing", Thing))

    assert lines == ["class acme.Thing(size: int | None = None, name: str = '') -> None"]


def test_a_name_of_the_reference_that_does_not_exist_is_told() -> None:
    with pytest.raises(SystemExit, match="api.md describes npu_ir.errors.NoSuchError, which does not exist"):
        api.find("npu_ir.errors.NoSuchError")
