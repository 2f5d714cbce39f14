"""``npu plugins``: the loaded and refused plugins, with their origins."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from npu_ir.cli.commands.doctor import report
from npu_ir.cli.console import join_lines, print_table
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.plugin_doctor import plugin_checks
from npu_ir.plugins import plugin_manager

_EPILOG = f"""\
A plugin is an entry point of the group "{plugin_manager.GROUP}", or of a group that a plugin reads: \
npu-cuda loads libraries of kernels
from "npu_cuda.kernels". {plugin_manager.DISABLE_VARIABLE}=NAME,NAME leaves plugins out.

With --doctor, each plugin is checked: that it loads, that its hooks are those that are specified, that all it
offers can be used, and that the installed versions are those that it needs. What is broken makes the exit
code 1.

example:
  npu plugins
  npu plugins --doctor
  npu plugins --json | jq '.[] | select(.refused)'
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "plugins",
        help="list the plugins",
        description="List the plugins: what each offers, or why it was refused.",
        epilog=_EPILOG,
    )
    add_json(parser, "all of it")
    parser.add_argument("--doctor", action="store_true", help="check each plugin, and say how to mend it")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int | None:
    if options.doctor:
        return report(plugin_checks(), options)
    _list_plugins(options)
    return None


def _list_plugins(options: argparse.Namespace) -> None:
    reports = plugin_manager.all_reports()
    print_or_write_json(lambda: [dataclasses.asdict(item) for item in reports], options, "the plugins")
    if not is_text_wanted(options):
        return
    if reports:
        print_table(
            ("plugin", "from", "state"),
            [(item.name, item.distribution, _state_text(item)) for item in reports],
        )
    else:
        print(
            f'no plugins: no installed distribution has an entry point in the group "{plugin_manager.GROUP}"'
        )


def _state_text(item: plugin_manager.PluginReport) -> str:
    if item.refused is not None:
        return f"refused: {join_lines(item.refused)}"
    offers = [f"{kind}: {', '.join(names)}" for kind, names in item.offers.items()]
    if item.commands_refused is not None:
        offers.append(f"commands refused: {join_lines(item.commands_refused)}")
    if not offers and hasattr(plugin_manager.get_plugins().manager.get_plugin(item.name), "npu_register_ops"):
        return "registers ops with PyTorch"  # which does not say by whom they are
    return "; ".join(offers) or "offers nothing"
