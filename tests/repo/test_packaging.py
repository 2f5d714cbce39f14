"""Contents of the installed packages, and their import time."""

import re
import sys
from importlib import metadata, resources
from pathlib import Path

import npu_cuda
import npu_ir
import npu_passes
import npu_runtime
from tests.support.places import ROOT
from tests.support.processes import run_python

LINK = re.compile(r"\]\((?!https?:|#|mailto:)(?P<target>[^)#\s]+)")


def test_all_packages_have_one_version() -> None:
    packages = {"npu-cuda": npu_cuda, "npu-ir": npu_ir, "npu-passes": npu_passes, "npu-runtime": npu_runtime}

    versions = {metadata.version(name) for name in packages}

    assert versions == {package.__version__ for package in packages.values()}
    assert len(versions) == 1


def test_a_package_asks_for_the_others_in_its_own_version() -> None:
    needed = metadata.requires("npu-runtime") or []

    assert f"npu-ir=={npu_passes.__version__}" in (metadata.requires("npu-passes") or [])
    assert {f"npu-ir=={npu_runtime.__version__}", f"npu-passes=={npu_runtime.__version__}"} <= set(needed)


def test_the_types_are_published() -> None:
    for package in ("npu_cuda", "npu_ir", "npu_passes", "npu_runtime"):
        assert resources.files(package).joinpath("py.typed").is_file(), package
    assert resources.files("npu_cuda").joinpath("_C.pyi").is_file()


def test_the_command_and_the_backend_of_torch_compile_are_installed() -> None:
    (command,) = metadata.entry_points(group="console_scripts", name="npu")
    (backend,) = metadata.entry_points(group="torch_dynamo_backends", name="npu")

    assert command.value == "npu_ir.cli:main"
    assert callable(command.load())
    assert callable(backend.load())


def test_what_we_bring_ourselves_is_ordinary_entry_points() -> None:
    found = {item.name: item.value for item in metadata.entry_points(group="npu")}

    assert {
        "npu-cuda": "npu_cuda.plugin",
        "npu-ir": "npu_ir.plugins.builtin",
        "npu-passes": "npu_passes.plugin",
        "npu-runtime": "npu_runtime.plugin",
        "npu-runtime-cpu": "npu_runtime.cpu.plugin",
    }.items() <= found.items()


def test_importing_the_packages_after_torch_loads_little_else() -> None:
    loaded = run_python(
        "import sys, torch; before = set(sys.modules); import npu_ir, npu_passes, npu_runtime; "
        "print(*set(sys.modules) - before)"
    )

    packages = {name.partition(".")[0] for name in loaded.stdout.split()} - set(sys.stdlib_module_names)
    assert {"npu_ir", "npu_passes", "npu_runtime"} <= packages
    assert packages <= {"npu_ir", "npu_passes", "npu_runtime", "pluggy", "torch", "safetensors"}
    assert "torch._dynamo" not in loaded.stdout
    assert "torch._inductor" not in loaded.stdout


def test_a_graph_is_saved_loaded_and_run_without_numpy(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["numpy"] = None  # importing it now fails
import torch, npu_ir
model, x = torch.nn.Linear(3, 2), torch.ones(1, 3)
npu_ir.save_ir(npu_ir.extract_ir(model, (x,)), "graph.json", weights=model.state_dict())
result = npu_ir.execute_ir(npu_ir.load_ir("graph.json"), (x,), weights="graph.weights.safetensors")
assert torch.equal(result, model(x))
"""

    finished = run_python(script, cwd=tmp_path)

    assert finished.returncode == 0, finished.stderr


def test_the_changelog_has_a_section_for_work_to_come() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_relative_link_of_a_page_leads_somewhere() -> None:
    folders = ("*.md", "packages/*/*.md", "docs/**/*.md", "examples/**/*.md")
    pages = [page for pattern in folders for page in ROOT.glob(pattern)]

    missing = [
        f"{page.relative_to(ROOT)}: {match['target']}"
        for page in pages
        for match in LINK.finditer(page.read_text(encoding="utf-8"))
        if not (page.parent / match["target"]).exists()
    ]

    assert len(pages) > 70
    assert missing == []
