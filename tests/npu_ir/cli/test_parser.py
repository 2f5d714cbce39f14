"""The frame of the command line: help, exit codes, plugin commands, completions."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

import npu_ir
from npu_ir._torch.ops import has_namespace
from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.parser import COMMANDS
from npu_ir.cli.quantities import count_text, size_text, time_text
from npu_ir.errors import UsageError
from npu_ir.interpreter.runners import find_runner
from npu_ir.plugins import distributions
from npu_ir.plugins.distributions import OWN
from npu_ir.plugins.plugin_manager import PluginReport
from tests.support.rows import each_row

Capture = pytest.CaptureFixture[str]
Install = Callable[..., None]
Command = Callable[..., str]
NAMES = ("random-weights", "conv-bn-folding", "train-fuse", "aten", "interpreter")


def adding(
    *commands: str, run: Callable[[Any], Any] | None = None, then: Callable[[], Any] = lambda: None
) -> dict[str, Callable[..., Any]]:
    """Return the hooks of a plugin whose commands print their name and their argument, or ``run``."""

    def greet(options: Any) -> Any:
        sys.stdout.write(f"{options.command} {options.number}\n")
        return options.number

    def npu_add_commands(commands: Any) -> None:
        for command in names:
            parser = commands.add_parser(command, help="from a plugin")
            parser.add_argument("number", type=int, nargs="?")
            parser.set_defaults(run=run or greet)
        then()

    names = commands
    return {"npu_add_commands": npu_add_commands}


def test_help_lists_every_command_and_exit_code(npu: Command) -> None:
    printed = npu("--help")

    assert all(re.search(rf"^    {command}\s", printed, re.MULTILINE) for command in COMMANDS)
    assert all(f"  {code:<3}  " in printed for code in (0, 1, 2, 130, 141))
    for command in COMMANDS:
        assert f"\nexample:\n  npu {command}" in npu(f"{command} --help")


def test_the_version_names_what_it_runs_on(npu: Command) -> None:
    lines = dict(line.split(" ") for line in npu("--version").splitlines())

    assert lines["npu-ir"] == npu_ir.__version__
    assert lines["torch"] == str(torch.__version__)
    assert lines["python"] == platform.python_version()
    assert set(lines) - {*OWN} == {"torch", "python"}


@each_row("command, message", [
    ("", "npu: error: the following arguments are required: COMMAND\n  fix: see npu --help\n"),
    ("bogus", "npu: error: there is no command 'bogus'\n  fix: see npu --help\n"),
    ("info", "npu info: error: the following arguments are required: FILE\n  fix: see npu info --help\n"),
    ("info a --jso",
        "npu info: error: unrecognized arguments: --jso (did you mean '--json'?)\n  fix: see npu info -"),
    ("run a --imput=x b", "npu run: error: unrecognized arguments: --imput=x (did you mean '--input'?) b\n"),
    ("new a", "npu: error: there is no command 'new' (did you mean 'new-plugin'?)\n"),
    ("extrat a", "npu: error: there is no command 'extrat' (did you mean 'extract'?)\n"),
    ("run a --int-high 0", "npu run: error: argument --int-high: '0' is not a number from 1 on\n"),
    ("run a --seed 18446744073709551616", "npu run: error: argument --seed: '18446744073709551616' is not a"),
    ("run a --random-weights -9223372036854775809", "npu run: error: argument --random-weights: '-922337"),
    ("verify a --seed x", "npu verify: error: argument --seed: 'x' is not a number\n"),
    ("run a --weights w --random-weights 1", "npu run: error: argument --random-weights: not allowed with"),
])  # fmt: skip
def test_wrong_usage_is_one_line_and_where_to_read_more(command: str, message: str, npu: Command) -> None:
    printed = npu(command, code=2)

    assert printed.startswith(message)
    assert printed.count("\n") == 2


@each_row("command", ["opt net.json -o ", "extract net.py:make -o ", "opt net.json --dump-dir "])
def test_a_path_that_is_too_long_is_named(command: str, npu: Command) -> None:
    printed = npu(command + "a" * 5000, code=1)

    assert printed.startswith("npu: error: File name too long: aaa")
    assert printed.endswith("\n  fix: give a shorter path\n")


@each_row("command", ["opt", "bench", "new-plugin", "capture-step"])
def test_a_command_of_a_package_that_is_not_installed_says_which(
    command: str, install: Install, monkeypatch: pytest.MonkeyPatch, npu: Command
) -> None:
    def installed(name: str) -> str:
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    install()
    missing = "npu-passes" if command in ("opt", "new-plugin") else "npu-runtime"
    monkeypatch.setattr(distributions.util, "find_spec", lambda name: None)
    monkeypatch.setattr(distributions.metadata, "version", installed)

    assert npu(f"{command} net.json", code=2) == (
        f"npu: error: there is no command {command!r}\n"
        f"  fix: {missing} provides it, but is not installed: python -m pip install {missing}\n"
    )


def test_what_a_package_that_is_left_out_provides_is_refused(install: Install, npu: Command) -> None:
    install()

    assert "fix: npu-runtime provides it, and is installed, but is not used here: npu doctor" in npu(
        "profile net.json", code=2
    )
    with pytest.raises(UsageError, match="there is no runner 'executor'\n  fix: npu-runtime provides it"):
        find_runner("executor")


def test_what_each_package_brings_is_what_its_plugins_offer(npu: Command) -> None:
    offers: dict[str, dict[str, set[str]]] = {}
    for report in json.loads(npu("plugins --json")):
        kinds = offers.setdefault(report["distribution"].partition(" ")[0], {})
        for kind, names in report["offers"].items():
            kinds.setdefault(kind, set()).update(names)
    stated = {
        name: {kind: set(names) for kind, names in brings.items() if kind != "namespaces"}
        for name, brings in distributions._PROVIDED_NAMES.items()
    }
    kinds = ("commands", "pipelines", "runners", "backends")
    assert stated == {
        name: {kind: offers[name][kind] for kind in kinds if kind in offers[name]} for name in stated
    }


def test_what_each_package_states_as_its_namespaces_it_registers() -> None:
    stated = {
        name: brings["namespaces"]
        for name, brings in distributions._PROVIDED_NAMES.items()
        if "namespaces" in brings
    }

    assert stated == {"npu-passes": ("npu",)}
    assert has_namespace("npu")


@each_row("command, message", [
    ("extract nothing.py:make -o no/net.json",
        "--output no/net.json: there is no folder no\n  fix: make it: mkdir -p no\n"),
    ("extract nothing.py:make -o .", "--output .: this is a folder\n"),
    ("extract nothing.py:make -o net.PT",
        "--output net.PT: a graph is saved as JSON, not as .PT\n  fix: write --output net.json\n"),
    ("specialize net.json n=2 -o file/net.json", "file is a file, not a folder"),
    ("show nothing.json -o net.tex", "no drawing is written to a file that ends"),
    ("show nothing.json -o no/net.svg", "there is no folder no"),
    ("run nothing.json --output no/r.pt", "there is no folder no"),
    ("opt nothing.json --dump-dir file/dump", "file is a file, not a folder"),
    ("profile nothing.json --trace no/t.json", "--trace no/t.json: there is no"),
    ("compare nothing.json --repro file", "file is a file, not a folder"),
    ("capture-step nothing.py:make -o no/s.json", "there is no folder no"),
    ("new-plugin acme -o file/acme", "file is a file, not a folder"),
])  # fmt: skip
def test_what_cannot_be_written_is_refused_before_any_work(command: str, message: str, npu: Command) -> None:
    Path("file").write_text("")

    assert message in npu(command, code=2)


def test_a_folder_without_permission_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, npu: Command
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert "may not be written to\n  fix: give another place" in npu(
        "extract nothing.py:make -o net.json", code=2
    )


def fail(error: BaseException) -> Callable[..., Any]:
    def run(*_: object) -> None:
        raise error

    return run


LUCKLESS = ValueError("no luck")
REFUSED = "npu: warning: the commands of plugin {!r} (unknown distribution) were refused: "
TAKEN = "RegistryError: the command {!r} is already there: from {}, and now from {} (unknown distribution)"
FIX = "fix: disable one of the plugins (NPU_DISABLE_PLUGINS)"


def idle(commands: Any) -> None:
    commands.add_parser("idle")


@each_row("plugins, command, code, printed", {
    "runs": ({"friend": adding("greet")}, "greet", 0, ["greet None\n"]),
    "gives its exit code": ({"friend": adding("greet")}, "greet 7", 7, ["greet 7\n"]),
    "raises": ({"friend": adding("greet", run=fail(KeyError("greet")))}, "greet", 1,
        ["npu: error: KeyError: 'greet'\n",
        "  fix: this one is not expected; --debug shows where it comes from\n"]),
    "interrupted": ({"friend": adding("greet", run=fail(KeyboardInterrupt()))}, "greet", 130,
        ["npu: interrupted\n"]),
    "does nothing": ({"friend": {"npu_add_commands": idle}}, "idle", 1,
        ["npu: error: the command 'idle' does nothing\n",
        "  fix: the plugin that adds it must call set_defaults(run=function)\n"]),
    "taken by npu": ({"friend": adding("greet"), "rival": adding("salute", "info")}, "greet 0", 0,
        ["greet 0\n", REFUSED.format("rival"), TAKEN.format("info", "npu-ir", "rival"), f"\n  {FIX}\n"]),
    "taken by another": ({"friend": adding("greet"), "rival": adding("salute", "greet")}, "greet 0", 0,
        ["greet 0\n", REFUSED.format("rival"),
        TAKEN.format("greet", "friend (unknown distribution)", "rival"), f"\n  {FIX}\n"]),
    "fails": ({"broken": adding("greet", then=fail(LUCKLESS)), "friend": adding("greet")}, "greet 0", 0,
        ["greet 0\n", REFUSED.format("broken"), "ValueError: no luck\n"]),
    "cannot be loaded": ({"broken": LUCKLESS}, "--version", 0,
        ["npu: warning: plugin 'broken' (unknown distribution) was refused: ", "ValueError: no luck\n"]),
})  # fmt: skip
@pytest.mark.filterwarnings("error::npu_ir.plugins.plugin_manager.PluginWarning")
def test_a_command_of_a_plugin_ends_in_one_line_and_its_exit_code(
    plugins: dict[str, Any], command: str, code: int, printed: list[str], install: Install, npu: Command
) -> None:
    install(**plugins)

    assert npu(command, code=code).endswith("".join(printed))


def test_a_plugin_s_command_takes_debug(install: Install, npu: Command) -> None:
    install(friend=adding("greet", run=fail(LUCKLESS)))

    assert all(npu(command, code=1).count("Traceback") == 1 for command in ("greet --debug", "--debug greet"))


def test_plugins_tells_what_each_offers_or_why_it_was_refused(install: Install, npu: Command) -> None:
    half = {"npu_passes": lambda: [types.SimpleNamespace(name="fold")], **adding("info")}
    install("off", friend=adding("greet"), half=half, idle={}, off={}, broken=LUCKLESS)

    lines = npu("plugins").partition("npu: ")[0].splitlines()

    taken = TAKEN.format("info", "npu-ir", "half") + f"; {FIX}"
    assert [re.split(r"  +", line) for line in lines] == [
        ["plugin", "from", "state"],
        ["broken", "unknown distribution", "refused: ValueError: no luck"],
        ["friend", "unknown distribution", "commands: greet"],
        ["half", "unknown distribution", f"passes: fold; commands refused: {taken}"],
        ["idle", "unknown distribution", "offers nothing"],
        ["off", "unknown distribution", "refused: disabled by NPU_DISABLE_PLUGINS"],
    ]


def test_plugins_of_a_plugin_are_listed_behind_the_others(
    install: Install, npu: Command, recwarn: pytest.WarningsRecorder
) -> None:
    def npu_plugin_reports() -> list[PluginReport]:
        warnings.warn("bad.so is refused", stacklevel=1)
        offers = {"ops": ["acme.norm"], "kernels": ["acme.norm.host"]}
        return [
            PluginReport("good", "acme-good 1.2", offers=offers, group="acme"),
            PluginReport("bad", "acme-bad 0.1", "OSError: bad.so is cut off", group="acme"),
        ]

    install(acme={"npu_plugin_reports": npu_plugin_reports}, zebra=adding("greet"))

    lines, reports = npu("plugins").splitlines(), json.loads(npu("plugins --json"))

    assert [re.split(r"  +", line) for line in lines[1:]] == [
        ["acme", "unknown distribution", "offers nothing"],
        ["zebra", "unknown distribution", "commands: greet"],
        ["good", "acme-good 1.2", "ops: acme.norm; kernels: acme.norm.host"],
        ["bad", "acme-bad 0.1", "refused: OSError: bad.so is cut off"],
    ]
    assert [(each["name"], each["group"], each["refused"]) for each in reports] == [
        ("acme", "npu", None),
        ("zebra", "npu", None),
        ("good", "acme", None),
        ("bad", "acme", "OSError: bad.so is cut off"),
    ]
    assert reports[1]["offers"] == {"commands": ["greet"]}
    assert not [warning for warning in recwarn if "bad.so" in str(warning.message)]


@each_row("hook, reason", [
    (fail(LUCKLESS), "ValueError: no luck"),
    (lambda: ["good"], "PluginError: npu_plugin_reports returns 'good'"),
])  # fmt: skip
def test_a_plugin_that_cannot_report_is_listed_as_refused(
    hook: Callable[[], Any], reason: str, install: Install, npu: Command
) -> None:
    install(acme={"npu_plugin_reports": hook})

    assert f"refused: its hook npu_plugin_reports failed: {reason}" in npu("plugins")


def test_no_plugins_is_said(install: Install, npu: Command) -> None:
    install()

    assert npu("plugins").startswith("no plugins: no installed distribution has an entry point")


@each_row("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completions_are_a_script_that_the_shell_reads(shell: str, npu: Command) -> None:
    pytest.importorskip("shtab")

    script = npu(f"completions {shell}")

    assert all(word in script for word in (*COMMANDS, *NAMES))
    if shutil.which(shell):
        Path("script").write_text(script)
        subprocess.run([shell, "-n", "script"], check=True)


def test_completions_without_shtab_say_what_to_install(monkeypatch: pytest.MonkeyPatch, npu: Command) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)

    assert npu("completions bash", code=2) == (
        "npu: error: completions need shtab, which is not installed\n"
        '  fix: python -m pip install "npu-ir[cli]"\n'
    )


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
    (size_text(0), "0 B"), (size_text(999), "999 B"), (size_text(1000), "1 KB"), (size_text(1234), "1.23 KB"),
    (size_text(999_600), "1 MB"), (size_text(97_800_000), "97.8 MB"), (size_text(10**16), "1e+04 TB"),
    (time_text(0.0), "0 us"), (time_text(1.234e-6), "1.23 us"), (time_text(999.6e-6), "1 ms"),
    (time_text(-2e-6), "-2 us"), (time_text(12.0), "12 s"), (count_text(1, "node"), "1 node"),
    (count_text(1234, "node"), "1,234 nodes"),
])  # fmt: skip
def test_numbers_have_three_digits_in_the_unit_that_fits(text: str, expected: str) -> None:
    assert text == expected
