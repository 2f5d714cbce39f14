"""``npu doctor``: the state of the installation."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from npu_ir.cli.console import join_lines, print_table
from npu_ir.cli.doctor import Check, State, all_checks
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json

_EPILOG = """\
What is absent is not there, or not for this machine, and nothing is wrong with that. What is broken is
installed and does not work: the exit code is 1.

example:
  npu doctor
  npu doctor --json | jq '.checks[] | select(.state == "broken")'
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="say what is installed and what works",
        description="Say what is installed, what of it works here, and why the rest does not.",
        epilog=_EPILOG,
    )
    add_json(parser, "all checks")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print every check, and return the exit code: 1 if something is broken."""
    options.progress.stage("trying what is installed")
    return report(all_checks(), options)


def report(checks: list[Check], options: argparse.Namespace) -> int:
    """Print checks, and return the exit code: 1 if something is broken."""
    broken = [check for check in checks if check.state is State.BROKEN]
    plain = {"ok": not broken, "checks": [dataclasses.asdict(check) for check in checks]}
    print_or_write_json(lambda: plain, options, "the checks")
    if is_text_wanted(options):
        _print_checks(checks, broken)
    return FAILED if broken else OK


def _print_checks(checks: list[Check], broken: list[Check]) -> None:
    rows = []
    for before, check in zip((None, *checks), checks, strict=False):
        topic = check.topic if before is None or before.topic != check.topic else ""
        rows.append((topic, check.name, check.state.value, join_lines(check.text)))
    print_table(("of", "what", "state", ""), rows)
    for check in broken:
        print(f"\nbroken: {check.topic}, {check.name}: {join_lines(check.text)}")
        if check.fix:
            print(f"  fix: {check.fix}")
    if not broken:
        print("\nnothing that is installed is broken")
