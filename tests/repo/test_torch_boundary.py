"""Private torch APIs change without notice, so `_torch` of each package holds them all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import npu_cuda
import npu_ir
import npu_passes
import npu_runtime

PACKAGES = [Path(package.__file__ or "").parent for package in (npu_cuda, npu_ir, npu_passes, npu_runtime)]


def private_torch_names(source: str) -> Iterator[str]:
    """Yield every dotted torch name in ``source`` that has a private part, as often as it stands there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_private_torch(alias.name))
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if is_private_torch(name))
        elif isinstance(node, ast.Attribute) and is_private_torch(name := dotted(node)):
            yield name


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_private_torch(name: str) -> bool:
    root, *parts = name.split(".")
    if root != "torch" or parts[:1] == ["ops"]:  # the names of ops are their schemas', "_" or not
        return False
    return parts[:2] == ["fx", "experimental"] or any(re.match("_(?!_)", part) for part in parts)


@pytest.mark.parametrize("package", [pytest.param(path, id=path.name) for path in PACKAGES])
def test_only_the_torch_module_touches_private_torch_names(package: Path) -> None:
    found = {
        str(path.relative_to(package)): sorted(set(names))
        for path in package.rglob("*.py")
        if path != package / "_torch.py"
        and package / "_torch" not in path.parents
        and (names := list(private_torch_names(path.read_text(encoding="utf-8"))))
    }

    assert found == {}, "add a function to the package's _torch for each of these"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        pytest.param("import torch._dynamo", ["torch._dynamo"], id="import"),
        pytest.param(
            "from torch._ops import OpOverload", ["torch._ops.OpOverload"], id="from a private module"
        ),
        pytest.param("from torch.utils import _pytree", ["torch.utils._pytree"], id="a private name"),
        pytest.param("x = torch._C.Graph", ["torch._C.Graph", "torch._C"], id="attribute"),
        pytest.param("import torch.fx.experimental", ["torch.fx.experimental"], id="experimental"),
        pytest.param(
            "torch.__version__; torch.fx.Graph; torch.ops.aten._softmax; self._torch", [], id="public"
        ),
    ],
)
def test_private_torch_names_are_found(source: str, names: list[str]) -> None:
    assert list(private_torch_names(source)) == names
