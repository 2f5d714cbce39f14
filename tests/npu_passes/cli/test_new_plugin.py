"""``npu new-plugin`` writes a whole distribution or nothing."""

import ast
import os
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

import npu_cuda.testing
import npu_ir
import npu_ir.backend
import npu_ir.hookspecs
import npu_ir.testing
import npu_passes
import npu_passes.testing
import npu_runtime
import npu_runtime.testing
from npu_ir.cli import main
from npu_ir.errors import UsageError
from npu_passes import PassError
from npu_passes.cli.new_plugin import write_plugin
from npu_passes.cli.plugin_kinds import EXAMPLE as EXAMPLE_KIND
from npu_passes.cli.plugin_kinds import KINDS
from tests.support.places import ROOT

Capture = pytest.CaptureFixture[str]
EXAMPLE = ROOT / "examples" / "npu-plugin-example"
PUBLIC = {
    "npu_ir": npu_ir.__all__,
    "npu_ir.backend": npu_ir.backend.__all__,
    "npu_ir.hookspecs": npu_ir.hookspecs.__all__,
    "npu_passes": npu_passes.__all__,
    "npu_ir.testing": npu_ir.testing.__all__,
    "npu_passes.testing": npu_passes.testing.__all__,
    "npu_runtime": npu_runtime.__all__,
    "npu_runtime.testing": npu_runtime.testing.__all__,
    "npu_cuda.testing": npu_cuda.testing.__all__,
}
OURS = ("npu_cuda", "npu_ir", "npu_passes", "npu_runtime")
FILES = [
    "README.md",
    "pyproject.toml",
    "src/my_passes/__init__.py",
    "src/my_passes/fuse_add_relu.py",
    "src/my_passes/ops.py",
    "src/my_passes/plugin.py",
    "src/my_passes/py.typed",
    "tests/test_plugin.py",
]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files_in(folder: Path) -> dict[str, str]:
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    kept = [name for name in names if not any(part.startswith((".", "__py")) for part in name.parts)]
    return {
        name.as_posix(): (folder / name).read_text(encoding="utf-8") for name in kept if name.suffix != ".so"
    }


def test_a_distribution_is_written(capsys: Capture) -> None:
    codes = [main(["new-plugin", "my-passes"]), main(["new-plugin", "my-passes", "-o", "some/where/else"])]

    printed = capsys.readouterr().out
    written = files_in(Path("my-passes"))
    assert codes == [0, 0]
    assert sorted(written) == FILES
    assert files_in(Path("some/where/else")) == written
    assert os.listdir("some/where") == ["else"]
    assert all(f"my-passes/{name}" in printed for name in FILES)
    assert 'my-passes = "my_passes.plugin"' in written["pyproject.toml"]
    assert not [name for name, text in written.items() if "$" in text]
    for name, text in written.items():
        if name.endswith(".py"):
            compile(text, name, "exec")


def test_the_example_is_what_the_command_writes_and_a_backend() -> None:
    write_plugin("npu-plugin-example", Path("example"))

    written, example = files_in(Path("example")), files_in(EXAMPLE)
    of_the_backend = {"src/npu_plugin_example/backend.py", "tests/test_backend.py"}
    speak_of_it = {"README.md", "pyproject.toml"}
    assert example.keys() == written.keys() | of_the_backend
    assert {name for name, text in written.items() if example[name] != text} == speak_of_it


def test_nothing_is_written_over(capsys: Capture) -> None:
    Path("my-passes").mkdir()

    code = main(["new-plugin", "my-passes"])

    assert code == 2
    assert "my-passes already exists\n  fix: give another folder with --output" in capsys.readouterr().err
    assert not list(Path("my-passes").iterdir())


INVALID = ["My-Passes", "my_passes", "2passes", "", "a--b", "a b", "../a", "-a"]
HIDING = {"jinja2": "Jinja2", "pytest": "pytest"}


