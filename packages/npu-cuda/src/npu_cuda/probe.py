"""Command line to probe ops by hand: ``python -m npu_cuda.probe relu``, or ``all``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError, NpuCudaError
from npu_cuda.testing import OpRow, Outcome, row_of, rows, run_case, run_refusal


def outcomes_of(row: OpRow, device: str) -> Iterator[Outcome]:
    """Yield the outcomes of every case and every refusal of an op."""
    for case in row.cases():
        yield from run_case(row, case, device)
    for refusal in row.refusals():
        yield from run_refusal(row, refusal, device)


def find_devices(name: str | None) -> list[str]:
    """Return the devices to probe: all, or those of this name ("cuda" stands for all of its kind).

    Raises:
        InvalidArgumentError: There is no such device.
    """
    present = [device["name"] for device in _C.devices()]
    chosen = [device for device in present if name is None or name in {device, device.partition(":")[0]}]
    if not chosen:
        why = f"; {_C.cuda_absence()}" if _C.cuda_absence() else ""
        raise InvalidArgumentError(f"there is no device {name!r} here, only {', '.join(present)}{why}")
    return chosen


def format_outcome(outcome: Outcome) -> str:
    verdict = "ok  " if outcome.passed else "FAIL"
    status = f"{outcome.status:<15} (expected {outcome.expected_status})"
    error = f"error {outcome.error:.2e} of {outcome.tolerance:.0e}" if outcome.status == "Ok" else ""
    call = f"{outcome.device:<7} {outcome.way:<21} {outcome.kernel or '-':<24}"
    wrong = "" if outcome.passed else f"\n     {outcome.wrong}"
    return f"{verdict} {call} {status:<42} {error:<27} {outcome.case}{wrong}"


def list_rows() -> str:
    return "\n".join(
        f"{row.name:<8} {row.op} ({_C.kinds()[row.op]}), {len(list(row.cases()))} cases, "
        f"{len(list(row.refusals()))} refusals"
        for row in rows()
    )


def argument_parser() -> argparse.ArgumentParser:
    commands = argparse.ArgumentParser(
        prog="python -m npu_cuda.probe", description="Probe an op on the devices here."
    )
    commands.add_argument("ops", nargs="*", help="relu, add, copy, gemm, the name in the registry, or all")
    commands.add_argument("--device", help="host, cuda, cuda:0; without it, all that are here")
    commands.add_argument("--list", action="store_true", help="the ops that have probes")
    commands.add_argument("--json", action="store_true", help="one JSON object per op in place of the table")
    return commands


def format_report(row: OpRow, outcomes: list[Outcome]) -> str:
    failed = sum(not outcome.passed for outcome in outcomes)
    return "\n".join([*map(format_outcome, outcomes), f"{row.op}: {len(outcomes)} calls, {failed} failed"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, 1 if something failed, 2 if there is nothing to probe."""
    options = argument_parser().parse_args(arguments)
    if options.list:
        print(list_rows())
        return 0
    try:
        chosen, devices = find_rows(options.ops), find_devices(options.device)
    except NpuCudaError as error:
        print(f"npu_cuda.probe: {error}", file=sys.stderr)
        return 2
    passed = [probe_row(row, devices, as_json=options.json) for row in chosen]
    return 0 if all(passed) else 1


def find_rows(names: Sequence[str]) -> list[OpRow]:
    """Return the rows to probe; "all" stands for every one.

    Raises:
        InvalidArgumentError: No op is named, or a named op has no row.
    """
    if not names:
        raise InvalidArgumentError(f"which op? There are {', '.join(row.name for row in rows())}, and all")
    return list(rows()) if "all" in names else [row_of(name) for name in names]


def probe_row(row: OpRow, devices: Sequence[str], *, as_json: bool) -> bool:
    """Probe an op, print its outcomes, and return whether all passed."""
    kind = _C.kinds()[row.op]
    if not as_json:
        print(kind)
    outcomes = [outcome for device in devices for outcome in outcomes_of(row, device)]
    if as_json:
        print(json.dumps({"op": row.op, "kind": kind, "outcomes": [asdict(outcome) for outcome in outcomes]}))
    else:
        print(format_report(row, outcomes))
    return all(outcome.passed for outcome in outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
