"""``npu new-plugin``: template of a plugin distribution."""

from __future__ import annotations

import argparse
import keyword
import re
import shutil
import string
import sys
import tempfile
import zlib
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_ir.cli.console import print_facts
from npu_ir.cli.options import add_output_folder
from npu_ir.errors import UsageError
from npu_ir.plugins.plugin_manager import GROUP
from npu_ir.serial.atomic_write import writing
from npu_passes.cli.plugin_kinds import EXAMPLE, KINDS, Kind
from npu_passes.errors import PassError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN = frozenset({"npu_cuda", "npu_ir", "npu_passes", "npu_runtime", "pluggy", "torch"})
_SUFFIX = ".in"
KERNEL_GROUP = "npu_cuda.kernels"

_EPILOG = """\
The folder holds a distribution that can be installed as it is, with tests that pass: they use the contract
tests that npu-ir, npu-passes and npu-runtime have for plugins. Its names are derived from NAME. Without
--kind, it has an op, a pass and a pipeline. Choose a license before you publish it: its README says how.

kinds:
{kinds}

example:
  npu new-plugin my-passes
  npu new-plugin my-backend --kind backend
  python -m pip install -e "my-backend[test]" && python -m pytest my-backend
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    kinds = {name: kind for name, kind in KINDS.items() if name != EXAMPLE}
    rows = [f"  {name:<9} {kind.content}" for name, kind in kinds.items()]
    parser = commands.add_parser(
        "new-plugin",
        help="write a plugin to start from",
        description="Write a distribution of a plugin, with its tests.",
        epilog=_EPILOG.format(kinds="\n".join(rows)),
    )
    parser.add_argument(
        "name", metavar="NAME", help="of the distribution: lower-case words, such as my-passes"
    )
    parser.add_argument("--kind", choices=tuple(kinds), help="what it provides (see below)")
    add_output_folder(
        parser,
        "-o",
        "--output",
        help="the folder to write, which must not be there yet (default: NAME)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Write the folder, and print the next commands."""
    folder = options.output or Path(options.name)
    name = options.kind or EXAMPLE
    written = write_plugin(options.name, folder, name)
    kind = KINDS[name]
    more = kind.see.format(name=options.name)
    print_facts(
        {
            "wrote": "\n".join(f"{folder / name}" for name in written),
            "install": f'python -m pip install {kind.install}"{_path_of(folder)}[test]"',
            "test": f"python -m pytest {folder}",
            "see": "npu plugins --doctor" + (f", and {more}" if more else ""),
        }
    )


def _path_of(folder: Path) -> str:
    """Return a folder as pip takes it: without a separator, it would be the name of a distribution."""
    return str(folder) if folder.is_absolute() else f"./{folder}"


def write_plugin(name: str, folder: Path, kind: str = EXAMPLE) -> list[str]:
    """Write a distribution called ``name`` into ``folder``, completely or not at all; return its files.

    Args:
        name: The name of the distribution.
        folder: The folder to write.
        kind: One of `KINDS`.

    Raises:
        UsageError: The name is not allowed, or ``folder`` already exists.
        PassError: The files cannot be written.
    """
    package = _package_of(name)
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} already exists", fix="give another folder with --output")
    templates = resources.files("npu_passes") / "templates"
    names = _substitutions(name, package, KINDS[kind])
    files = {
        path.removesuffix(_SUFFIX).replace("PACKAGE", package): string.Template(text).substitute(names)
        for part in ("common", kind)  # a kind may have another version of a common file
        for path, text in _read_templates(templates / part)
    }
    with writing("the plugin", folder, PassError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _write(files, folder)
    return sorted(files)


def _substitutions(name: str, package: str, kind: Kind) -> dict[str, str]:
    """Return the text that each name of a template stands for."""
    number = zlib.crc32(name.encode())
    letters = [chr(ord("A") + number // 26**place % 26) for place in range(4)]
    return {
        "name": name,
        "package": package,
        "description": f"A plugin of npu-ir: {kind.content}",
        "dependencies": ", ".join(f'"{item}>=0.1"' for item in kind.dependencies),
        "tested_with": ", ".join(f'"{item}>=0.1"' for item in kind.tested_with),
        # Names the format of the attributes of its op, in C and in Python.
        "letters": ", ".join(f"'{letter}'" for letter in letters),
        "schema": "".join(letters),
    }


def _package_of(name: str) -> str:
    """Return the name of the import package of a distribution."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid plugin name", fix="use lower-case words: my-passes")
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _TAKEN:
        raise UsageError(
            f"{name!r} is not a valid plugin name: its package {package} would hide another one",
            fix="add a word: my-passes",
        )
    others = [item for item in packages_distributions().get(package, ()) if not _is_plugin(item, name)]
    if others:
        raise UsageError(
            f"{name!r} is not a valid plugin name: its package {package} would hide that of {others[0]}",
            fix="add a word: my-passes",
        )
    return package


def _is_plugin(distribution_name: str, name: str) -> bool:
    """Return whether an installed distribution is the plugin ``name``, thus one written by this command."""
    points = distribution(distribution_name).entry_points
    return any(point.group in (GROUP, KERNEL_GROUP) and point.name == name for point in points)


def _read_templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every template."""
    for item in folder.iterdir():
        if item.is_dir():
            yield from _read_templates(item, f"{prefix}{item.name}/")
        elif item.name.endswith(_SUFFIX):
            yield f"{prefix}{item.name}", item.read_text(encoding="utf-8")


def _write(files: dict[str, str], folder: Path) -> None:
    """Write the files into a staging folder, and rename it when it is complete."""
    staging = Path(tempfile.mkdtemp(prefix=".npu-new-plugin-", dir=folder.parent))
    try:
        for path, text in files.items():
            target = staging / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        staging.chmod(0o755)
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