def test_a_name_that_is_none_or_hides_another_package_is_refused(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    rows = [
        *((name, "is not a valid plugin name\n  fix: use lower-case words: my-passes") for name in INVALID),
        *((name, "would hide another one\n  fix: add") for name in ("json", "class", "torch", "npu-ir")),
        *((name, f"its package {name} would hide that of {owner}\n") for name, owner in HIDING.items()),
    ]
    for name, message in rows:
        with subtests.test(name), pytest.raises(UsageError, match=message):
            write_plugin(name, tmp_path / "here")

    assert not list(tmp_path.iterdir())


def test_a_plugin_that_is_installed_can_be_written_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    point = EntryPoint("my-passes", "my_passes.plugin", "npu")
    module = "npu_passes.cli.new_plugin"
    monkeypatch.setattr(f"{module}.packages_distributions", lambda: {"my_passes": ["my_passes"]})
    monkeypatch.setattr(f"{module}.distribution", lambda name: SimpleNamespace(entry_points=[point]))

    assert write_plugin("my-passes", tmp_path / "here")


def test_nothing_is_left_where_writing_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[Path] = []
    write_text = Path.write_text

    def fill_disk(path: Path, *args: str, **options: str) -> int:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return write_text(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", fill_disk)

    with pytest.raises(
        PassError, match="the plugin cannot be written: No space left on device\n  at: .*here\n  fix: "
    ):
        write_plugin("my-passes", tmp_path / "here")

    assert not list(tmp_path.iterdir())


KIND_FILES = {
    "passes": ["div_to_mul.py", "plugin.py"],
    "ops": ["ops.py", "plugin.py"],
    "executor": ["ops.py", "plugin.py"],
    "backend": ["backend.py", "plugin.py"],
    "kernels": ["kernels.c"],
}


@pytest.mark.parametrize("kind", KIND_FILES)
def test_a_kind_has_its_files_and_says_how_to_install_and_test(kind: str, capsys: Capture) -> None:
    code = main(["new-plugin", "my-own", "--kind", kind])

    printed, written = capsys.readouterr().out, files_in(Path("my-own"))
    modules = [f"src/my_own/{name}" for name in ["__init__.py", "py.typed", *KIND_FILES[kind]]]
    assert code == 0
    assert {*modules, "README.md", "pyproject.toml"} <= written.keys()
    assert len([name for name in written if name.startswith("tests/test_")]) == 1
    assert "my-own[test]" in printed
    assert "python -m pytest my-own\n" in printed
    assert "npu plugins --doctor" in printed
    assert not [name for name, text in written.items() if "$" in text]
    for name, text in written.items():
        if name.endswith(".py"):
            compile(text, name, "exec")


def test_every_kind_is_written_and_its_folder_is_there() -> None:
    folders = {path.name for path in (Path(npu_passes.__file__).parent / "templates").iterdir()}

    assert folders == {"common", *KINDS}
    assert set(KINDS) == {EXAMPLE_KIND, *KIND_FILES}


def test_a_kind_that_is_none_is_refused(capsys: Capture) -> None:
    assert main(["new-plugin", "my-own", "--kind", "backends"]) == 2
    assert "invalid choice: 'backends' (did you mean 'backend'?), not one of" in capsys.readouterr().err


def test_two_kernel_libraries_name_their_attributes_differently() -> None:
    for name in ("my-own", "my-other"):
        write_plugin(name, Path(name), "kernels")

    lines = [
        next(line for line in text.splitlines() if "NPU_FOURCC" in line)
        for text in (Path(name, f"src/{name.replace('-', '_')}/kernels.c").read_text()
                     for name in ("my-own", "my-other"))
    ]  # fmt: skip
    assert lines[0] != lines[1]


def python_files() -> list[str]:
    """Return the text of every Python file of the example, and of what the command writes of each kind."""
    for kind in KINDS:
        write_plugin(f"my-{kind}", Path(f"my-{kind}"), kind)
    folders = [EXAMPLE, *(Path(f"my-{kind}") for kind in KINDS)]
    return [text for folder in folders for name, text in files_in(folder).items() if name.endswith(".py")]


def test_the_example_and_what_is_written_import_nothing_but_public_names() -> None:
    trees = [ast.parse(text) for text in python_files()]
    nodes = [node for tree in trees for node in ast.walk(tree)]

    whole = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    parts = {
        (node.module or "", alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    ours = {(module, name) for module, name in parts if module.partition(".")[0] in OURS}
    assert not [name for name in whole if name.startswith("npu_") and name != "npu_cuda"]
    assert ours
    assert {(module, name) for module, name in ours if name not in PUBLIC.get(module, [])} == set()
