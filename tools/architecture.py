"""Write the generated parts of ARCHITECTURE.md: the picture of imports, and a row per folder.

    python tools/architecture.py           # print what is out of date, exit status 1 if anything is
    python tools/architecture.py --write   # bring the page up to date

A row is the docstring of a folder's ``__init__.py``: its first line, what comes in and goes out,
which file to open first.
An arrow of the picture is an import, of a folder by a folder; one that follows from two others is left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
PACKAGES = ("npu_ir", "npu_passes", "npu_cuda", "npu_runtime")
# Data and templates, which nothing imports.
_NO_CODE = {"assets", "templates", "schema", "include", "__pycache__"}


def source(package: str) -> Path:
    """Return the folder of a package's modules."""
    return ROOT / "packages" / package.replace("_", "-") / "src" / package


def folders(package: str) -> Iterator[Path]:
    """Yield every folder of modules below a package, parents first, but not those that are one class."""
    for path in sorted(source(package).rglob("*/")):
        if not _NO_CODE & set(path.relative_to(source(package)).parts) and not _is_one_class(path):
            yield path


def _is_one_class(folder: Path) -> bool:
    """Return whether the ``__init__`` defines a class: the folder is its module, in several files."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return any(isinstance(item, ast.ClassDef) for item in tree.body)


def docstring(folder: Path) -> str:
    """Return the docstring of a folder, its paragraphs as lines; empty if it has none."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return "\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def problem_of(folder: Path) -> str | None:
    """Return what the docstring of a folder lacks: a title, In, Out, or a file to open that exists."""
    title, *rest = docstring(folder).splitlines() or [""]
    flow = next((line for line in rest if re.search(r"\bIn(?: and out)?:", line)), "")
    if not title:
        return "no docstring"
    if not flow or ("Out:" not in flow and "In and out:" not in flow):
        return "no line that says what comes in and what goes out"
    named = re.search(r"Open .*", flow)
    if named is None:
        return "no file to open first"
    absent = [name for name in re.findall(r"`([\w/]+\.py|\w+/)`", named[0]) if not _exists(folder, name)]
    return f"no {absent[0]}" if absent else None


def _exists(folder: Path, name: str) -> bool:
    return (folder / name).exists() or (folder.parent / name).exists()


def table(package: str) -> str:
    """Return a Markdown table with a row per folder."""
    lines = ["| folder | what it is | in, out, first file |", "|---|---|---|"]
    for folder in folders(package):
        title, *rest = docstring(folder).splitlines()
        flow = next(line for line in rest if re.search(r"\bIn(?: and out)?:", line))
        name = folder.relative_to(source(package)).as_posix()
        lines.append(f"| `{name}/` | {_markdown(title)} | {_markdown(flow)} |")
    return "\n".join(lines)


def _markdown(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def picture(package: str) -> str:
    """Return a Mermaid flow chart of which folder imports which, without what follows from other arrows."""
    below: dict[str, set[str]] = {}
    for path in source(package).rglob("*.py"):
        parts = path.relative_to(source(package)).with_suffix("").parts
        if parts[0] == "__init__" or _NO_CODE & set(parts):
            continue
        for name in _imports(ast.parse(path.read_text(encoding="utf-8"))):
            room = _room(package, name)
            if room not in (None, parts[0]):
                below.setdefault(parts[0], set()).add(room)
    arrows = sorted(
        (one, other) for one in below for other in below[one] if not _is_implied(one, other, below)
    )
    return "\n".join(
        ["```mermaid", "flowchart TD", *(f"    {one} --> {other}" for one, other in arrows), "```"]
    )


def _imports(node: ast.AST) -> Iterator[str]:
    """Yield the dotted name of each import, those in functions included; not those for type checkers."""
    for item in ast.iter_child_nodes(node):
        if isinstance(item, ast.If) and ast.unparse(item.test) == "TYPE_CHECKING":
            continue
        if isinstance(item, ast.ImportFrom) and item.module:
            yield from (f"{item.module}.{alias.name}" for alias in item.names)
        elif isinstance(item, ast.Import):
            yield from (alias.name for alias in item.names)
        yield from _imports(item)


def _room(package: str, name: str) -> str | None:
    """Return the folder or loose module at the top of a package that an imported name is of."""
    parts = name.split(".")
    if parts[0] != package or len(parts) < 2:
        return None
    folder = source(package) / parts[1]
    return parts[1] if folder.is_dir() or folder.with_suffix(".py").exists() else None


def _is_implied(one: str, other: str, below: dict[str, set[str]]) -> bool:
    """Return whether there is a longer way between two folders."""
    todo, seen = list(below.get(one, set()) - {other}), set()
    while todo:
        room = todo.pop()
        if room == other:
            return True
        if room not in seen:
            seen.add(room)
            todo += below.get(room, set())
    return False


def updated(page: str) -> str:
    """Return the page with its generated parts, each between two comments that name it, made again."""
    for package in PACKAGES:
        for kind, make in (("imports", picture), ("folders", table)):
            begin, end = f"<!-- {kind} of {package} -->", f"<!-- end of {kind} of {package} -->"
            before, rest = page.split(begin)
            page = f"{before}{begin}\n{make(package)}\n{end}{rest.split(end)[1]}"
    return page


def main(arguments: list[str]) -> int:
    """Write the page or compare with it; return the exit status."""
    for package in PACKAGES:
        for folder in folders(package):
            if problem := problem_of(folder):
                print(f"{folder.relative_to(ROOT)}/__init__.py: {problem}")
                return 1
    old = PAGE.read_text(encoding="utf-8")
    new = updated(old)
    if "--write" in arguments:
        PAGE.write_text(new, encoding="utf-8")
    elif old != new:
        print("ARCHITECTURE.md is out of date: python tools/architecture.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
