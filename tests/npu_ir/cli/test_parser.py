"""The frame of the command line: help, exit codes, plugin commands, completions."""

from __future__ import annotations

import functools
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import npu_ir
from npu_ir.cli import main
from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.parser import COMMANDS
from npu_ir.cli.quantities import count_text, size_text, time_text
from npu_ir.errors import UsageError
from npu_ir.interpreter.runners import find_runner
from npu_ir.plugins import distributions, plugin_manager
from npu_ir.plugins.distributions import OWN
from tests.support.rows import each_row

Capture = pytest.CaptureFixture[str]
Install = Callable[..., None]
_number = itertools.count()
NAMES = ("random-weights", "conv-bn-folding", "train-fuse", "aten", "interpreter")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs plugins, given as source code by name, in place of those of this environment."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    def install(disabled: str = "", **sources: str) -> None:
        modules = {name: f"plugin_{next(_number)}_{name}" for name in sources}
        for name, source in sources.items():
            (tmp_path / f"{modules[name]}.py").write_text(
                f"from npu_ir.plugins.hookspecs import hookimpl\n{source}"
            )
        points = [EntryPoint(name, modules[name], plugin_manager.GROUP) for name in sources]
        load = functools.cache(lambda: plugin_manager.load(points, {disabled}))
        monkeypatch.setattr(plugin_manager, "_load_installed", load)

    return install


def adding(*commands: str, then: str = "") -> str:
    """Return a plugin that adds commands which print their name and their argument."""
    lines = ["@hookimpl", "def npu_add_commands(commands):"]
    for command in commands:
        lines += [
            f"    parser = commands.add_parser({command!r}, help='from a plugin')",
            "    parser.add_argument('number', type=int, nargs='?')",
            "    parser.set_defaults(run=run)",
        ]
    lines += [
        f"    {then or 'pass'}",
        "def run(options):",
        "    print(options.command, options.number)",
        "    return options.number",
    ]
    return "\n".join(lines)


def test_help_lists_every_command_and_exit_code(capsys: Capture) -> None:
    code = main(["--help"])

    printed = capsys.readouterr().out
    assert code == 0
    assert all(re.search(rf"^    {command}\s", printed, re.MULTILINE) for command in COMMANDS)
    assert all(f"  {code:<3}  " in printed for code in (0, 1, 2, 130, 141))


