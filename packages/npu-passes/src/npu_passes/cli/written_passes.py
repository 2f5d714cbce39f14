"""Passes as they are written on a command line: by name, or as ``FILE.py:CLASS`` where no plugin has them."""

from __future__ import annotations

from npu_ir.cli.factory import find_factory
from npu_passes.core.base import Pass
from npu_passes.core.pass_text import parse_passes
from npu_passes.core.registry import find_pass
from npu_passes.errors import PassError


def read_passes(text: str) -> list[Pass]:
    """Return the passes that ``text`` names, as `parse_passes` does, also ``pass.py:Class{option=value}``.

    Raises:
        PassError: As for `parse_passes`, or an object is not a pass.
        UsageError: There is no such module, file or class.
        FactoryError: The module fails while it is imported.
    """
    return parse_passes(text, find=_find)


def _find(name: str) -> type[Pass]:
    if ":" not in name:
        return find_pass(name)
    found = find_factory(name)
    if not (isinstance(found, type) and issubclass(found, Pass)):
        raise PassError(
            f"{name} is not a pass but {found!r}", fix="name a class derived from npu_passes.Pass"
        )
    return found
