"""Rules of the sources that no linter knows: sizes, private names of PyTorch, and where tests import from."""

import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import npu_ir
import npu_passes
import npu_runtime
from tests.support.places import ROOT
from tests.support.private_torch import private_torch_names
from tests.support.sources import source_trees

MAX_LINES = 60
MAX_PARAMETERS = 8

NODE = "the parts of a node, each by its name, as plugins and passes give them"
OPTIONS = "independent options, each of which most users leave out"
OPTIMIZER = "the arguments of the op, which are those of torch.optim's functions"

# Parameters of functions that users call: a class around them would be one more thing to import and to make.
WIDE = {
    "npu_ir.graph.graph.Graph.insert": NODE,
    "npu_ir.capture.convert.Converter.insert": NODE,
    "npu_runtime.executor.executor.IRExecutor.__init__": OPTIONS,
    "npu_runtime.training.train_step.TrainStep.__init__": OPTIONS,
    "npu_runtime.functional.adam_step_": OPTIMIZER,
    "npu_runtime.functional.sgd_step_": OPTIMIZER,
}


def functions(
    node: ast.AST, name: str, in_class: bool = False
) -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Yield the full name of each function, its definition, and whether its first parameter is ``self``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            inner = f"{name}.{child.name}"
            decorators = {item.id for item in child.decorator_list if isinstance(item, ast.Name)}
            yield inner, child, in_class and "staticmethod" not in decorators
            yield from functions(child, inner)
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{name}.{child.name}", in_class=True)
        else:
            yield from functions(child, name, in_class)


def parameter_count(function: ast.FunctionDef, is_method: bool) -> int:
    given = function.args
    named = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    return named + (given.vararg is not None) + (given.kwarg is not None) - is_method


def test_functions_have_few_lines_and_parameters() -> None:
    long, wide = set(), set()
    for path, tree in source_trees().items():
        module = path.partition("/src/")[2].partition(".")[0].replace("/", ".").removesuffix(".__init__")
        for name, function, is_method in functions(tree, module):
            assert function.end_lineno is not None
            if path.endswith(".py") and function.end_lineno - function.lineno >= MAX_LINES:
                long.add(name)
            if path.endswith(".py") and parameter_count(function, is_method) > MAX_PARAMETERS:
                wide.add(name)

    assert long == set()
    assert wide == set(WIDE)


def test_the_count_of_parameters() -> None:
    for text, expected in {
        "def f(a, /, b, *c, d, **e): ...": [("m.f", 5)],
        "class C:\n def f(self, a): ...": [("m.C.f", 1)],
        "class C:\n @staticmethod\n def f(a, b): ...": [("m.C.f", 2)],
        "if x:\n def f(a):\n  def g(b, c): ...": [("m.f", 1), ("m.f.g", 2)],
    }.items():
        found = functions(ast.parse(text), "m")

        assert [
            (name, parameter_count(function, is_method)) for name, function, is_method in found
        ] == expected


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


def test_only_the_torch_module_of_a_package_touches_private_torch_names() -> None:
    found = {
        path: sorted(set(names))
        for path, tree in source_trees().items()
        if not re.search(r"/src/\w+/_torch[./]", path) and (names := list(private_torch_names(tree)))
    }

    assert found == {}, "add a function to the package's _torch for each of these"


def test_private_torch_names_are_found() -> None:
    for source, names in {
        "import torch._dynamo": ["torch._dynamo"],
        "from torch._ops import OpOverload": ["torch._ops.OpOverload"],
        "from torch.utils import _pytree": ["torch.utils._pytree"],
        "x = torch._C.Graph": ["torch._C.Graph", "torch._C"],
        "import torch.fx.experimental": ["torch.fx.experimental"],
        "from torch import _C as c\nc.Graph": ["torch._C", "torch._C.Graph"],
        "torch.__version__; torch.fx.Graph; torch.ops.aten._softmax; self._torch": [],
    }.items():
        assert list(private_torch_names(ast.parse(source))) == names, source


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the modules of `tests` that a file imports from, as parts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (tuple(name.split(".")) for name in names if name.startswith("tests."))


def may_import(folder: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a file of a folder may import this: from `tests.support`, or from a file beside it."""
    if parts[:2] == ("tests", "support"):
        return True
    beside = parts[: len(folder)] == folder and len(parts) > len(folder)
    return beside and folder[1] != "support" and Path(ROOT, *folder, f"{parts[len(folder)]}.py").exists()


def test_what_several_folders_of_tests_need_is_in_support() -> None:
    astray = {
        f"{path.relative_to(ROOT)}: {'.'.join(parts)}"
        for path in (ROOT / "tests").rglob("*.py")
        for parts in imports(path)
        if not may_import(path.relative_to(ROOT).parent.parts, parts)
    }

    assert astray == set()


def folders_with(path: Path, *patterns: str) -> set[str]:
    """Return the folders below one that hold such files, and those around them, by their path from there."""
    files = [file.relative_to(path) for pattern in patterns for file in path.rglob(pattern)]
    return {folder.as_posix() for file in files for folder in file.parents} - {"."}


def test_folders_of_tests_mirror_those_of_the_sources() -> None:
    for package in (ROOT / "packages").iterdir():
        name = package.name.replace("-", "_")
        sources = folders_with(package / "src" / name, "*.py") | folders_with(
            package / "csrc", "*.cpp", "*.cu"
        )
        tests = folders_with(ROOT / "tests" / name, "test_*.py")

        assert {folder for folder in tests if not folder.endswith("gpu")} <= sources, name


def test_every_folder_of_the_sources_has_a_test_in_the_smoke_tier() -> None:
    for package in (ROOT / "packages").iterdir():
        name = package.name.replace("-", "_")
        marked = {
            path.relative_to(ROOT / "tests" / name).parts[0].removeprefix("test_").removesuffix(".py")
            for path in (ROOT / "tests" / name).rglob("test_*.py")
            if "mark.smoke" in path.read_text(encoding="utf-8")
        }
        folders = {folder for folder in folders_with(package / "src" / name, "*.py") if "/" not in folder}

        assert folders - {"_torch"} - marked == set(), name


def test_the_root_has_no_file_that_something_left_there() -> None:
    known = {
        *(".ci", ".gitignore", ".pre-commit-config.yaml", "ARCHITECTURE.md", "CHANGELOG.md"),
        *("CONTRIBUTING.md", "LICENSE", "README.md", "benchmarks", "constraints.txt", "docs", "examples"),
        *("noxfile.py", "packages", "pyproject.toml", "tests", "tools"),
    }

    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True)

    assert {line.partition("/")[0] for line in tracked.stdout.splitlines()} - known == set()
