"""Compare the public names and signatures with those that are recorded in tests/repo/public_api.txt.

    python tools/public_api.py           # print what differs, exit status 1 if anything does
    python tools/public_api.py --write   # record what is there now

Public is what docs/reference/public-api.md says: the names that packages and their documented modules export,
and those that docs/reference/api.md describes, but for its section on internal names.
"""

from __future__ import annotations

import difflib
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "repo" / "public_api.txt"
PAGE = ROOT / "docs" / "reference" / "api.md"
# Modules whose exported names are public; the rest is by the page.
MODULES = (
    "npu_cuda",
    "npu_cuda.testing",
    "npu_ir",
    "npu_ir.backend",
    "npu_ir.errors",
    "npu_ir.hookspecs",
    "npu_ir.plugins.hookspecs",
    "npu_ir.ops",
    "npu_ir.testing",
    "npu_passes",
    "npu_passes.patterns",
    "npu_passes.testing",
    "npu_runtime",
    "npu_runtime.functional",
    "npu_runtime.testing",
)
_DIRECTIVE = re.compile(r"^\.\. auto(?P<kind>\w+):: (?P<name>[\w.]+)", re.MULTILINE)
_INTERNAL = re.compile(r"^## Internal names$.*?(?=^# )", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def main() -> int:
    found = "".join(f"{line}\n" for line in describe())
    if "--write" in sys.argv[1:]:
        RECORD.write_text(found, encoding="utf-8")
        return 0
    differences = compare(found)
    print("\n".join(differences) or "the public API is as recorded")
    return 1 if differences else 0


def compare(found: str) -> list[str]:
    """Return the lines that were removed (-) and added (+) since the record was written."""
    recorded = RECORD.read_text(encoding="utf-8") if RECORD.exists() else ""
    lines = difflib.unified_diff(recorded.splitlines(), found.splitlines(), lineterm="", n=0)
    return [line for line in lines if re.match(r"[-+](?![-+])", line)]


def describe() -> list[str]:
    """Return a line for each public name: its kind, and its signature where it has one."""
    names: dict[str, Any] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        names.update({f"{name}.{item}": getattr(module, item) for item in exported_names(module)})
    names.update(documented_names())
    lines: set[str] = set()
    first: dict[int, str] = {}
    for name, item in sorted(names.items(), key=lambda pair: (pair[0].count("."), pair[0])):
        known = first.setdefault(id(item), name) if inspect.isclass(item) else name
        lines.update(describe_name(name, item) if known == name else [f"{name} is {known}"])
    return sorted(lines)


def exported_names(module: ModuleType) -> list[str]:
    """Return ``__all__`` of a module; without it, the public names that it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    return [
        name
        for name, item in vars(module).items()
        if not name.startswith("_") and getattr(item, "__module__", None) == module.__name__
    ]


def documented_names() -> dict[str, Any]:
    """Return what the reference page describes, by full name."""
    text = _INTERNAL.sub("", PAGE.read_text(encoding="utf-8"))
    return {
        match["name"]: find(match["name"]) for match in _DIRECTIVE.finditer(text) if match["kind"] != "module"
    }


def find(name: str) -> Any:
    """Return the object of a dotted name."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            item: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            item = getattr(item, part, None)
        if item is not None:
            return item
    raise SystemExit(f"docs/reference/api.md describes {name}, which does not exist")


def describe_name(name: str, item: Any) -> Iterator[str]:
    if not inspect.isclass(item):
        yield f"{name}{signature_of(item)}" if callable(item) else f"{name}: {type(item).__name__}"
        return
    if issubclass(item, enum.Enum):
        yield f"enum {name}: {', '.join(item.__members__)}"
        return
    yield f"class {name}{signature_of(item)}"
    for member in sorted(members_of(item)):
        value = inspect.getattr_static(item, member)
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        text = signature_of(function) if inspect.isroutine(function) else ""
        yield f"{name}.{member}{text}"


def members_of(kind: type) -> set[str]:
    """Return the public members of a class that are defined in this project."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("npu_")]
    return {name for base in ours for name in vars(base) if not name.startswith("_")}


def signature_of(item: Any) -> str:
    """Return the signature as text; "" for what has none, as functions in C++, and for those of others."""
    if not str(getattr(item, "__module__", "")).startswith("npu_"):
        return ""
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return ""
    shown = [
        parameter.replace(annotation=_shown(parameter.annotation))
        for parameter in signature.parameters.values()
        if not parameter.name.startswith("_")
    ]
    returned = _shown(signature.return_annotation)
    return _ADDRESS.sub("", str(signature.replace(parameters=shown, return_annotation=returned)))


class _Text:
    """An annotation as it was written: `inspect` would put strings into quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


if __name__ == "__main__":
    sys.exit(main())
