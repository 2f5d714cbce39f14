"""Results of a long run, kept in a file as they come."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import torch

import npu_ir
from tests.support.coverage_runs.workers import OpResult


def fingerprint(*folders: Path, versions: Iterable[str] = ()) -> str:
    """Return what results depend on, as one short hash: releases, our code, and that in ``folders``."""
    digest = hashlib.sha256(" ".join([torch.__version__, *versions]).encode())
    (package,) = npu_ir.__path__
    for path in sorted(path for folder in (Path(package), *folders) for path in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Store:
    """A file with one line of JSON per job."""

    def __init__(self, path: Path, fingerprint: str, *, any_code: bool = False) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._any_code = any_code

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def read(self) -> dict[str, OpResult]:
        """Return what has been run, by name."""
        entries = [json.loads(line) for line in self._finished_lines()]
        marked = [(entry.pop("fingerprint"), OpResult(**entry)) for entry in entries]
        return {result.op: result for mark, result in marked if self._any_code or mark == self._fingerprint}

    def add(self, result: OpResult) -> None:
        """Append the result of one job."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"fingerprint": self._fingerprint, **dataclasses.asdict(result)}) + "\n"
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            line = "".join(f"{finished}\n" for finished in self._finished_lines()) + line
            self._path.unlink()
        with self._path.open("a") as file:
            file.write(line)

    def _finished_lines(self) -> list[str]:
        """Return the lines; one that a run was writing when it ended is lost."""
        return self._path.read_text().split("\n")[:-1] if self._path.exists() else []
