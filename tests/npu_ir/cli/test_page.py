"""The page on the command line is true: its examples run, and it names every command and option."""

import doctest
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from npu_ir.cli import main
from npu_ir.cli.failures import EXIT_CODES
from npu_ir.cli.parser import Commands, build_parser
from npu_ir.plugins.distributions import OWN
from tests.support.language_models import save_language_model
from tests.support.places import ROOT
from tests.support.rows import each_row

PAGE = ROOT / "docs" / "reference" / "cli.md"
OTHER_PAGES = [
    path
    for place in ("*.md", "docs/**/*.md", "packages/*/*.md", "examples/*/*.md")
    for path in ROOT.glob(place)
    if path != PAGE
]
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
ALWAYS_THERE = {"--help", "--debug", "--verbose"}
ON_OTHER_PAGES = re.compile(r"^(?:\$ )?(npu [a-z].*)$", re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(TEXT) if kind == language]


def commands() -> Commands:
    (found,) = [item for item in build_parser()._actions if isinstance(item, Commands)]
    return found


def our_commands() -> set[str]:
    ours = re.compile(rf"npu-ir|.* \((?:{'|'.join(OWN)}) \S+\)")
    return {name for name, origin in commands()._origins.items() if ours.fullmatch(origin)}


def examples() -> Iterator[tuple[str, str]]:
    for block in blocks("console"):
        yield from COMMAND.findall(block)


@pytest.fixture
def _plain_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "net.py").write_text(blocks("python")[0])
    save_language_model(tmp_path / "my-model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield
    for name in [name for name in sys.modules if name.partition(":")[0] == "net" and name not in known]:
        del sys.modules[name]


@pytest.mark.usefixtures("_plain_run")
def test_every_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    checker = doctest.OutputChecker()

    for command, wanted in examples():
        program, *arguments = shlex.split(command.partition(" > ")[0])
        code = main(arguments)

        printed = capsys.readouterr()
        got = printed.out + printed.err
        assert program == "npu"
        finds = ": error: " in wanted or "a and b differ" in wanted
        assert (code == 0) == (not finds), f"{command}\n{got}"
        same = not wanted or checker.check_output(
            wanted, got, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert same, f"$ {command}\n{got}\ninstead of\n{wanted}"


def test_every_command_is_shown() -> None:
    assert {shlex.split(command)[1] for command, _ in examples()} == our_commands()


def test_every_option_is_named() -> None:
    parsers = commands().choices

    options = {
        option
        for name in our_commands()
        for action in parsers[name]._actions
        for option in action.option_strings
        if option.startswith("--")
    }

    assert options - ALWAYS_THERE - set(re.findall(r"--[a-z-]+", TEXT)) == set()


def test_every_exit_code_is_named() -> None:
    assert re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE) == re.findall(
        r"^  (\d+) ", EXIT_CODES, re.MULTILINE
    )


@each_row(
    "command",
    sorted({text for page in OTHER_PAGES for text in ON_OTHER_PAGES.findall(page.read_text("utf-8"))}),
)
def test_commands_on_other_pages_are_understood(command: str) -> None:
    options = build_parser().parse_args(shlex.split(command, comments=True)[1:])

    assert callable(options.run)
