"""Options that several commands share; paths that cannot be written are refused before any work."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from npu_ir.errors import UsageError, VisualizationError
from npu_ir.interpreter.runners import all_runners
from npu_ir.plugins import plugin_manager
from npu_ir.serial.checkpoints import WEIGHT_SUFFIXES
from npu_ir.viz import DRAWING_SUFFIXES, require_format

# The file completion of each shell: equal to shtab.FILE, which only the extra `cli` installs.
_COMPLETE_FILES = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "tcsh": "f",
    "fish": "(__fish_complete_path (commandline -ct))",
}

INT_HIGH = 2
NOT_SAVED = "nothing: -o FILE saves the graph"
_SEEDS = -(1 << 63), (1 << 64) - 1  # of the generators of PyTorch
_MOST_THREADS = 1024  # more are a mistake, and starting them takes minutes
# Suffixes of other formats of this project: a graph in such a file would be misread.
_NON_GRAPH_SUFFIXES = (*WEIGHT_SUFFIXES, *DRAWING_SUFFIXES, ".py")


def add_file(parser: argparse._ActionsContainer, *names: str, help: str, **more: Any) -> argparse.Action:
    """Add an option or argument that names a file; the shell completes it."""
    action = parser.add_argument(*names, metavar="FILE", help=help, **{"type": Path, **more})
    action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]
    return action


def _add_output(parser: argparse._ActionsContainer, *names: str, content: str, **more: Any) -> None:
    """Add an option that names a file to write, whose ``content`` is a ``"graph"`` or ``"other"``."""
    add_file(parser, *names, **more).content = content  # type: ignore[attr-defined]


def set_completions(action: argparse.Action, names: Callable[[], Iterable[str]]) -> None:
    """Let the shell complete the names that an option or argument takes; other names remain allowed.

    ``names`` is called when the completions are generated.
    """
    action.value_names = names  # type: ignore[attr-defined]


def add_inputs(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--input``, which `npu_ir.cli.input_text` parses."""
    parser.add_argument("-i", "--input", action="append", default=[], metavar="NAME=VALUE", help=help)


def add_weights(parser: argparse.ArgumentParser, help: str, use: str = "") -> None:
    """Add ``--weights``, ``--random-weights`` and ``--constants``, which `npu_ir.cli.weight_selection` reads.

    Each help text starts with ``use``, the purpose of the weights.
    """
    weights = parser.add_mutually_exclusive_group()
    add_file(weights, "--weights", help=f"{use}{help}")
    weights.add_argument(
        "--random-weights",
        type=_parse_seed,
        nargs="?",
        const=0,
        metavar="SEED",
        help=f"{use}make up weights: to see it run, or to time it (default seed: 0)",
    )
    add_constants(parser, use)


def add_constants(parser: argparse.ArgumentParser, use: str = "") -> None:
    """Add ``--constants``, a file of tensors that are not in the ``state_dict``."""
    add_file(
        parser,
        "--constants",
        help=f"{use}tensors by name that are not in the state_dict, such as non-persistent buffers",
    )


