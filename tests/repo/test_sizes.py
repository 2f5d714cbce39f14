"""Functions have at most 60 lines, docstring included, and 8 parameters; each exception has its reason."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest

import npu_ir
import npu_passes
import npu_runtime
from tests.support.places import ROOT

PACKAGES = ROOT / "packages"
MAX_LINES = 60
MAX_PARAMETERS = 8

NODE = "the parts of a node, each by its name, as plugins and passes give them"
OPTIMIZER = "the arguments of the op, which are those of torch.optim's functions"

# Parameters of functions that users call: a class around them would be one more thing to import and to make.
WIDE = {
    "npu_ir.graph.graph.Graph.insert": NODE,
    "npu_ir.capture.convert.Converter.insert": NODE,
    "npu_runtime.functional.adam.adam_step": OPTIMIZER,
    "npu_runtime.functional.adam.adam_step_": OPTIMIZER,
    "npu_runtime.functional.sgd.sgd_step": OPTIMIZER,
    "npu_runtime.functional.sgd.sgd_step_": OPTIMIZER,
}
LONG: dict[str, str] = {}


def functions(
    node: ast.AST, name: str, in_class: bool = False
) -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Yield the full name of each function, its definition, and whether its first parameter is ``self``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = f"{name}.{child.name}"
            decorators = {item.id for item in child.decorator_list if isinstance(item, ast.Name)}
            yield inner, child, in_class and "staticmethod" not in decorators  # type: ignore[misc]
            yield from functions(child, inner)
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{name}.{child.name}", in_class=True)
        else:
            yield from functions(child, name, in_class)


def parameter_count(function: ast.FunctionDef, is_method: bool) -> int:
    given = function.args
    named = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    return named + (given.vararg is not None) + (given.kwarg is not None) - is_method


def sizes() -> Iterator[tuple[str, int, int]]:
    """Yield the lines and the parameters of each function of the packages."""
    for path in sorted(PACKAGES.glob("*/src/**/*.py")):
        parts = path.relative_to(PACKAGES).with_suffix("").parts[2:]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, function, is_method in functions(tree, ".".join(parts).removesuffix(".__init__")):
            assert function.end_lineno is not None
            lines = function.end_lineno - function.lineno + 1
            yield name, lines, parameter_count(function, is_method)


def test_functions_have_few_lines() -> None:
    assert {name for name, lines, _ in sizes() if lines > MAX_LINES} == set(LONG)


def test_functions_have_few_parameters() -> None:
    assert {name for name, _, count in sizes() if count > MAX_PARAMETERS} == set(WIDE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("def f(a, /, b, *c, d, **e): ...", [("m.f", 5)], id="every kind"),
        pytest.param("class C:\n def f(self, a): ...", [("m.C.f", 1)], id="self"),
        pytest.param("class C:\n @staticmethod\n def f(a, b): ...", [("m.C.f", 2)], id="static method"),
        pytest.param("if x:\n def f(a):\n  def g(b, c): ...", [("m.f", 1), ("m.f.g", 2)], id="nested"),
    ],
)
def test_the_count_of_parameters(text: str, expected: list[tuple[str, int]]) -> None:
    found = functions(ast.parse(text), "m")

    assert [(name, parameter_count(function, is_method)) for name, function, is_method in found] == expected


def test_public_functions_name_their_options() -> None:
    faces = (npu_ir, npu_passes, npu_runtime)
    public = [(name, getattr(face, name)) for face in faces for name in face.__all__]
    open_ended = {
        name
        for name, item in public
        if inspect.isfunction(item) or (inspect.isclass(item) and "__init__" in vars(item))
        if any(
            parameter.kind is inspect.Parameter.VAR_KEYWORD
            for parameter in inspect.signature(item).parameters.values()
        )
    }

    assert open_ended == {"check_replay"}, "which hands a batch on, by the names of its inputs"
