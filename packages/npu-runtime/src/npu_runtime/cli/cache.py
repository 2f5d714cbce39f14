"""``npu cache``: what is kept on disk to start faster, and how to remove it."""

from __future__ import annotations

import argparse
from typing import Any

from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.quantities import count_text
from npu_ir.serial.cache_folder import OFF, VARIABLE, CacheFolder, all_cache_folders, cache_root

_EPILOG = f"""\
The folder is that of {VARIABLE}, else npu in XDG_CACHE_HOME or in ~/.cache; {VARIABLE}={OFF}
turns caches off. What caches keep in it can be made again, and may be removed at any time; files of others
are neither listed nor removed. Each kind takes 1 GiB at most: what was not used for longest goes first.

example:
  npu cache
  npu cache --clear
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "cache",
        help="show or clear what is kept on disk to start faster",
        description="Show what is kept on disk to start faster, such as training steps; or remove it.",
        epilog=_EPILOG,
    )
    parser.add_argument("--clear", action="store_true", help="remove all of it")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """List the folders of the cache, or clear them."""
    root = cache_root()
    if root is None:
        print_facts({"cache": f"off: {VARIABLE}={OFF}, or there is no home folder"})
        return
    folders = all_cache_folders()
    if options.clear:
        print_facts({str(root): f"{count_text(sum(folder.clear() for folder in folders), 'file')} removed"})
        return
    print_facts({"folder": str(root)})
    if folders:
        print_table(("kind", "files", "bytes"), [_row(folder) for folder in folders])


def _row(folder: CacheFolder) -> tuple[str, str, str]:
    return folder.path.name, f"{len(folder.files()):,}", f"{folder.size_bytes():,}"