def add_factory(parser: argparse.ArgumentParser) -> None:
    """Add ``MODULE:FACTORY`` and ``--train``, which `npu_ir.cli.factory` evaluates."""
    parser.add_argument(
        "factory",
        metavar="MODULE:FACTORY",
        help="what makes the model: models/net.py:make, package.module:Class",
    )
    parser.add_argument(
        "--train", action="store_true", help="take the model in train mode (default: eval mode)"
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add ``--size``, which `npu_ir.cli.input_text` parses."""
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="SYMBOL=N",
        help="a size that the graph leaves open, for random inputs "
        "(default: the smallest possible, from 2 on)",
    )


def add_runner(parser: argparse.ArgumentParser) -> None:
    """Add ``--on``, the name of a runner (`npu_ir.interpreter.runners`)."""
    action = parser.add_argument(
        "--on",
        metavar="RUNNER",
        help="what runs the graph: executor, interpreter or a plugin's "
        "(default: the executor, with npu-runtime)",
    )
    set_completions(action, all_runners)


def add_backends(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--backend``, the names of backends for the executor, in order of preference."""
    action = parser.add_argument("--backend", action="append", metavar="NAME", help=help)
    set_completions(action, lambda: ["auto", *plugin_manager.get_plugins().backends])


def add_call(parser: argparse.ArgumentParser, help: str) -> None:
    """Add the options that `npu_ir.cli.call_arguments.load_call` reads."""
    add_inputs(parser, help)
    add_sizes(parser)
    add_random_data(parser)


def add_random_data(parser: argparse.ArgumentParser) -> None:
    """Add ``--seed`` and ``--int-high``, for the random data of inputs that are not given."""
    parser.add_argument(
        "--seed", type=_parse_seed, default=0, help="of the random data and of dropout (default: 0)"
    )
    parser.add_argument(
        "--int-high",
        type=integer_from(1),
        default=INT_HIGH,
        metavar="N",
        help=f"random integers are below this (default: {INT_HIGH}, valid as any index)",
    )


def _parse_seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not _SEEDS[0] <= seed <= _SEEDS[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed, which is from -2**63 to 2**64 - 1")
    return seed


def add_tolerances(parser: argparse.ArgumentParser) -> None:
    """Add ``--rtol`` and ``--atol``, the tolerances of a comparison."""
    for name, kind, default in (("--rtol", "relative", "1.3e-6"), ("--atol", "absolute", "1e-5")):
        parser.add_argument(
            name, type=_parse_tolerance, help=f"{kind} tolerance (default: by dtype, float32 {default})"
        )


def _parse_tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a tolerance, which is 0 or more")
    return number


def integer_from(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return an argparse type for integers that are at least ``low``, and at most ``high``."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
            limit = "on" if high is None else f"to {high}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} {limit}")
        return int(text)

    return read


def add_threads(parser: argparse._ActionsContainer, help: str) -> None:
    """Add ``--threads``."""
    parser.add_argument("--threads", type=integer_from(1, _MOST_THREADS), metavar="N", help=help)


def add_output(parser: argparse._ActionsContainer, *names: str, help: str, **more: Any) -> None:
    """Add an option that names a file to write."""
    read = functools.partial(parse_output_path, names[-1])
    _add_output(parser, *names, content="other", help=help, **{"type": read, **more})


def add_executor_output(parser: argparse._ActionsContainer, help: str) -> None:
    read = functools.partial(_parse_executor_path, "--output")
    _add_output(parser, "-o", "--output", content="other", help=help, type=read, required=True)


def add_graph_output(parser: argparse._ActionsContainer, help: str, **more: Any) -> None:
    read = functools.partial(_parse_graph_path, "--output")
    _add_output(parser, "-o", "--output", content="graph", help=help, type=read, **more)


def add_drawing_output(parser: argparse._ActionsContainer, help: str) -> None:
    read = functools.partial(_parse_drawing_path, "--output")
    text = f"{help}: .svg, .mmd, .dot; .png and .pdf need graphviz"
    _add_output(parser, "-o", "--output", content="other", help=text, type=read)


def add_page(parser: argparse._ActionsContainer, help: str) -> None:
    """Add ``--html``, the file of a page."""
    read = functools.partial(_parse_page_path, "--html")
    _add_output(parser, "--html", content="other", help=help, type=read)


def add_overlays(parser: argparse._ActionsContainer) -> None:
    """Add ``--overlay``, files for `to_html`."""
    add_file(
        parser,
        "--overlay",
        action="append",
        default=[],
        help="with --html: colour by what npu profile, compare or explain wrote with --json; more than once",
    )


def require_page(options: argparse.Namespace) -> None:
    """Raise a `UsageError` if there are overlays and no page."""
    if options.overlay and options.html is None:
        raise UsageError("--overlay is for pages", fix="add --html FILE.html")


def add_output_folder(parser: argparse._ActionsContainer, *names: str, help: str, **more: Any) -> None:
    """Add an option that names a folder to write, which need not exist."""

    def read(text: str) -> Path:
        path = Path(text)
        existing = next(item for item in (path, *path.absolute().parents) if item.exists())
        _require_writable(names[-1], text, existing)
        return path

    parser.add_argument(*names, type=read, metavar="FOLDER", help=help, **more)


def _parse_graph_path(option: str, text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() in _NON_GRAPH_SUFFIXES:
        raise UsageError(
            f"{option} {text}: a graph is saved as JSON, not as {path.suffix}",
            fix=f"write {option} {path.with_suffix('.json')}",
        )
    return parse_output_path(option, text)


def _parse_executor_path(option: str, text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() in (".json", *_NON_GRAPH_SUFFIXES):
        raise UsageError(
            f"{option} {text}: an executor is not saved as {path.suffix}",
            fix=f"write {option} {path.with_suffix('.npu')}",
        )
    return parse_output_path(option, text)


def _parse_drawing_path(option: str, text: str) -> Path:
    try:
        require_format(Path(text))
    except VisualizationError as error:
        raise UsageError(f"{option} {text}: {error.message}", fix=error.fix) from error
    return parse_output_path(option, text)


def _parse_page_path(option: str, text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"{option} {text}: a page is written to a file that ends in .html",
            fix=f"write {option} {path.with_suffix('.html')}",
        )
    return parse_output_path(option, text)


def parse_output_path(option: str, text: str) -> Path:
    """Return the path of a file to write.

    Raises:
        UsageError: Nothing can be written there, or a file of Python code is there.
    """
    path = Path(text)
    if path.is_dir():
        raise UsageError(f"{option} {text}: this is a folder", fix=f"name a file: {path / 'NAME'}")
    if not path.parent.exists():
        raise UsageError(
            f"{option} {text}: there is no folder {path.parent}", fix=f"make it: mkdir -p {path.parent}"
        )
    if path.suffix == ".py" and path.exists():
        raise UsageError(f"{option} {text}: this is a file of Python code", fix="give another file")
    _require_writable(option, text, path.parent)
    return path


def _require_writable(option: str, text: str, folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{option} {text}: {folder} is a file, not a folder", fix="give another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"{option} {text}: {folder} may not be written to", fix="give another place, or change its mode"
        )
