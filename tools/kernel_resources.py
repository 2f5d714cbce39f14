"""Resource usage of each CUDA kernel, compared with the checked-in table.

ptxas -v prints registers, stack and spills of every kernel. Registers decide how many threads run at once,
so a change of theirs is to be seen in a review; spills are errors. Another nvcc allots registers
differently: then only spills count. A build for some of the architectures is compared with their columns.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "packages" / "npu-cuda" / "kernel-resources.txt"
ENTRY = re.compile(r"Compiling entry function '(?P<symbol>\w+)' for '(?P<architecture>sm_\w+)'")
SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")
RELEASE = re.compile(r"by nvcc (?P<release>\d+\.\d+)")
HEAD = """\
# Written by: nox -s native -- on --update
# nvcc {release}. Per kernel: registers per thread on {architectures}; bytes of static shared memory; the \
name.
"""


@dataclass(frozen=True, slots=True)
class Resources:
    """The report of ptxas on one kernel on one architecture."""

    registers: int
    spill_bytes: int
    shared_bytes: int


Used = Mapping[tuple[str, str], Resources]  # by name and architecture


def read_log(log: str) -> dict[tuple[str, str], Resources]:
    """Return the usage of every kernel, by name and architecture, from the output of a build."""
    blocks: dict[tuple[str, str], str] = {}
    for block in re.split(r"(?=Compiling entry function)", log):
        if found := ENTRY.search(block):
            blocks[found["symbol"], found["architecture"]] = block
    names = demangled(sorted({symbol for symbol, _ in blocks}))
    return {
        (names[symbol], architecture): resources(block) for (symbol, architecture), block in blocks.items()
    }


def resources(block: str) -> Resources:
    spills, registers, shared = SPILLS.search(block), REGISTERS.search(block), SHARED.search(block)
    if spills is None or registers is None:
        raise SystemExit(f"ptxas printed something else than expected of a kernel:\n{block}")
    spilled = int(spills["stores"]) + int(spills["loads"])
    return Resources(int(registers["registers"]), spilled, int(shared["bytes"]) if shared else 0)


def demangled(symbols: list[str]) -> dict[str, str]:
    """Return the demangled C++ names without namespaces and parameters."""
    text = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return dict(zip(symbols, (short(name) for name in text.stdout.splitlines()), strict=True))


def short(name: str) -> str:
    name = name.replace("(anonymous namespace)::", "").replace("npu::", "").removeprefix("void ")
    depth = 0
    for at, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            return name[:at]
    return name


def table(used: Used, release: str) -> str:
    """Return the text of the table: one row per kernel, one column per architecture."""
    architectures = sorted(
        {architecture for _, architecture in used}, key=lambda name: int(name[3:].rstrip("af"))
    )
    rows = []
    for name in sorted({name for name, _ in used}):
        on_each = [used.get((name, architecture)) for architecture in architectures]
        cells = [f"{one.registers if one else '-':>4}" for one in on_each]
        shared = max(one.shared_bytes for one in on_each if one)
        rows.append(f"{''.join(cells)} {shared:>6}  {name}\n")
    return HEAD.format(release=release, architectures=", ".join(architectures)) + "".join(rows)


def problems(used: Used, log: str, path: Path = TABLE, *, update: bool = False) -> list[str]:
    """Return the problems as texts; with ``update``, write the table instead of comparing it.

    Raises:
        SystemExit: The log has no kernel, or does not name the nvcc that wrote it.
    """
    found = RELEASE.search(log)
    if not used or found is None:
        raise SystemExit(
            "the log of the build has no kernel: was it built with NPU_PTXAS_VERBOSE=ON, from scratch?"
        )
    wrong = [
        f"{name} spills {one.spill_bytes} bytes on {architecture}: it needs more registers than there are"
        for (name, architecture), one in sorted(used.items())
        if one.spill_bytes
    ]
    text = table(used, found["release"])
    built = {architecture for _, architecture in used}
    if update:
        path.write_text(text)
    elif f"# nvcc {found['release']}." not in (before := path.read_text()):
        print(f"{path.name} is of another nvcc than {found['release']}: registers are not compared")
    elif (expected := columns_of(before, built)) != text:
        wrong += changes(expected, text, path)
    return wrong


def columns_of(text: str, architectures: Collection[str]) -> str:
    """Return a table with the columns of these architectures, and the kernels that they have."""
    found = re.search(r"per thread on ([\w, ]+);", text)
    assert found, "the table does not name its architectures"
    known = found[1].split(", ")
    kept = [index for index, name in enumerate(known) if name in architectures]
    lines = []
    for line in text.replace(found[1], ", ".join(known[index] for index in kept), 1).splitlines():
        cells = [line[4 * index : 4 * index + 4] for index in kept]
        if line.startswith("#"):
            lines.append(line)
        elif any(cell.strip() != "-" for cell in cells):
            lines.append("".join(cells) + line[4 * len(known) :])
    return "\n".join([*lines, ""])


def changes(before: str, after: str, path: Path) -> list[str]:
    old, new = before.splitlines(), after.splitlines()
    rows = [f"- {row}" for row in old if row not in new] + [f"+ {row}" for row in new if row not in old]
    return [
        f"kernels use something else than {path.name} says; if it is meant: nox -s native -- on --update",
        *rows,
    ]
