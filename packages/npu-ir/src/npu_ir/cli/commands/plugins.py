"""``npu plugins``: the loaded and refused plugins, with their origins."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from npu_ir.cli.console import join_lines, print_table
from npu_ir.plugins import plugin_manager

_EPILOG = f"""\
A plugin is an entry point of the group "{plugin_manager.GROUP}", or of a group that a plugin reads: \
npu-cuda loads libraries of kernels
from "npu_cuda.kernels". {plugin_manager.DISABLE_VARIABLE}=NAME,NAME leaves plugins out.

example:
  npu plugins
  npu plugins --json | jq '.[] | select(.refused)'
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "plugins",
        help="list the plugins",
        description="List the plugins: what each offers, or why it was refused.",
        epilog=_EPILOG,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    reports = plugin_manager.all_reports()
    if options.json:
        print(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    elif reports:
        print_table(
            ("plugin", "from", "state"),
            [(report.name, report.distribution, _state_text(report)) for report in reports],
        )
    else:
        print(
            f'no plugins: no installed distribution has an entry point in the group "{plugin_manager.GROUP}"'
        )


def _state_text(report: plugin_manager.PluginReport) -> str:
    if report.refused is not None:
        return f"refused: {join_lines(report.refused)}"
    offers = [f"{kind}: {', '.join(names)}" for kind, names in report.offers.items()]
    if report.commands_refused is not None:
        offers.append(f"commands refused: {join_lines(report.commands_refused)}")
    return "; ".join(offers) or "offers nothing"