@each_row("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(command: str, capsys: Capture) -> None:
    code = main([command, "--help"])

    assert code == 0
    assert f"\nexample:\n  npu {command}" in capsys.readouterr().out


def test_the_version_names_what_it_runs_on(capsys: Capture) -> None:
    code = main(["--version"])

    assert code == 0
    lines = dict(line.split(" ") for line in capsys.readouterr().out.splitlines())
    assert lines["npu-ir"] == npu_ir.__version__
    assert lines["torch"] == str(torch.__version__)
    assert lines["python"] == platform.python_version()
    assert set(lines) - {*OWN} == {"torch", "python"}


@each_row(
    "arguments, message",
    [
        ([], "npu: error: the following arguments are required: COMMAND\n  fix: see npu --help\n"),
        (["bogus"], "npu: error: there is no command 'bogus'\n  fix: see npu --help\n"),
        (
            ["info"],
            "npu info: error: the following arguments are required: FILE\n  fix: see npu info --help\n",
        ),
        (
            ["info", "a", "--jso"],
            (
                "npu info: error: unrecognized arguments: --jso (did you mean '--json'?)\n"
                "  fix: see npu info --help\n"
            ),
        ),
        (
            ["run", "a", "--imput=x", "b"],
            "npu run: error: unrecognized arguments: --imput=x (did you mean '--input'?) b\n",
        ),
        (["extrat", "a"], "npu: error: there is no command 'extrat' (did you mean 'extract'?)\n"),
        (
            ["run", "a", "--int-high", "0"],
            "npu run: error: argument --int-high: '0' is not a number from 1 on\n",
        ),
        (
            ["run", "a", "--weights", "w", "--random-weights", "1"],
            "npu run: error: argument --random-weights: not allowed with",
        ),
        (
            ["show", "a", "--dot", "--mermaid"],
            "npu show: error: argument --mermaid: not allowed with argument --dot\n",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_where_to_read_more(
    arguments: list[str], message: str, capsys: Capture
) -> None:
    code = main(arguments)

    printed = capsys.readouterr()
    assert code == 2
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 2
    assert printed.out == ""


@each_row("command", ["opt", "bench", "new-plugin", "capture-step"])
def test_a_command_of_a_package_that_is_not_installed_says_which(
    command: str, install: Install, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    install()
    missing = "npu-passes" if command in ("opt", "new-plugin") else "npu-runtime"
    version = metadata.version
    monkeypatch.setattr(distributions.util, "find_spec", lambda name: None)
    monkeypatch.setattr(
        distributions.metadata, "version", lambda name: absent(name) if name == missing else version(name)
    )

    code = main([command, "net.json"])

    assert code == 2
    assert capsys.readouterr().err == (
        f"npu: error: there is no command {command!r}\n"
        f"  fix: {missing} provides it, but is not installed: python -m pip install {missing}\n"
    )


def absent(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_command_of_a_package_that_is_left_out_says_so(install: Install, capsys: Capture) -> None:
    install()

    main(["profile", "net.json"])

    assert (
        "fix: npu-runtime provides it, and is installed, but is not used here: npu doctor"
        in capsys.readouterr().err
    )


def test_a_runner_of_a_package_that_is_left_out_says_which(install: Install) -> None:
    install()

    with pytest.raises(UsageError, match="there is no runner 'executor'\n  fix: npu-runtime provides it"):
        find_runner("executor")


def test_what_each_package_brings_is_what_its_plugins_offer(capsys: Capture) -> None:
    main(["plugins", "--json"])

    offers: dict[str, dict[str, set[str]]] = {}
    for report in json.loads(capsys.readouterr().out):
        kinds = offers.setdefault(report["distribution"].partition(" ")[0], {})
        for kind, names in report["offers"].items():
            kinds.setdefault(kind, set()).update(names)
    stated = {
        name: {kind: set(names) for kind, names in brings.items()}
        for name, brings in distributions._PROVIDED_NAMES.items()
    }
    kinds = ("commands", "pipelines", "runners", "backends")
    assert stated == {
        name: {kind: offers[name][kind] for kind in kinds if kind in offers[name]} for name in stated
    }


@each_row("words, message", [
    (["extract", "nothing.py:make", "-o", "no/net.json"],
        "--output no/net.json: there is no folder no\n  fix: make it: mkdir -p no\n"),
    (["extract", "nothing.py:make", "-o", "."], "--output .: this is a folder\n"),
    (["extract", "nothing.py:make", "-o", "net.PT"],
        "--output net.PT: a graph is saved as JSON, not as .PT\n  fix: write --output net.json\n"),
    (["specialize", "net.json", "n=2", "-o", "file/net.json"], "file is a file, not a folder"),
    (["show", "nothing.json", "-o", "net.tex"], "no drawing is written to a file that ends"),
    (["show", "nothing.json", "-o", "no/net.svg"], "there is no folder no"),
    (["run", "nothing.json", "--output", "no/r.pt"], "there is no folder no"),
    (["opt", "nothing.json", "--dump-dir", "file/dump"], "file is a file, not a folder"),
    (["profile", "nothing.json", "--trace", "no/t.json"], "--trace no/t.json: there is no"),
    (["compare", "nothing.json", "--repro", "file"], "file is a file, not a folder"),
    (["capture-step", "nothing.py:make", "-o", "no/s.json"], "there is no folder no"),
    (["new-plugin", "acme", "-o", "file/acme"], "file is a file, not a folder")
])  # fmt: skip
def test_what_cannot_be_written_is_refused_before_any_work(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")

    code = main(words)

    assert code == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_permission_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    code = main(["extract", "nothing.py:make", "-o", str(tmp_path / "net.json")])

    assert code == 2
    assert f"{tmp_path} may not be written to\n  fix: give another place" in capsys.readouterr().err


def test_a_plugin_s_command_runs_and_gives_the_exit_code(install: Install, capsys: Capture) -> None:
    install(friend=adding("greet"))

    codes = [main(["greet"]), main(["greet", "7"])]

    assert codes == [0, 7]
    assert capsys.readouterr().out == "greet None\ngreet 7\n"


def test_what_a_plugin_s_command_raises_is_one_line(install: Install, capsys: Capture) -> None:
    install(friend=adding("greet").replace("print(", "raise KeyError("))

    code = main(["greet"])

    assert code == 1
    assert capsys.readouterr().err == (
        "npu: error: KeyError: ('greet', None)\n"
        "  fix: this one is not expected; --debug shows where it comes from\n"
    )


def test_a_plugin_s_command_takes_debug(install: Install, capsys: Capture) -> None:
    install(friend=adding("greet").replace("print(", "raise KeyError("))

    codes = [main(["greet", "--debug"]), main(["--debug", "greet"])]

    assert codes == [1, 1]
    assert capsys.readouterr().err.count("Traceback") == 2


def test_a_command_that_does_nothing_is_reported(install: Install, capsys: Capture) -> None:
    install(friend="@hookimpl\ndef npu_add_commands(commands):\n    commands.add_parser('idle')")

    code = main(["idle"])

    assert code == 1
    assert capsys.readouterr().err == (
        "npu: error: the command 'idle' does nothing\n"
        "  fix: the plugin that adds it must call set_defaults(run=function)\n"
    )


@each_row("taken, origin", [("info", "npu-ir"), ("greet", "friend (unknown distribution)")])
def test_a_command_that_is_there_already_is_refused(
    taken: str, origin: str, install: Install, capsys: Capture
) -> None:
    install(friend=adding("greet"), rival=adding("salute", taken))

    code = main(["greet", "0"])

    printed = capsys.readouterr()
    assert code == 0
    assert printed.out == "greet 0\n"
    assert printed.err.startswith(
        "npu: warning: the commands of plugin 'rival' (unknown distribution) were refused: RegistryError: "
        f"the command {taken!r} is already there: from {origin}, and now from rival (unknown distribution)\n"
    )


def test_a_plugin_that_fails_adds_no_command_and_stops_no_other(install: Install, capsys: Capture) -> None:
    install(broken=adding("greet", then="raise ValueError('no luck')"), friend=adding("greet"))

    codes = [main(["--help"]), main(["greet", "0"])]

    printed = capsys.readouterr()
    assert codes == [0, 0]
    assert printed.out.count("    greet ") == 1
    assert printed.out.endswith("greet 0\n")
    refusal = "the commands of plugin 'broken' (unknown distribution) were refused: ValueError: no luck"
    assert printed.err == f"npu: warning: {refusal}\n" * 2


def test_a_plugin_that_cannot_be_loaded_is_reported_once_per_command(
    install: Install, capsys: Capture, recwarn: pytest.WarningsRecorder
) -> None:
    install(broken="import not_there_at_all")

    main(["plugins"])

    error = capsys.readouterr().err
    assert error == (
        "npu: warning: plugin 'broken' (unknown distribution) was refused: "
        "ModuleNotFoundError: No module named 'not_there_at_all'\n"
    )
    assert not [warning for warning in recwarn if warning.category is plugin_manager.PluginWarning]


def test_plugins_tells_what_each_offers_or_why_it_was_refused(install: Install, capsys: Capture) -> None:
    install(
        disabled="off",
        friend=adding("greet"),
        half="@hookimpl\ndef npu_passes():\n    return [type('P', (), {'name': 'fold'})]\n" + adding("info"),
        idle="",
        off="",
        broken="raise ValueError('no luck')",
    )

    main(["plugins"])

    taken = (
        "RegistryError: the command 'info' is already there: from npu-ir, "
        "and now from half (unknown distribution); fix: disable one of the plugins (NPU_DISABLE_PLUGINS)"
    )
    lines = capsys.readouterr().out.splitlines()
    assert [re.split(r"  +", line) for line in lines] == [
        ["plugin", "from", "state"],
        ["broken", "unknown distribution", "refused: ValueError: no luck"],
        ["friend", "unknown distribution", "commands: greet"],
        ["half", "unknown distribution", f"passes: fold; commands refused: {taken}"],
        ["idle", "unknown distribution", "offers nothing"],
        ["off", "unknown distribution", "refused: disabled by NPU_DISABLE_PLUGINS"],
    ]


def test_plugins_prints_json(install: Install, capsys: Capture) -> None:
    install(friend=adding("greet"), broken="raise ValueError('no luck')")

    main(["plugins", "--json"])

    broken, friend = json.loads(capsys.readouterr().out)
    assert friend["offers"] == {"commands": ["greet"]}
    assert (broken["name"], broken["refused"]) == ("broken", "ValueError: no luck")


REPORTING = """
from npu_ir.plugins.plugin_manager import PluginReport

@hookimpl
def npu_plugin_reports():
    import warnings
    warnings.warn("bad.so is refused")
    return [
        PluginReport(
            "good",
            "acme-good 1.2",
            offers={"ops": ["acme.norm"], "kernels": ["acme.norm.host"]},
            group="acme",
        ),
        PluginReport("bad", "acme-bad 0.1", "OSError: bad.so is cut off", group="acme"),
    ]
"""


def test_plugins_of_a_plugin_are_listed_behind_the_others(
    install: Install, capsys: Capture, recwarn: pytest.WarningsRecorder
) -> None:
    install(acme=REPORTING, zebra="")

    main(["plugins"])
    lines = capsys.readouterr().out.splitlines()
    main(["plugins", "--json"])
    groups = {each["name"]: each["group"] for each in json.loads(capsys.readouterr().out)}

    assert [re.split(r"  +", line) for line in lines[1:]] == [
        ["acme", "unknown distribution", "offers nothing"],
        ["zebra", "unknown distribution", "offers nothing"],
        ["good", "acme-good 1.2", "ops: acme.norm; kernels: acme.norm.host"],
        ["bad", "acme-bad 0.1", "refused: OSError: bad.so is cut off"],
    ]
    assert groups == {"acme": "npu", "zebra": "npu", "good": "acme", "bad": "acme"}
    assert not [warning for warning in recwarn if "bad.so" in str(warning.message)]


@each_row(
    "body, reason",
    [
        ("raise ValueError('no luck')", "ValueError: no luck"),
        ("return ['good']", "PluginError: npu_plugin_reports returns 'good'"),
    ],
)
def test_a_plugin_that_cannot_report_is_listed_as_refused(
    install: Install, capsys: Capture, body: str, reason: str
) -> None:
    install(acme=f"@hookimpl\ndef npu_plugin_reports():\n    {body}\n")

    code = main(["plugins"])

    assert code == 0
    assert f"refused: its hook npu_plugin_reports failed: {reason}" in capsys.readouterr().out


def test_no_plugins_is_said(install: Install, capsys: Capture) -> None:
    install()

    main(["plugins"])

    assert capsys.readouterr().out.startswith("no plugins: no installed distribution has an entry point")


@each_row("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completions_are_a_script_that_the_shell_reads(shell: str, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("shtab")

    code = main(["completions", shell])

    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert code == 0
    assert all(word in script.read_text() for word in (*COMMANDS, *NAMES))
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)


def test_completions_without_shtab_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)

    code = main(["completions", "bash"])

    assert code == 2
    assert capsys.readouterr().err == (
        "npu: error: completions need shtab, which is not installed\n"
        '  fix: python -m pip install "npu-ir[cli]"\n'
    )


def test_an_interrupted_command_ends_with_130(install: Install, capsys: Capture) -> None:
    install(friend=adding("greet").replace("print(", "raise KeyboardInterrupt("))

    code = main(["greet"])

    assert code == 130
    assert capsys.readouterr().err == "npu: interrupted\n"


FACTS = {"inputs": "x: f32[1]\ny: f32[2]", "nodes": "3"}


def test_facts_are_aligned_plain_text_where_stdout_is_no_terminal(capsys: Capture) -> None:
    print_facts(FACTS)
    print_table(("name", "n"), [("a", "1"), ("long name", "22")])

    assert capsys.readouterr().out == (
        "inputs  x: f32[1]\n        y: f32[2]\nnodes   3\nname       n\na          1\nlong name  22\n"
    )


@each_row("has_rich", [True, False])
def test_a_terminal_gets_rich_output_where_rich_is_installed(
    has_rich: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    if not has_rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)

    print_facts(FACTS)
    print_table(("type",), [("f32[red]",)])

    printed = capsys.readouterr().out
    assert ("\x1b[1m" in printed) == has_rich
    assert "x: f32[1]" in printed
    assert "f32[red]" in printed  # no markup


@each_row("text, expected", [
    (size_text(0), "0 B"),
    (size_text(999), "999 B"),
    (size_text(1000), "1 KB"),
    (size_text(1234), "1.23 KB"),
    (size_text(999_600), "1 MB"),
    (size_text(97_800_000), "97.8 MB"),
    (size_text(141 * 10**9), "141 GB"),
    (size_text(10**16), "1e+04 TB"),
    (time_text(0.0), "0 us"),
    (time_text(1.234e-6), "1.23 us"),
    (time_text(999.6e-6), "1 ms"),
    (time_text(-2e-6), "-2 us"),
    (time_text(0.0123), "12.3 ms"),
    (time_text(12.0), "12 s"),
    (count_text(1, "node"), "1 node"),
    (count_text(1234, "node"), "1,234 nodes"),
])  # fmt: skip
def test_numbers_have_three_digits_in_the_unit_that_fits(text: str, expected: str) -> None:
    assert text == expected
