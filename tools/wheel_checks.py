"""Checks of the files in dist/: names, tags, sizes, contents, and the libraries that wheels need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path, PurePosixPath

PACKAGES = ("npu-ir", "npu-passes", "npu-runtime", "npu-cuda")
# Modules beside the package of a distribution.
MODULES = {"npu-runtime": ("pytest_npu.py",)}
MAX_WHEEL_BYTES = 10_000_000  # kernels for three architectures and PTX take two thirds of that
PURE_TAGS = "py3-none-any"
# The build tag says what is in it; the library is for one Python, or for all from one on.
NATIVE_TAGS = re.compile(r"(1cuda|0host)-cp3\d+-(abi3|cp3\d+)-(many)?linux\w*")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def versions(root: Path) -> dict[str, str]:
    """Return the version of each package, as its ``__init__.py`` states it."""
    stated = {}
    for name in PACKAGES:
        module = name.replace("-", "_")
        text = (root / "packages" / name / "src" / module / "__init__.py").read_text(encoding="utf-8")
        match = _VERSION.search(text)
        stated[name] = match[1] if match else "none"
    return stated


def release_version(root: Path) -> str:
    """Return the version that all packages have."""
    stated = versions(root)
    if len(set(stated.values())) != 1:
        raise SystemExit(f"the packages have several versions: {stated}")
    return stated["npu-ir"]


def find_problems(dist: Path, version: str) -> list[str]:
    """Return what is wrong with the wheels and source distributions of this version in ``dist``."""
    problems = []
    for name in PACKAGES:
        stem = f"{name.replace('-', '_')}-{version}"
        for pattern, check in ((f"{stem}-*.whl", _wheel_problems), (f"{stem}.tar.gz", _source_problems)):
            found = sorted(dist.glob(pattern))
            if len(found) != 1:
                problems.append(f"there are {len(found)} files {pattern}, not one")
            problems += [
                f"{path.name}: {problem}" for path in found for problem in check(path, name, version)
            ]
    return problems


def _wheel_problems(path: Path, name: str, version: str) -> Iterator[str]:
    module = name.replace("-", "_")
    tags = path.stem.removeprefix(f"{module}-{version}-")
    is_native = name == "npu-cuda"
    if not (NATIVE_TAGS.fullmatch(tags) if is_native else tags == PURE_TAGS):
        yield f"its tags are {tags}, not {NATIVE_TAGS.pattern if is_native else PURE_TAGS}"
    if path.stat().st_size > MAX_WHEEL_BYTES:
        yield f"{path.stat().st_size} bytes are more than {MAX_WHEEL_BYTES}"
    info = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
    if metadata["Version"] != version:
        yield f"its metadata say version {metadata['Version']}"
    for needed in (f"{info}/licenses/LICENSE", f"{module}/py.typed"):
        if needed not in names:
            yield f"{needed} is missing"
    yield from (f"{item} is a test" for item in names if _is_test(item))
    known = (module, info, *MODULES.get(name, ()))
    yield from (f"{item} is outside of {module}" for item in names if item.split("/")[0] not in known)
    if is_native:
        yield from _library_problems(path)


def _is_test(item: str) -> bool:
    path = PurePosixPath(item)  # a template of a test ends in .py.in
    return path.suffix == ".py" and (
        "tests" in path.parts or path.match("test_*") or path.match("conftest.*")
    )


def _library_problems(path: Path) -> Iterator[str]:
    """Yield the libraries besides those of every Linux that a wheel needs, as auditwheel finds them."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"auditwheel cannot show it: {done.stderr.strip() or done.stdout.strip()}"
        return
    for library in json.loads(done.stdout)["external_libs"]:
        yield f"it needs {library}, which is not on every Linux"


def _source_problems(path: Path, name: str, version: str) -> Iterator[str]:
    folder = f"{name.replace('-', '_')}-{version}"
    with tarfile.open(path) as archive:
        names = archive.getnames()
    for needed in ("LICENSE", "README.md", "pyproject.toml", "PKG-INFO"):
        if f"{folder}/{needed}" not in names:
            yield f"{needed} is missing"
