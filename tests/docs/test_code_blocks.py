"""Every code block of the README and of docs/ runs, and prints what the page says it prints.

The ``python`` blocks of a page run in order, in one namespace and an empty working directory; a ``>>>``
prompt is checked like a doctest. A ``text`` block below ``<!-- output -->`` is what the ``python`` block
above it prints; below ``<!-- output, numbers vary -->``, up to numbers and the order of lines. The block
below ``<!-- file: NAME -->`` is written to a file, and the one below ``<!-- run -->`` is run by the shell.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

from npu_cuda.backend.rules import RULES
from tests.support.places import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "packages").glob("*/README.md")),
    *sorted((ROOT / "docs").glob("**/*.md")),
]
FLAGS = doctest.ELLIPSIS
OUTPUT = re.compile(r"^<!-- output(?P<varies>, numbers vary)? -->$", re.MULTILINE)
NUMBER = re.compile(r"\d[\d.,]*(?:e[-+]\d+)?(?: (?:ns|us|ms|s)\b)?")
TEXT_BLOCK = re.compile(r"\n+```text\n(?P<wanted>.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = "__printed__"
VARYING = re.compile(r"cudnn_enabled=(?:True|False)")  # as PyTorch was built
FILE = re.compile(
    r"^<!-- file: (?P<name>[\w.]+) -->\n```\w+\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL
)
COMMANDS = re.compile(r"^<!-- run -->\n```console\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)


def parse_outputs(document: Document) -> Iterator[Region]:
    for comment in OUTPUT.finditer(document.text):
        block = TEXT_BLOCK.match(document.text, comment.end())
        assert block is not None, f"{document.path}: no ```text block below <!-- output -->"
        evaluate = compare_output if comment["varies"] is None else compare_varying_output
        yield Region(comment.start(), block.end(), block["wanted"], evaluate)


def compare_output(example: Example) -> str | None:
    return difference(VARYING.sub("", example.parsed), VARYING.sub("", example.namespace[PRINTED]))


def compare_varying_output(example: Example) -> str | None:
    return difference(without_numbers(example.parsed), without_numbers(example.namespace[PRINTED]))


def without_numbers(text: str) -> str:
    """Return the lines with # for each number; sorted, since lines may be ordered by their numbers."""
    lines = (" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines())
    return "\n".join(sorted(filter(None, lines))) + "\n"


def difference(expected: str, printed: str) -> str | None:
    wanted = doctest.Example("", expected)
    checker = doctest.OutputChecker()
    if checker.check_output(wanted.want, printed, FLAGS):
        return None
    return checker.output_difference(wanted, printed, FLAGS | doctest.REPORT_NDIFF)


def parse_files(document: Document) -> Iterator[Region]:
    for block in FILE.finditer(document.text):
        yield Region(block.start(), block.end(), (block["name"], block["content"]), write_file)


def write_file(example: Example) -> None:
    name, content = example.parsed
    Path(name).write_text(content, encoding="utf-8")


def parse_commands(document: Document) -> Iterator[Region]:
    for block in COMMANDS.finditer(document.text):
        yield Region(block.start(), block.end(), block["commands"], run_commands)


def run_commands(example: Example) -> str | None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        ["bash", "-ec", example.parsed],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else f"exit code {done.returncode}:\n{done.stdout}{done.stderr}"


def run_page(path: Path) -> None:
    python = PythonCodeBlockParser(doctest_optionflags=FLAGS)
    sybil = Sybil(parsers=[python, SkipParser(), parse_outputs, parse_files, parse_commands])
    document = sybil.parse(path)
    document.namespace[PRINTED] = ""
    for example in document.examples():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            example.evaluate()
        if printed.getvalue():
            document.namespace[PRINTED] = printed.getvalue()


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_every_code_block_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NPU_CACHE", str(tmp_path.with_name("caches")))

    with mock.patch.dict(RULES):  # a lowering rule of a page is none of the tests after it
        run_page(page)


def test_a_page_that_is_not_true_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for text, message in (
        ("```python\n1 / 0\n```\n", "division by zero"),
        ("```python\n>>> 1 + 1\n3\n```\n", "Expected:\n    3\nGot:\n    2"),
        ("```python\nprint(2)\n```\n\n<!-- output -->\n```text\n3\n```\n", r"- 3\n +\+ 2"),
        (
            "```python\nprint('2.5 s of 3')\n```\n\n<!-- output, numbers vary -->\n```text\n1 ms in 3\n```\n",
            r"- # in #\n +\+ # of #",
        ),
        ("<!-- output -->\n```\n3\n```\n", "no ```text block below"),
        ("```python\nx = 1\n```\n\n```python\nprint(x, y)\n```\n", "name 'y' is not defined"),
        ("<!-- run -->\n```console\necho so it is >&2; exit 3\n```\n", "exit code 3:\nso it is"),
    ):
        page.write_text(text)

        with pytest.raises(Exception, match=message):
            run_page(page)


def test_a_true_page_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\nprint('x is', x)\n```\n\n<!-- output -->\n```text\nx is ...\n```\n\n"
        "```python\nprint('b   10 us\\na  2.5 ms')\n```\n\n<!-- output, numbers vary -->\n```text\na  7 ms\n"
        "b  3 s\n```\n\n```python\n>>> x\n1\n```\n\n```console\nnot run\n```\n\n<!--- skip: next -->\n\n"
        "```python\nnot python\n```\n\n<!-- file: a.c -->\n```c\nint a;\n```\n\n<!-- run -->\n```console\n"
        "mv a.c b.c\npython -c 'open(\"b.c\")'\n```\n\n```python\n>>> open('b.c').read()\n'int a;\\n'\n```\n"
    )

    run_page(page)
