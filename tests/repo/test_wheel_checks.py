"""Checks of built files, on made-up ones: what is wrong with a wheel or a source distribution is named."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.places import ROOT
from tests.support.rows import each_row
from tests.support.scripts import TOOLS, forgotten, imported

VERSION = "0.1.0"
NATIVE = "npu_cuda-0.1.0-0host-cp310-abi3-manylinux_2_28_x86_64.whl"
PURE = "npu_ir-0.1.0-py3-none-any.whl"


@pytest.fixture(name="checks")
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    with forgotten(TOOLS):
        module = imported("wheel_checks", TOOLS)
        monkeypatch.setattr(module, "_library_problems", lambda path: iter(()))
        yield module


def make_wheel(path: Path, *more: str, without: str = "", version: str = VERSION) -> None:
    module = path.name.partition("-")[0]
    info = f"{module}-{VERSION}.dist-info"
    names = [f"{module}/__init__.py", f"{module}/py.typed", f"{info}/licenses/LICENSE", *more]
    with zipfile.ZipFile(path, "w") as wheel:
        for name in names:
            if name != without:
                wheel.writestr(name, "")
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.4\nName: {module}\nVersion: {version}\n"
            "Requires-Dist: pluggy>=1.5\nRequires-Dist: npu-ir==0.1.0\n"
            "Requires-Dist: rich>=13.7; extra == 'cuda'\nRequires-Dist: shtab>=1.7; extra == 'cli'\n",
        )


def make_source(path: Path, *names: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}"), io.BytesIO())


@pytest.fixture
def dist(tmp_path: Path, checks: ModuleType) -> Path:
    for name in checks.PACKAGES:
        module = name.replace("-", "_")
        make_wheel(tmp_path / (NATIVE if name == "npu-cuda" else f"{module}-{VERSION}-py3-none-any.whl"))
        sources = ("LICENSE", "README.md", "pyproject.toml", "PKG-INFO")
        make_source(tmp_path / f"{module}-{VERSION}.tar.gz", *sources)
    return tmp_path


@pytest.mark.smoke
def test_files_as_they_should_be_have_no_problem(dist: Path, checks: ModuleType) -> None:
    assert checks.find_problems(dist, VERSION) == []


def test_a_wheel_with_cuda_is_one_too(dist: Path, checks: ModuleType) -> None:
    (dist / NATIVE).rename(dist / NATIVE.replace("0host", "1cuda"))

    assert checks.find_problems(dist, VERSION) == []


@each_row("name", [
    NATIVE.replace("-0host", ""),
    NATIVE.replace("0host", "0auto"),
    NATIVE.replace("0host", "0emulated"),
    NATIVE.replace("cp310-abi3-manylinux_2_28_x86_64", "py3-none-any"),
])  # fmt: skip
def test_a_wheel_whose_name_does_not_say_what_is_in_it_is_found(name: str, checks: ModuleType) -> None:
    assert not checks.NATIVE_TAGS.fullmatch(name.removeprefix("npu_cuda-0.1.0-").removesuffix(".whl"))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param({"more": "npu_ir/tests/test_a.py"}, "npu_ir/tests/test_a.py is a test", id="tests"),
        pytest.param({"more": "npu_ir/test_a.py"}, "npu_ir/test_a.py is a test", id="test"),
        pytest.param({"more": "npu_ir/conftest.py"}, "npu_ir/conftest.py is a test", id="conftest"),
        pytest.param({"more": "docs/a.md"}, "docs/a.md is outside of npu_ir", id="foreign file"),
        pytest.param({"without": "npu_ir/py.typed"}, "npu_ir/py.typed is missing", id="types"),
        pytest.param(
            {"without": "npu_ir-0.1.0.dist-info/licenses/LICENSE"},
            "npu_ir-0.1.0.dist-info/licenses/LICENSE is missing",
            id="licence",
        ),
        pytest.param({"version": "0.2.0"}, "its metadata say version 0.2.0", id="version"),
    ],
)
def test_what_is_wrong_in_a_wheel_is_named(
    damage: dict[str, str], problem: str, dist: Path, checks: ModuleType
) -> None:
    more = [damage["more"]] if "more" in damage else []
    options = {key: text for key, text in damage.items() if key != "more"}
    make_wheel(dist / PURE, *more, **options)

    assert checks.find_problems(dist, VERSION) == [f"{PURE}: {problem}"]


def test_a_template_of_a_test_is_not_a_test(dist: Path, checks: ModuleType) -> None:
    make_wheel(dist / PURE, "npu_ir/templates/tests/test_plugin.py.in")

    assert checks.find_problems(dist, VERSION) == []


def test_a_wheel_that_is_too_large_is_found(
    dist: Path, checks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "MAX_WHEEL_BYTES", 100)

    assert sum("bytes are more than 100" in problem for problem in checks.find_problems(dist, VERSION)) == 4


def test_files_that_are_missing_or_twice_are_found(dist: Path, checks: ModuleType) -> None:
    (dist / PURE).unlink()
    make_wheel(dist / NATIVE.replace("0host", "1cuda"))
    make_source(dist / "npu_passes-0.1.0.tar.gz", "README.md", "pyproject.toml", "PKG-INFO")

    assert checks.find_problems(dist, VERSION) == [
        "there are 0 files npu_ir-0.1.0-*.whl, not one",
        "npu_passes-0.1.0.tar.gz: LICENSE is missing",
        "there are 2 files npu_cuda-0.1.0-*.whl, not one",
    ]


def test_foreign_libraries_are_those_that_auditwheel_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forgotten(TOOLS):
        checks = imported("wheel_checks", TOOLS)
        script = tmp_path / "auditwheel.py"
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        said = {}
        for text in ('{"external_libs": {}}', '{"external_libs": {"libcuda.so.1": null}}', ""):
            script.write_text(f"print({text!r})\nraise SystemExit({int(not text)})\n")
            said[text] = list(checks._library_problems(tmp_path / NATIVE))

    none, some, failed = said.values()
    assert none == []
    assert some == ["it needs libcuda.so.1, which is not on every Linux"]
    assert failed == ["auditwheel cannot show it: "]


def test_the_trial_installs_what_wheels_need_of_others(dist: Path) -> None:
    with forgotten(TOOLS):
        trial = imported("wheel_trial", TOOLS)

        assert trial.requirements(dist, "npu-passes", "cuda") == ["pluggy>=1.5", "rich>=13.7"]


def test_the_release_check_finds_what_does_not_agree(tmp_path: Path) -> None:
    with forgotten(TOOLS):
        tool = imported("release_check", TOOLS)
        for name in tool.PACKAGES:
            module = name.replace("-", "_")
            folder = tmp_path / "packages" / name
            (folder / "src" / module).mkdir(parents=True)
            version = "0.2.0" if name == "npu-cuda" else "0.1.0"
            (folder / "src" / module / "__init__.py").write_text(f'__version__ = "{version}"\n')
            text = (ROOT / "packages" / name / "pyproject.toml").read_text(encoding="utf-8")
            (folder / "pyproject.toml").write_text(text.replace("Development Status :: 3", f"{module} :: 3"))
        path = tmp_path / "packages" / "npu-passes" / "pyproject.toml"
        path.write_text(path.read_text().replace("npu-ir==0.1.0", "npu-ir>=0.1.0"))
        (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [0.0.9] - 2026-01-01\n")

        problems = "\n".join(tool.find_problems(tmp_path))

    assert "the packages have several versions: npu-ir 0.1.0, " in problems
    assert "CHANGELOG.md has no section '## [0.1.0] - <date>'" in problems
    assert "CHANGELOG.md has no section '## [Unreleased]'" in problems
    assert "npu-passes requires npu-ir>=0.1.0, not npu-ir==0.1.0" in problems
    assert "npu-ir and npu-cuda differ in classifiers: npu_cuda :: 3 - Alpha, npu_ir :: 3 - Alpha" in problems


def test_the_release_check_has_nothing_but_the_changelog_to_say_before_a_release() -> None:
    with forgotten(TOOLS):
        tool = imported("release_check", TOOLS)

        problems = list(tool.find_problems(ROOT))

    assert [problem for problem in problems if "CHANGELOG.md has no section" not in problem] == []
